"""Users that do not exist look like those that do."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.broker.metadata.credentials import MECHANISM_NUMBERS
from tidemark.broker.security.sasl.decoys import Decoys
from tidemark.protocol.sasl.scram import Credential, make_credential

MECHANISM = "SCRAM-SHA-256"
Users = Mapping[str, Mapping[int, Credential]]


def users(**passwords: tuple[bytes, int]) -> Users:
    return {
        name: {MECHANISM_NUMBERS[MECHANISM]: make_credential(MECHANISM, name, salt=salt, iterations=iterations)}
        for name, (salt, iterations) in passwords.items()
    }


def shown(decoys: Decoys, user: str) -> tuple[bytes, int]:
    decoy = decoys(user)
    return decoy.salt, decoy.iterations


def test_a_stranger_sees_the_same_at_every_node_and_after_every_start() -> None:
    known = users(ann=(b"a" * 20, 8192), bob=(b"b" * 20, 8192))
    here, there = (Decoys(MECHANISM, lambda: known, key=key) for key in (b"of one node", b"of another"))
    assert shown(here, "mallory") == shown(there, "mallory")
    assert shown(here, "mallory") != shown(here, "malory")


def test_salts_and_iterations_are_such_as_users_have() -> None:
    known = users(ann=(b"a" * 64, 4096), bob=(b"b" * 16, 16384))
    decoys = Decoys(MECHANISM, lambda: known, key=b"k")
    shapes = {(len(salt), iterations) for salt, iterations in (shown(decoys, f"user-{n}") for n in range(64))}
    assert shapes == {(64, 4096), (16, 16384)}


def test_without_any_user_and_with_new_ones_there_is_an_answer() -> None:
    known: Users = {}
    decoys = Decoys(MECHANISM, lambda: known, key=b"k")
    before = shown(decoys, "mallory")
    assert (len(before[0]), before[1]) == (26, 4096)
    known = users(ann=(b"a" * 20, 8192))
    assert shown(decoys, "mallory")[1] == 8192
