"""Declare a Kafka message once, for all its versions.

A message is a slotted class whose field defaults say how each field travels and in which versions it exists, in
Kafka's own notation. `codec(cls, version)` compiles a straight-line encoder and decoder on first use, with every
version test already decided.

Classes are cheap to declare, because a broker that starts in milliseconds declares hundreds of them: no code is
generated until an instance is constructed (`__init__`) or a codec is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

T = TypeVar("T")
Whole: TypeAlias = Literal["int8", "int16", "uint16", "int32", "uint32", "int64"]

Bytes = bytes | bytearray | memoryview
BytesTypes: Final = (bytes, bytearray, memoryview)
ZERO_UUID: Final = bytes(16)
NEW: Final[Any] = object()  # as a default: a new list or struct for every message


class DecodeError(ValueError):
    """The bytes are not a valid message of this type and version."""


class EncodeError(ValueError):
    """The message holds a value that its wire type cannot carry."""


class Slice(Protocol):
    """Bytes that are not in memory, such as a range of a file: all that an encoder needs is how many."""

    @property
    def length(self) -> int: ...


class Span(NamedTuple):
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first != self.last else str(self.first)


NEVER: Final = Span(32767, -1)
_spans: dict[str, Span] = {"": NEVER}


def span(text: str) -> Span:
    """Read Kafka's notation: '3+', '0-12', '7', or '' for never."""
    found = _spans.get(text)
    if found is None:
        first, _, last = text.rstrip("+").partition("-")
        found = Span(int(first), 32767 if text.endswith("+") else int(last or first))
        _spans[text] = found
    return found


class Field:
    """How one field travels: its kind, and the versions that carry it."""

    __slots__ = ("default", "kind", "nullable", "of", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str = "0+",
        *,
        nullable: str = "",
        tag: int | None = None,
        of: Any = None,
        default: Any,
    ) -> None:
        self.kind = kind
        self.versions = span(versions)
        self.nullable = span(nullable)
        self.tag = tag
        self.of = of  # an array's element (a struct, or the name of a primitive kind), or the nested struct itself
        self.default = default

    def fresh(self) -> object:
        """The value of a field that was not given or does not exist in a version."""
        if self.default is NEW:
            return self.of() if self.kind == "struct" else []
        return self.default


# A declaration is typed as the value that it stands for, as dataclasses.field is: `index: int = int32()`.


def boolean(versions: str = "0+", *, tag: int | None = None, default: bool = False) -> bool:
    return cast(bool, Field("bool", versions, tag=tag, default=default))


def int8(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("int8", versions, tag=tag, default=default))


def int16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("int16", versions, tag=tag, default=default))


def uint16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("uint16", versions, tag=tag, default=default))


def int32(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("int32", versions, tag=tag, default=default))


def uint32(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("uint32", versions, tag=tag, default=default))


def int64(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, Field("int64", versions, tag=tag, default=default))


def float64(versions: str = "0+", *, tag: int | None = None, default: float = 0.0) -> float:
    return cast(float, Field("float64", versions, tag=tag, default=default))


def uuid(versions: str = "0+", *, tag: int | None = None, default: bytes = ZERO_UUID) -> bytes:
    return cast(bytes, Field("uuid", versions, tag=tag, default=default))


@overload
def string(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: str = "") -> str: ...
@overload
def string(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: None) -> None: ...
def string(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: str | None = "") -> object:
    return Field("string", versions, nullable=nullable, tag=tag, default=default)


@overload
def blob(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: bytes = b"") -> bytes: ...
@overload
def blob(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: None) -> None: ...
def blob(versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: bytes | None = b"") -> object:
    return Field("bytes", versions, nullable=nullable, tag=tag, default=default)


