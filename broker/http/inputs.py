"""What a client sent, taken apart with a clear error for everything that is not as it should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from tidemark.broker.core.owners import owner_name
from tidemark.broker.core.sliced_work import Job, finished_in_background
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem

T = TypeVar("T")

LARGE_BYTES: Final = 256 << 10


def fail(detail: str) -> Problem:
    return Problem(400, "INVALID_REQUEST", detail[:1000])


class Fields:
    """A JSON object, taken field by field. `refuse_others` at the end: a misspelt name is an error, not silence."""

    def __init__(self, value: object, *, where: str) -> None:
        if not isinstance(value, dict):
            raise fail(f"{where}: it must be an object.")
        self.where = where
        self._left = dict(value)

    def take(self, name: str) -> object:
        return self._left.pop(name, None)

    def has(self, name: str) -> bool:
        return name in self._left

    def text(self, name: str, *, default: str | None = None) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str):
            raise fail(f"{self.where}.{name}: it must be a string.")
        return value

    def integer(self, name: str, *, default: int | None = None, least: int, most: int) -> int:
        value = self.optional_integer(name, least=least, most=most)
        if value is not None:
            return value
        if default is None:
            raise fail(f"{self.where}.{name}: it is missing.")
        return default

    def optional_integer(self, name: str, *, least: int, most: int, null: bool = False) -> int | None:
        """`null`: whether that may be said for nothing."""
        if name not in self._left or (null and self._left[name] is None):
            self._left.pop(name, None)
            return None
        value = self._left.pop(name)
        if isinstance(value, float) and value.is_integer():  # 5.0 is a whole number in JSON
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise fail(f"{self.where}.{name}: it must be a whole number from {least} to {most}.")
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._left.pop(name, default)
        if not isinstance(value, bool):
            raise fail(f"{self.where}.{name}: it must be true or false.")
        return value

    def choice(self, name: str, words: Sequence[str], *, default: str) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str) or value not in words:
            raise fail(f"{self.where}.{name}: it must be one of {', '.join(words)}.")
        return value

    def listing(self, name: str) -> list[object]:
        value = self._left.pop(name, [])
        if not isinstance(value, list):
            raise fail(f"{self.where}.{name}: it must be a list.")
        return value

    def texts(self, name: str, *, required: bool = False) -> dict[str, str | None]:
        """An object of strings; null takes a value away."""
        value = self._left.pop(name, None if required else {})
        if not isinstance(value, dict) or not all(each is None or isinstance(each, str) for each in value.values()):
            raise fail(f"{self.where}.{name}: it must be an object of strings.")
        return value

    def refuse_others(self) -> None:
        if self._left:
            raise fail(f"{self.where}: there is no field {next(iter(self._left))!r} here.")


def body_of(request: HttpRequest) -> Job[object]:
    """The JSON of a body. Its type must be said: so a page in a browser cannot send one without being asked first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Problem(415, "INVALID_REQUEST", "The body must be JSON, and Content-Type application/json.")
    if request.headers.get("content-encoding", "").lower() not in ("", "identity"):
        raise Problem(415, "INVALID_REQUEST", "A body must not be compressed (Content-Encoding).")
    return (yield from request.json())


async def read_in_turn(job: Job[T], request: HttpRequest) -> T:
    """What a job makes of a request's body: a few large ones at a time, whatever they grow to."""
    if len(request.body) <= LARGE_BYTES or request.large_bodies is None:
        return await finished_in_background(job)
    async with request.large_bodies.turn_of(owner_name(request)):
        return await finished_in_background(job)


async def fields_of(request: HttpRequest) -> Fields:
    """Of a body that must be an object."""
    return Fields(await read_in_turn(body_of(request), request), where="body")


def query_integer(request: HttpRequest, name: str, *, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise fail(f"{name}: it must be a whole number from {least} to {most}.")
    return int(text)


def query_choice(request: HttpRequest, name: str, words: Sequence[str], *, default: str) -> str:
    text = request.query.get(name, default)
    if text not in words:
        raise fail(f"{name}: it must be one of {', '.join(words)}.")
    return text


def path_integer(request: HttpRequest, name: str) -> int:
    text = request.path_values[name]
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise fail(f"{name}: {text[:50]!r} is no number.")
    return int(text)
