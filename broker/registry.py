"""Which handler answers which API. A handler registers itself on import, so a new API is one new file.

A handler is a function of the request, the call it came in, and the services it names as keyword arguments. It returns
the response, or a `Later` of it, or (declared `async`) a coroutine; a handler that must not answer returns `NO_ANSWER`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from protocol.schema import Span, api, span

H = TypeVar("H", bound=Callable[..., Any])

NO_ANSWER: Final = object()


class Call(NamedTuple):
    """The circumstances of one request."""

    connection: Any
    version: int
    client_id: str | None


class Route(NamedTuple):
    request: type[Any]
    response: type[Any]
    versions: Span  # what is really served
    advertised: Span
    handle: Callable[..., Any]
    in_parts: bool  # the response holds file slices

    @property
    def key(self) -> int:
        return api(self.request).key

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")


ROUTES: Final[dict[int, Route]] = {}


def handles(
    request: type[Any], response: type[Any], *, advertised_from: int | None = None, in_parts: bool = False
) -> Callable[[H], H]:
    """Register the decorated function as the answer to every version of `request`."""

    def register(handle: H) -> H:
        key, versions = api(request).key, api(request).versions
        if key in ROUTES:
            raise TypeError(f"API {key} has two handlers")
        first = versions.first if advertised_from is None else advertised_from
        advertised = span(f"{first}-{versions.last}")
        ROUTES[key] = Route(request, response, versions, advertised, handle, in_parts)
        return handle

    return register


def load_handlers(package: str = "broker.handlers") -> Mapping[int, Route]:
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__):
        importlib.import_module(f"{package}.{module.name}")
    return ROUTES


def bind(handle: Callable[..., Any], services: Mapping[str, Any]) -> Callable[[Any, Call], Any]:
    """Give the handler the services it names."""
    named = [p.name for p in inspect.signature(handle).parameters.values() if p.kind is p.KEYWORD_ONLY]
    missing = [name for name in named if name not in services]
    if missing:
        raise TypeError(f"{handle.__module__}.{handle.__name__} asks for unknown services {missing}")
    return partial(handle, **{name: services[name] for name in named}) if named else handle