def records(versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> bytes | None:
    """Record batches: bytes on the wire, but `encode_parts` may carry them as file slices."""
    return cast(bytes | None, Field("records", versions, nullable=nullable, tag=tag, default=None))


@overload
def array(of: type[T], versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> list[T]: ...
@overload
def array(of: Whole, versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> list[int]: ...
@overload
def array(of: Literal["string"], versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> list[str]: ...
@overload
def array(
    of: Literal["uuid", "bytes"], versions: str = "0+", *, nullable: str = "", tag: int | None = None
) -> list[bytes]: ...
@overload
def array(of: object, versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: None) -> None: ...
def array(
    of: object, versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: None = NEW
) -> object:
    """A list of structs, or of a primitive kind given by name: `array("int32")`. Default: a new empty list, or None."""
    return Field("array", versions, nullable=nullable, tag=tag, of=of, default=default)


@overload
def nested(of: type[T], versions: str = "0+", *, nullable: str = "", tag: int | None = None) -> T: ...
@overload
def nested(
    of: type[object], versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: None
) -> None: ...
def nested(
    of: type[object], versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: object = NEW
) -> object:
    """One struct inside another. Default: an all-defaults instance, shared if it has no lists of its own, or None."""
    if default is NEW and all(field.default is not NEW for field in fields_of(of).values()):
        default = frozen_default(of)
    return Field("struct", versions, nullable=nullable, tag=tag, of=of, default=default)


class Api(NamedTuple):
    """What a request or response declares about itself."""

    key: int
    versions: Span
    flexible: Span
    listeners: str  # where a request is served: "broker", "controller" or both


class Struct:
    """What every declared class is built on: an `__init__` and an equality by value that compile themselves, a repr."""

    __slots__ = ()
    __fields__: ClassVar[dict[str, Field]] = {}
    __declared__: ClassVar[type[Any]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        # First construction of this class: put the compiled __init__ in place of this one.
        declared = self.__declared__
        declared.__init__ = _compile_init(declared)
        declared.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        # First comparison: likewise. Encoders compare tagged fields with their defaults.
        declared = self.__declared__
        declared.__eq__ = _compile_eq(declared)
        equal: bool = declared.__eq__(self, other)
        return equal

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__fields__)
        return f"{self.__declared__.__name__}({values})"


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    raise AttributeError(f"this {self.__declared__.__name__} is a shared default: assign a new one instead of {name}")


def frozen_default(cls: type[T]) -> T:
    """An all-defaults instance that many messages can share, because it cannot be changed."""
    frozen = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": _refuse_assignment})
    instance: T = object.__new__(frozen)
    for name, field in fields_of(cls).items():
        object.__setattr__(instance, name, field.fresh())
    return instance


def _compile_init(cls: type[Any]) -> Callable[..., None]:
    scope: dict[str, Any] = {"NEW": NEW}
    parameters, body = [], []
    for name, field in cls.__fields__.items():
        scope[f"_{name}"] = field.of if field.default is NEW else field.default
        if field.default is NEW:
            new = "[]" if field.kind == "array" else f"_{name}()"
            parameters.append(f"{name}=NEW")
            body.append(f" self.{name} = {new} if {name} is NEW else {name}")
        else:
            parameters.append(f"{name}=_{name}")
            body.append(f" self.{name} = {name}")
    if not parameters:
        return lambda self: None
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body), scope)
    compiled: Callable[..., None] = scope["__init__"]
    return compiled


def _compile_eq(cls: type[Any]) -> Callable[[Any, object], bool]:
    scope: dict[str, Any] = {"Declared": cls}
    equal = " and ".join(f"self.{name} == other.{name}" for name in cls.__fields__) or "True"
    exec(
        f"def __eq__(self, other):\n if not isinstance(other, Declared):\n  return NotImplemented\n return {equal}",
        scope,
    )
    compiled: Callable[[Any, object], bool] = scope["__eq__"]
    return compiled


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """A nested part of a message."""
    body = dict(cls.__dict__)
    fields = {name: body.pop(name) for name in body.get("__annotations__", ())}
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = tuple(fields)
    body["__fields__"] = fields
    made: Any = type(cls.__name__, (Struct,), body)
    made.__declared__ = made
    return made  # type: ignore[no-any-return]


@dataclass_transform(kw_only_default=True)
def message(*, key: int, versions: str, flexible: str = "", listeners: str = "broker") -> Callable[[type[T]], type[T]]:
    """A request or a response: a struct with an API key and a version range.

    `listeners` is said of requests only: the kinds of listeners that serve it, separated by a space.
    """

    def declare(cls: type[T]) -> type[T]:
        made = struct(cls)
        made.__api__ = Api(key, span(versions), span(flexible), listeners)  # type: ignore[attr-defined]
        return made

    return declare


def api(cls: type[Any]) -> Api:
    found: Api = cls.__api__
    return found


def fields_of(cls: type[Any]) -> dict[str, Field]:
    found: dict[str, Field] = cls.__fields__
    return found


FUNCTIONS: Final = ("encode", "decode", "encode_parts", "encode_slices", "decode_slices", "encode_parts_slices")


class Codec(Generic[T]):
    """How one version of a message is written and read. Each function is compiled when it is first asked for.

    `encode(msg, out)` appends, and raises EncodeError; `out` is then in no particular state.
    `decode(buf, pos=0, surplus=False)` reads everything from `pos` to the end of `buf`, where only `surplus` allows
    bytes to be left over, and raises only DecodeError. Byte fields are slices of `buf`.
    `encode_parts(msg, out)` is for messages with record batches: it returns [out, batches, bytearray, …], in which the
    batches are the very objects of the message's `records` fields: bytes, a Slice, or a list of Slices, for sendfile.
    With `_slices` each is a generator that returns the same, and yields every few elements: for messages so large that
    others want their turn in between.
    """

    __slots__ = ("cls", *FUNCTIONS, "version")

    encode: Callable[[T, bytearray], None]
    decode: Callable[..., T]
    encode_parts: Callable[[T, bytearray], list[Any]]
    encode_slices: Callable[[T, bytearray], Generator[None, None, None]]
    decode_slices: Callable[..., Generator[None, None, T]]
    encode_parts_slices: Callable[[T, bytearray], Generator[None, None, list[Any]]]

    def __init__(self, cls: type[T], version: int) -> None:
        self.cls = cls
        self.version = version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        from tidemark.protocol.codegen import compile_function  # the compiler is needed only now

        function = compile_function(self.cls, self.version, name)
        setattr(self, name, function)
        return function


_codecs: dict[tuple[type[Any], int], Codec[Any]] = {}


def codec(cls: type[T], version: int) -> Codec[T]:
    """The codec of `cls` at `version`; always the same object."""
    found = _codecs.get((cls, version))
    if found is None:
        if version not in api(cls).versions:
            raise ValueError(f"{cls.__name__} has no version {version}, only {api(cls).versions}")
        found = _codecs[cls, version] = Codec(cls, version)
    return found
