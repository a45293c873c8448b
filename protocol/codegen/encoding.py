"""Write the encoder of one version of one message.

Fields of fixed size, length prefixes and empty tag sections gather in `run`; one pack call writes them. A value that
does not fit its wire type fails inside that call, and only then does `explain` look for the field that is to blame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidemark.protocol.codegen.emitter import FIXED, Emitter
from tidemark.protocol.codegen.explain import explain
from tidemark.protocol.schema import BytesTypes, Field
from tidemark.protocol.varint import put_uvarint


def records_size(value: Any) -> int:
    """How many bytes a `records` value stands for: bytes, one slice, or a list of slices."""
    if type(value) is list:
        return sum(part.length for part in value)
    return len(value) if isinstance(value, BytesTypes) else value.length


class Encoder(Emitter):
    def __init__(self, version: int, *, flexible: bool, in_parts: bool, in_slices: bool = False) -> None:
        super().__init__(version, flexible=flexible, in_slices=in_slices)
        self.in_parts = in_parts
        self.run: list[tuple[str, str]] = []  # (struct code, expression)
        self.scope |= {
            "explain": explain,
            "pack_array": struct.pack,
            "put_uvarint": put_uvarint,
            "records_size": records_size,
            "wrong_uuid": _wrong_uuid,
        }

    def compile(self, cls: type[Any]) -> Callable[..., Any]:
        function = ("encode_parts" if self.in_parts else "encode") + ("_slices" if self.in_slices else "")
        self.emit(0, f"def {function}(msg, out):")
        self.emit_generator(1)
        if self.in_parts:
            self.emit(1, "parts = []")
        self.emit(1, "try:", "  pass")
        self.write_struct(2, cls, "msg")
        self.flush(2)
        self.emit(1, "except (StructError, TypeError, ValueError, AttributeError) as error:")
        self.scope["Class"] = cls
        self.emit(2, f"raise explain(msg, Class, {self.version}, error) from error")
        if self.in_parts:
            self.emit(1, "if out:", "  parts.append(out)", "return parts")
        exec(compile(self.source(), f"<{function} {cls.__name__} v{self.version}>", "exec"), self.scope)
        encode: Callable[..., Any] = self.scope[function]
        return encode

    def flush(self, depth: int) -> None:
        self.pack(depth, self.run)
        self.run = []

    def pack(self, depth: int, run: list[tuple[str, str]]) -> None:
        codes = "".join(code for code, _ in run)
        if codes == "B":
            self.emit(depth, f"out.append({run[0][1]})")
        elif codes == "x":
            self.emit(depth, "out.append(0)")
        elif codes:
            values = ", ".join(expression for code, expression in run if code != "x")
            self.emit(depth, f"out += {self.layout(codes, 'pack')}({values})")

    # -- structs ----------------------------------------------------------

    def write_struct(self, depth: int, cls: type[Any], source: str) -> None:
        plain, tagged = self.split(cls)
        for name, field in plain:
            self.write_field(depth, field, f"{source}.{name}")
        if not self.flexible:
            return
        if tagged:
            self.write_tags(depth, tagged, source)
        else:
            self.run.append(("x", "0"))

    def write_tags(self, depth: int, tagged: list[tuple[str, Field]], source: str) -> None:
        variables = {name: self.name(name + "_") for name, _ in tagged}
        for name, _ in tagged:
            self.emit(depth, f"{variables[name]} = {source}.{name}")
        usual = " and ".join(self.is_default(field, variables[name], shallow=True) for name, field in tagged)
        self.emit(depth, f"if {usual}:")
        before, self.run = self.run, []
        self.pack(depth + 1, [*before, ("x", "0")])
        self.emit(depth, "else:")
        self.pack(depth + 1, before)
        if all(field.kind in FIXED and field.kind != "uuid" for _, field in tagged):
            self.write_fixed_tags(depth + 1, tagged, variables)
            return
        tags, whole = self.name("tags"), self.name("whole")
        self.emit(depth + 1, f"{tags}, {whole} = [], out")
        for name, field in tagged:
            variable = variables[name]
            self.emit(depth + 1, f"if not ({self.is_default(field, variable, shallow=False)}):", "  out = bytearray()")
            self.write_field(depth + 2, field, variable)
            self.flush(depth + 2)
            self.emit(depth + 2, f"{tags}.append(({field.tag}, out))")
        self.emit(depth + 1, f"out = {whole}", f"put_uvarint(out, len({tags}))", f"for tag, data in {tags}:")
        self.emit(depth + 2, "put_uvarint(out, tag)", "put_uvarint(out, len(data))", "out += data")

    def write_fixed_tags(self, depth: int, tagged: list[tuple[str, Field]], variables: dict[str, str]) -> None:
        """Tag, size and value of each in one call: their sizes are known here."""
        given = {name: f"not ({self.is_default(field, variables[name], shallow=False)})" for name, field in tagged}
        self.emit(depth, f"out.append({' + '.join(f'({test})' for test in given.values())})")
        for name, field in tagged:
            assert field.tag is not None
            assert field.tag < 128
            code = FIXED[field.kind]
            self.emit(depth, f"if {given[name]}:")
            size = str(struct.calcsize(">" + code))
            self.pack(depth + 1, [("B", str(field.tag)), ("B", size), (code, variables[name])])

    def is_default(self, field: Field, variable: str, *, shallow: bool) -> str:
        """Whether a tagged field is left out. Shallow: a test that costs nothing, and may miss an equal struct."""
        default = field.default
        if default is None:
            return f"{variable} is None"
        if field.kind == "array":
            return f"{variable} is not None and not {variable}"
        if field.kind == "struct":
            return f"{variable} {'is' if shallow else '=='} {self.bind('default', field.fresh())}"
        return f"{variable} == {default!r}"

    # -- fields -----------------------------------------------------------

    def write_field(self, depth: int, field: Field, source: str) -> None:
        if field.kind == "uuid":
            self.write_uuid(depth, source)
        elif field.kind in FIXED:
            self.run.append((FIXED[field.kind], source))
        elif field.kind == "struct":
            self.write_nested(depth, field, source)
        else:
            self.write_sized(depth, field, source)

    def write_uuid(self, depth: int, source: str) -> None:
        value = self.name("uuid")
        self.emit(depth, f"{value} = {source}", f"if len({value}) != 16:", f"  wrong_uuid({value})")
        self.run.append(("16s", value))

    def write_nested(self, depth: int, field: Field, source: str) -> None:
        if self.version not in field.nullable:
            self.write_struct(depth, field.of, source)
            return
        self.flush(depth)
        self.emit(depth, f"if {source} is None:", "  out.append(255)", "else:", "  out.append(1)")
        self.write_struct(depth + 1, field.of, source)
        self.flush(depth + 1)

    def write_sized(self, depth: int, field: Field, source: str) -> None:
        value, size = self.name("value"), self.name("size")
        self.emit(depth, f"{value} = {source}")
        nullable = self.version in field.nullable
        if nullable:
            null, nothing = 0 if self.flexible else -1, "()" if field.kind == "array" else "b''"
            self.emit(depth, f"if {value} is None:", f"  {size}, {value} = {null}, {nothing}", "else:")
        inner = depth + nullable
        plus = " + 1" if self.flexible else ""
        if field.kind == "string":
            self.emit(inner, f"{value} = {value}.encode()")
        in_parts = self.in_parts and field.kind == "records"
        self.emit(inner, f"{size} = {f'records_size({value})' if in_parts else f'len({value})'}{plus}")
        self.write_length(depth, field, size)
        if field.kind == "array":
            self.write_items(depth, field, value, size)
        elif in_parts:
            self.write_slices(depth, value, size)
        else:
            self.emit(depth, f"out += {value}")

    def write_length(self, depth: int, field: Field, size: str) -> None:
        self.run.append((self.length_code(field), size))
        if not self.flexible:
            self.flush(depth)
            return
        self.emit(depth, f"if {size} < 128:")
        self.pack(depth + 1, self.run)
        self.emit(depth, "else:")
        self.pack(depth + 1, self.run[:-1])
        if field.kind == "string":
            self.emit(depth + 1, f"if {size} > 32768:", f"  raise ValueError(f'string of {{{size} - 1}} bytes')")
        self.emit(depth + 1, f"put_uvarint(out, {size})")
        self.run = []

    def write_slices(self, depth: int, value: str, size: str) -> None:
        self.emit(depth, f"if {size} > {int(self.flexible)}:", "  parts.append(out)", "  out = bytearray()")
        self.emit(depth + 1, f"if type({value}) is list:", f"  parts += {value}", "else:", f"  parts.append({value})")

    def write_items(self, depth: int, field: Field, value: str, size: str) -> None:
        code = FIXED.get(field.of, "") if isinstance(field.of, str) else ""
        if len(code) == 1:
            self.emit(depth, f"if {value}:", f"  out += pack_array(f'>{{len({value})}}{code}', *{value})")
            return
        item = self.name("item")
        self.emit(depth, f"for {item} in {value}:")
        if isinstance(field.of, str):
            self.write_field(depth + 1, Field(field.of, default=None), item)
        else:
            self.write_struct(depth + 1, field.of, item)
        self.flush(depth + 1)
        self.emit_yield(depth + 1)


def _wrong_uuid(value: Any) -> None:
    raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
