"""The table of APIs agrees with the message files, and the error codes with Kafka's."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import kafka.errors
import kio.schema.errors
import pytest

import tidemark.protocol.messages
from tidemark.protocol.apis import ApiEntry, apis
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import api

# What Apache Kafka 4.3 offers, of the APIs we have messages for. Produce is offered from 0, but 0–2 are refused.
KAFKA_4_3 = {
    0: "3-13", 1: "4-18", 2: "1-11", 3: "0-13", 8: "2-10", 9: "1-10", 10: "0-6", 11: "0-9", 12: "0-4", 13: "0-5",
    14: "0-5", 15: "0-6", 16: "0-5", 18: "0-4", 19: "2-7", 20: "1-6", 21: "0-2", 22: "0-5", 23: "2-4", 24: "0-5",
    25: "0-4", 26: "0-5", 27: "1-2", 28: "0-5", 32: "1-4", 33: "0-2", 34: "1-2", 35: "1-5", 37: "0-3", 42: "0-2",
    44: "0-1",
    47: "0", 60: "0-2", 61: "0", 65: "0", 66: "0-2", 68: "0-1", 69: "0-1", 74: "0-1", 75: "0", 43: "0-2", 45: "0-1",
    46: "0", 55: "0-2", 56: "2-3", 57: "0-2", 62: "0-4", 63: "0-1", 64: "0", 67: "0", 80: "0-1", 81: "0",
    29: "1-3", 30: "1-3", 31: "1-3", 48: "0-1", 49: "0-1", 50: "0", 51: "0", 17: "0-1", 36: "0-2", 38: "1-3", 39: "1-2",
    40: "1-2", 41: "1-3", 71: "0", 72: "0", 73: "0",
}  # fmt: skip


def test_every_message_file_is_in_the_table() -> None:
    files = {module.name for module in pkgutil.iter_modules(tidemark.protocol.messages.__path__)}
    assert files == {entry.module for entry in apis().values()}


@pytest.mark.parametrize("entry", apis().values(), ids=lambda entry: entry.name)
def test_what_the_table_reads_is_what_the_message_declares(entry: ApiEntry) -> None:
    declared = api(entry.request)
    assert (entry.key, entry.versions, entry.listeners) == (
        declared.key,
        declared.versions,
        frozenset(declared.listeners.split()),
    )
    assert entry.request.__name__ == entry.name + "Request"


def test_the_table_imports_no_message() -> None:
    script = (
        "import sys; from tidemark.protocol.apis import apis; assert apis()[3].name == 'Metadata'\n"
        "assert not [name for name in sys.modules if name.startswith('tidemark.protocol.messages')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_listeners_are_those_of_kafka() -> None:
    """The keys that Kafka's message definitions mark for controllers, of those we have."""
    on_controllers = {key for key, entry in apis().items() if "controller" in entry.listeners and not entry.is_private}
    assert on_controllers == {
        17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 55, 56, 57, 60, 62, 63,
        64, 67, 73, 80, 81,
    }  # fmt: skip
    assert {key for key in on_controllers if "broker" not in apis()[key].listeners} == {56, 62, 63, 67, 73}


@pytest.mark.parametrize("key", sorted(key for key, entry in apis().items() if not entry.is_private))
def test_requests_and_responses_declare_the_key_and_versions_of_kafka(key: int) -> None:
    entry = apis()[key]
    assert api(entry.request)[:3] == api(entry.response)[:3]
    assert api(entry.request).key == key
    assert str(entry.versions) == KAFKA_4_3[key]


def test_error_codes_are_kafkas() -> None:
    theirs = {int(code): code.name.upper() for code in kio.schema.errors.ErrorCode}
    assert {int(code): code.name for code in ErrorCode} == theirs
    known = {getattr(thing, "errno", None) for thing in vars(kafka.errors).values() if isinstance(thing, type)}
    assert {number for number in known if number is not None and number <= max(ErrorCode)} <= set(theirs) | {-1}
