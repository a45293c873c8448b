"""Which handler answers which API. A handler registers itself when its module is loaded, on first use.

Its file, and the function in it, are named as the API: `describe_configs` in handlers/describe_configs.py. A handler
is a function of the request, the call it came in, and the services it names as keyword arguments. It returns the
response, a `Deferred` of it, or (declared `async`) a coroutine; a handler that must not answer returns `NO_ANSWER`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tidemark.broker.core.api_table import api_table
from tidemark.broker.core.deferred import Answer
from tidemark.protocol.apis import api_module
from tidemark.protocol.schema import Span, api

H = TypeVar("H", bound=Callable[..., Answer[Any]])
T = TypeVar("T")


class NoAnswer:
    """The type of `NO_ANSWER`."""


NO_ANSWER: Final = NoAnswer()

_HANDLERS: Final = "tidemark.broker.handlers."


class Call:
    """The circumstances of requests: one for each API and version that a connection uses."""

    __slots__ = ("client_id", "connection", "in_background", "is_traced", "memo", "version")

    def __init__(self, connection: Any, version: int, client_id: str | None, *, in_background: bool = False) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.memo: Any = None  # what the API's quick way has learnt
        self.in_background = in_background  # behind Kafka's clients: see `background_work`
        self.is_traced = False  # the request that is being handled, if it came by the quick way


QuickTopic: TypeAlias = Callable[[bytearray, int, Call], str | bytes | None]
Handler: TypeAlias = Callable[[Any, Call], Answer[Any]]
"""A handler with its services bound. The request is of the type that its route names."""


class Route(NamedTuple):
    request: type[Any]
    response: type[Any]
    versions: Span
    handle: Callable[..., Answer[Any]]
    in_parts: bool  # the response holds file slices
    on_controller: bool  # other nodes pass it on
    quick: Callable[..., Answer[Any]] | None
    quick_topic: QuickTopic | None
    stays_here: Callable[[Any], bool] | None = None  # which requests are not passed on all the same

    @property
    def key(self) -> int:
        return api(self.request).key

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")


_routes: Final[dict[int, Route]] = {}


def handles(
    request: type[Any],
    response: type[Any],
    *,
    in_parts: bool = False,
    on_controller: bool = False,
    quick: Callable[..., Answer[Any]] | None = None,
    quick_topic: QuickTopic | None = None,
    stays_here: Callable[[Any], bool] | None = None,
) -> Callable[[H], H]:
    """Register the decorated function as the answer to every version of `request`.

    `on_controller`: it changes the metadata. A node that is not the controller passes the request on to it.
    `quick(frame, position, call, …services)` is asked before the request is decoded. It returns the answer's bytes
    (with room for size and correlation id), or what a handler returns; or None, and then nothing has happened.
    `stays_here(request)`: whether it is about this very node, and not passed on.
    `quick_topic(frame, position, call)`: the topic that it would touch, for those who ask whether that is allowed.
    """

    def register(handle: H) -> H:
        key, versions = api(request).key, api(request).versions
        route = Route(request, response, versions, handle, in_parts, on_controller, quick, quick_topic, stays_here)
        module = api_module(route.name)
        if key in _routes:
            raise TypeError(f"API {key} has two handlers")
        if (handle.__module__, handle.__name__) != (_HANDLERS + module, module):
            raise TypeError(f"{route.name} is answered by a function {module} in handlers/{module}, not {handle}")
        _routes[key] = route
        return handle

    return register


def find_route(key: int) -> Route | None:
    """The handler of an API, which is loaded if it is the first time; None if there is none."""
    found = _routes.get(key)
    if found is None and (entry := api_table().get(key)) is not None:
        import_module(_HANDLERS + entry.module)
        found = _routes[key]
    return found


def bind(handle: Callable[..., T], services: Mapping[str, Callable[[], Any]]) -> Callable[..., T]:
    """Give the handler the services it names."""
    named = [p.name for p in inspect.signature(handle).parameters.values() if p.kind is p.KEYWORD_ONLY]
    missing = [name for name in named if name not in services]
    if missing:
        raise TypeError(f"{handle.__module__}.{handle.__name__} asks for unknown services {missing}")
    return partial(handle, **{name: services[name]() for name in named}) if named else handle
