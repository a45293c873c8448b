"""Write the decoder of one version of one message.

Fields of fixed size gather in `run` until something of variable size ends it; then one unpack call reads them all,
together with the length prefix that ended them. Every length is checked against what is left of the frame before it
is used, every array count against the least its elements can take, and all arrays of a message against ELEMENTS_MAX:
a hostile frame costs no more than an honest one of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from tidemark.protocol.codegen.emitter import FIXED, Emitter
from tidemark.protocol.schema import NEW, DecodeError, Field, fields_of
from tidemark.protocol.varint import TAGS_MAX, read_uvarint, skip_counted_tags

# An empty element of some arrays takes a byte or two of the frame but a hundred of memory.
ELEMENTS_MAX: Final = 1_000_000  # as Kafka 4.4

# Kafka bounds a compact string as it bounds an old one.
STRING_MAX: Final = 0x7FFF


class Decoder(Emitter):
    def __init__(self, version: int, *, flexible: bool, in_slices: bool = False) -> None:
        super().__init__(version, flexible=flexible, in_slices=in_slices)
        self.run: list[tuple[str, str]] = []  # (struct code, variable)
        self.scope |= {
            "DecodeError": DecodeError,
            "new": object.__new__,
            "read_uvarint": read_uvarint,
            "skip_counted_tags": skip_counted_tags,
            "unpack_array": struct.unpack_from,
        }

    def compile(self, cls: type[Any]) -> Callable[..., Any]:
        title = f"{cls.__name__} v{self.version}"
        function = "decode_slices" if self.in_slices else "decode"
        self.emit(
            0,
            f"def {function}(buf, pos=0, surplus=False):",
            f"  end, budget, tags_left = len(buf), {ELEMENTS_MAX}, {TAGS_MAX}",
        )
        self.emit_generator(1)
        self.emit(1, "try:")
        self.read_struct(2, cls, "msg")
        self.emit(1, "except (IndexError, StructError, UnicodeDecodeError) as error:")
        self.emit(2, f"raise DecodeError(f'{title} at byte {{pos}} of {{end}}: {{error}}') from error")
        self.emit(
            1,
            "if pos != end and not surplus:",
            f"  raise DecodeError(f'{title}: {{end - pos}} bytes left over')",
            "return msg",
        )
        exec(compile(self.source(), f"<{function} {title}>", "exec"), self.scope)
        decode: Callable[..., Any] = self.scope[function]
        return decode

    def flush(self, depth: int) -> None:
        """Read what gathered, in one call."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        size = struct.calcsize(">" + codes)
        if codes == "B":
            self.emit(depth, f"{self.run[0][1]} = buf[pos]", "pos += 1")
        else:
            targets = "".join(variable + ", " for _, variable in self.run)
            self.emit(depth, f"{targets}= {self.layout(codes, 'unpack_from')}(buf, pos)", f"pos += {size}")
        self.run = []

    def fail(self, depth: int, test: str, complaint: str) -> None:
        self.emit(depth, f"if {test}:", f"  raise DecodeError(f'{complaint} at byte {{pos}} of {{end}}')")

    # -- structs ----------------------------------------------------------

    def read_struct(self, depth: int, cls: type[Any], target: str) -> None:
        plain, tagged = self.split(cls)
        variables = {name: self.name(name + "_") for name, _ in plain}
        for name, field in plain:
            self.read_field(depth, field, variables[name])
        tags = self.name("tags")
        if self.flexible:
            self.run.append(("B", tags))
        self.flush(depth)
        self.emit(depth, f"{target} = new({self.bind('Class', cls)})")
        for name, field in fields_of(cls).items():
            self.emit(depth, f"{target}.{name} = {variables.get(name) or self.default(field)}")
        if not self.flexible:
            return
        if not tagged:
            self.emit(depth, f"if {tags}:", "  pos, tags_left = skip_counted_tags(buf, pos - 1, tags_left)")
            return
        self.emit(depth, f"if {tags}:")
        self.read_tags(depth + 1, tagged, tags, target)

    def default(self, field: Field) -> str:
        value = field.default
        if value is NEW:
            return "[]" if field.kind == "array" else f"{self.bind('Class', field.of)}()"
        return repr(value) if value is None or type(value) in (int, bool, str) else self.bind("default", value)

    def read_tags(self, depth: int, tagged: list[tuple[str, Field]], tags: str, target: str) -> None:
        last, tag, stop = self.name("last"), self.name("tag"), self.name("stop")
        self.emit(depth, f"{tags}, pos = read_uvarint(buf, pos - 1)", f"{last} = -1", f"tags_left -= {tags}")
        self.fail(depth, "tags_left < 0", f"more than {TAGS_MAX} tagged fields")
        self.emit(depth, f"for _ in range({tags}):")
        depth += 1
        self.emit(depth, f"{tag}, pos = read_uvarint(buf, pos)")
        self.fail(depth, f"{tag} <= {last}", f"tag {{{tag}}} after tag {{{last}}}")
        self.emit(depth, f"{last} = {tag}", f"{stop}, pos = read_uvarint(buf, pos)", f"{stop} += pos")
        self.fail(depth, f"{stop} > end", f"tagged field ends at {{{stop}}},")
        word = "if"
        for name, field in tagged:
            self.emit(depth, f"{word} {tag} == {field.tag}:")
            value = self.name(name + "_")
            self.read_field(depth + 1, field, value)
            self.flush(depth + 1)
            self.emit(depth + 1, f"{target}.{name} = {value}")
            self.fail(depth + 1, f"pos != {stop}", f"{name} does not end at {{{stop}}}, as its tag says,")
            word = "elif"
        self.emit(depth, "else:", f"  pos = {stop}")

    # -- fields -----------------------------------------------------------

    def read_field(self, depth: int, field: Field, target: str) -> None:
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind], target))
        elif field.kind == "struct":
            self.read_nested(depth, field, target)
        else:
            self.read_sized(depth, field, target)

    def read_nested(self, depth: int, field: Field, target: str) -> None:
        if self.version not in field.nullable:
            self.read_struct(depth, field.of, target)
            return
        presence = self.name("presence")
        self.run.append(("b", presence))
        self.flush(depth)
        self.emit(depth, f"if {presence} < 0:", f"  {target} = None", "else:")
        self.read_struct(depth + 1, field.of, target)

    def read_sized(self, depth: int, field: Field, target: str) -> None:
        size = self.name("size")
        self.run.append((self.length_code(field), size))
        self.flush(depth)
        if self.flexible:
            self.finish_varint(depth, field, size)
        if self.version in field.nullable:
            self.emit(depth, f"if {size} {'== 0' if self.flexible else '== -1'}:", f"  {target} = None", "else:")
            depth += 1
        if field.kind == "array":
            self.read_array(depth, field, size, target)
        else:
            self.read_span(depth, field, size, target)

    def finish_varint(self, depth: int, field: Field, size: str) -> None:
        """`size` holds the first byte of a compact length: read on where it is not the last."""
        self.emit(depth, f"if {size} > 127:")
        if field.kind == "records":  # a small batch has a length of two bytes: no call for it
            self.emit(depth + 1, "more = buf[pos]", "if more < 128:")
            self.emit(depth + 2, f"{size} += (more - 1) << 7", "pos += 1")
            self.emit(depth + 1, "else:")
            depth += 1
        self.emit(depth + 1, f"{size}, pos = read_uvarint(buf, pos - 1)")
        if field.kind == "string":
            self.fail(depth + 1, f"{size} > {STRING_MAX + 1}", f"string of {{{size} - 1}} bytes")

    def read_span(self, depth: int, field: Field, size: str, target: str) -> None:
        stop = self.name("stop")
        self.emit(depth, f"{stop} = pos + {size}{' - 1' if self.flexible else ''}")
        self.fail(depth, f"not pos <= {stop} <= end", f"{field.kind} of {{{stop} - pos}} bytes")
        piece = f"buf[pos:{stop}]"
        if field.kind == "string":
            piece = f"str({piece}, 'utf-8')"
        self.emit(depth, f"{target} = {piece}", f"pos = {stop}")

    def read_array(self, depth: int, field: Field, size: str, target: str) -> None:
        if self.flexible:
            self.emit(depth, f"{size} -= 1")
        least = max(1, self.minimum(field.of))
        self.fail(depth, f"{size} < 0 or {size} * {least} > end - pos", f"array of {{{size}}}")
        self.emit(depth, f"budget -= {size}")
        self.fail(depth, "budget < 0", f"more than {ELEMENTS_MAX} elements")
        code = FIXED.get(field.of, "") if isinstance(field.of, str) else ""
        if len(code) == 1:
            self.emit(depth, f"{target} = list(unpack_array(f'>{{{size}}}{code}', buf, pos))")
            self.emit(depth, f"pos += {size} * {least}")
            return
        item = self.name("item")
        self.emit(depth, f"{target} = []", f"for _ in range({size}):")
        if isinstance(field.of, str):
            self.read_field(depth + 1, Field(field.of, default=None), item)
            self.flush(depth + 1)
        else:
            self.read_struct(depth + 1, field.of, item)
        self.emit(depth + 1, f"{target}.append({item})")
        self.emit_yield(depth + 1)
