"""The users that a new cluster begins with: `tidemark format --add-scram`, as Kafka's storage tool has it (KIP-900).

    --add-scram 'SCRAM-SHA-512=[name=admin,password=${file:/run/secrets/admin}]'

`iterations` and, as in Kafka, a `salt` and a `saltedpassword` in base64 instead of a password may be given as well.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.config import ConfigError
from tidemark.broker.config.secrets import resolve
from tidemark.broker.metadata.credentials import MECHANISM_NUMBERS, credential_record
from tidemark.broker.metadata.records import ScramCredentialRecord
from tidemark.environment import random_bytes
from tidemark.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of, salted_password

OPTION: Final = "--add-scram"
SALT_BYTES: Final = 26
KEYS: Final = frozenset(("name", "password", "iterations", "salt", "saltedpassword"))


def add_first_users(directory: MetadataDirectory, texts: Sequence[str]) -> int:
    """An exit code. Raises ConfigError for a text that cannot be used, and does not repeat it: it holds a password."""
    records = [_record(text) for text in texts]
    if directory.holds_metadata:
        message = f"tidemark: {directory.path} holds metadata already: make users with `tidemark users create`"
        print(message, file=sys.stderr)
        return 1
    directory.set_first_records(records)
    names = ", ".join(sorted({record.user for record in records}))
    print(f"The cluster that starts in {directory.path} will have the users {names}.")
    return 0


def _record(text: str) -> ScramCredentialRecord:
    found = re.fullmatch(r"\s*([A-Z0-9-]+)\s*=\s*\[(.*)\]\s*", text, re.DOTALL)
    if found is None or found[1] not in MECHANISM_NUMBERS:
        wanted = " or ".join(MECHANISM_NUMBERS)
        raise ConfigError(f"{OPTION}: it must be MECHANISM=[name=…,password=…], with {wanted}.")
    mechanism, values = found[1], _values(found[2])
    salt = _base64(values["salt"], "salt") if "salt" in values else random_bytes(SALT_BYTES)
    iterations = _iterations(values.get("iterations", str(ITERATIONS_MIN)))
    if "saltedpassword" in values:
        salted = _base64(values["saltedpassword"], "saltedpassword")
    else:
        salted = salted_password(mechanism, values["password"], salt=salt, iterations=iterations)
    credential = credential_of(mechanism, salted, salt=salt, iterations=iterations)
    return credential_record(values["name"], MECHANISM_NUMBERS[mechanism], credential)


def _values(text: str) -> Mapping[str, str]:
    # A comma ends a value only where another key follows: passwords may have commas.
    pairs = re.split(rf",(?=(?:{'|'.join(sorted(KEYS))})=)", text)
    named = [(name.strip(), value) for name, _, value in (pair.partition("=") for pair in pairs)]
    values = {name: resolve(value, key=OPTION).strip('"') for name, value in named}
    if not values.get("name") or set(values) - KEYS:
        raise ConfigError(f"{OPTION}: it needs a name, and takes {', '.join(sorted(KEYS))}.")
    if bool(values.get("password")) == bool(values.get("saltedpassword")):
        raise ConfigError(f"{OPTION}: it needs a password, or a salted one.")
    if "saltedpassword" in values and "salt" not in values:
        raise ConfigError(f"{OPTION}: a salted password needs its salt.")
    return values


def _iterations(text: str) -> int:
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise ConfigError(f"{OPTION}: iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    return int(text)


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError(f"{OPTION}: the {name} is not base64.") from None
