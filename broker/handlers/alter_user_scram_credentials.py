"""AlterUserScramCredentials: set or delete users' SCRAM credentials (KIP-554).

The client has salted and iterated the password already: what arrives, and what is kept, is not the password. The
controller decides; other brokers forward the request to it. Each user is answered by itself.
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, finished, in_slices
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.scram_credentials import Outcome, alter_credentials
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@handles(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, on_controller=True)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, _call: Call, *, store: MetadataStore
) -> AlterUserScramCredentialsResponse:
    outcome: Outcome = {}

    def decide(image: Image) -> Job[list[Record]]:
        return alter_credentials(image, request, outcome)

    await store.change(decide)
    results = await finished(in_slices(lambda each: _result(*each), outcome.items()))
    return AlterUserScramCredentialsResponse(results=results)


def _result(user: str, refusal: Refused | None) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=user)
    return AlterUserScramCredentialsResult(user=user, error_code=refusal.code, error_message=refusal.message)
