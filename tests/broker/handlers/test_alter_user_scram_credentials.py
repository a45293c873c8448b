from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidemark.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

SHA_256, SHA_512 = 1, 2


def upsertion(name: str, mechanism: int = SHA_512, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"x" * 64
    )


async def alter(client: Any, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    return {each.user: each.error_code for each in (await client.ask(request)).results}


async def credentials(client: Any) -> dict[str, list[tuple[int, int]]]:
    answer = await client.ask(DescribeUserScramCredentialsRequest(users=None))
    return {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in answer.results}


async def test_credentials_are_set_changed_and_deleted(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    assert await alter(client, upsertion("ann"), upsertion("ann", SHA_256, 8192), upsertion("bob")) == {
        "ann": 0,
        "bob": 0,
    }
    assert await credentials(client) == {"ann": [(SHA_256, 8192), (SHA_512, 4096)], "bob": [(SHA_512, 4096)]}
    deletion = ScramCredentialDeletion(name="bob", mechanism=SHA_512)
    assert await alter(client, deletion, upsertion("ann", SHA_256, 4096)) == {"ann": 0, "bob": 0}
    assert await credentials(client) == {"ann": [(SHA_256, 4096), (SHA_512, 4096)]}


async def test_each_user_is_refused_by_itself(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    assert await alter(
        client,
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        upsertion(""),
        upsertion("twice"),
        upsertion("twice"),
        upsertion("mechanism", 3),
        ScramCredentialDeletion(name="nobody", mechanism=SHA_512),
        upsertion("fine", iterations=16384),
    ) == {
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "mechanism": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "fine": ErrorCode.NONE,
    }
    assert list(await credentials(client)) == ["fine"]


async def test_credentials_survive_a_restart(start_node: Any, connect: Any) -> None:
    node = await start_node()
    await alter(await connect(node), upsertion("ann"))
    await node.stop()
    assert list(await credentials(await connect(await start_node()))) == ["ann"]
