"""Deciding about changes to users' SCRAM credentials (KIP-554): an image and a request in, records and refusals out."""

from __future__ import annotations

from functools import cache
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.repeats import find_repeated
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.credentials import MECHANISM_NAMES, credential_record
from tidemark.broker.metadata.features import check_security_level
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record, RemoveScramCredentialRecord
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidemark.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of

USER_BYTES_MAX: Final = 1024
SALT_BYTES_MAX: Final = 1024

Change = ScramCredentialDeletion | ScramCredentialUpsertion
Outcome = dict[str, Refused | None]  # by user


def alter_credentials(image: Image, request: AlterUserScramCredentialsRequest, outcome: Outcome) -> Job[list[Record]]:
    """Each user's changes happen or not, whatever becomes of the others'."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    twice = yield from find_repeated((each.name, each.mechanism) for each in changes)
    outcome.clear()
    for each in changes:
        if outcome.setdefault(each.name, None) is None:
            outcome[each.name] = _why_refused(image, each, is_repeated=(each.name, each.mechanism) in twice)
        yield
    accepted: list[Record] = []
    for each in changes:
        if outcome[each.name] is None:
            accepted.append(_record(each))
        yield
    if accepted:
        check_security_level(image)
    return accepted


def _why_refused(image: Image, change: Change, *, is_repeated: bool) -> Refused | None:
    if is_repeated:
        message = "A user credential cannot be altered twice in the same request."
        return _refusal(ErrorCode.DUPLICATE_RESOURCE, message)
    if not change.name:
        return _refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty.")
    if change.mechanism not in MECHANISM_NAMES:
        return _refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism.")
    if isinstance(change, ScramCredentialUpsertion):
        return _why_unacceptable(change)
    if change.mechanism not in image.credentials.scram.get(change.name, ()):
        message = "Attempt to delete a user credential that does not exist."
        return _refusal(ErrorCode.RESOURCE_NOT_FOUND, message)
    return None


@cache
def _refusal(code: ErrorCode, message: str) -> Refused:
    """One for all users: very many of them would be much to free at once."""
    return Refused(code, message)


def _why_unacceptable(change: ScramCredentialUpsertion) -> Refused | None:
    reason = ""
    if change.iterations < ITERATIONS_MIN:
        reason = "Too few iterations"
    elif change.iterations > ITERATIONS_MAX:
        reason = "Too many iterations"
    elif not change.salted_password or not change.salt:
        reason = "Salt and password must not be empty."
    elif len(change.name.encode()) > USER_BYTES_MAX or len(change.salt) > SALT_BYTES_MAX:
        reason = f"User names have {USER_BYTES_MAX} bytes at most, and so have salts."
    return _refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason) if reason else None


def _record(change: Change) -> Record:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveScramCredentialRecord(user=change.name, mechanism=change.mechanism)
    credential = credential_of(
        MECHANISM_NAMES[change.mechanism],
        bytes(change.salted_password),
        salt=bytes(change.salt),
        iterations=change.iterations,
    )
    return credential_record(change.name, change.mechanism, credential)
