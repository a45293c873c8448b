"""The subject of an X.509 certificate as Java prints it (RFC 2253): what Kafka's rules and ACLs are written for.

Only as much of DER is read as stands before the subject; OpenSSL has checked the certificate already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SEQUENCE: Final = 0x30
VERSION: Final = 0xA0
_KEYWORDS: Final = {  # those that Java names; the others are printed as numbers
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_SPECIAL: Final = ',+"\\<>;='

_Element = tuple[int, bytes, bytes]  # tag, contents, and the element as it stands in the certificate


def subject_of(certificate: bytes) -> str:
    """The distinguished name of a certificate in DER: `CN=ann,OU=ops,O=example`."""
    ((_, whole, _),) = _elements(certificate)
    (_, signed, _), *_ = _elements(whole)
    fields = [each for each in _elements(signed) if each[0] != VERSION]
    _serial, _algorithm, _issuer, _validity, (_, subject, _), *_ = fields
    # The most specific part stands last in a certificate, and first in the text.
    return ",".join("+".join(_pairs(relative)) for _, relative, _ in reversed(list(_elements(subject))))


def _pairs(relative: bytes) -> Iterator[str]:
    for _, pair, _ in _elements(relative):
        (_, kind, _), (tag, value, encoded) = _elements(pair)
        number = _number(kind)
        keyword = _KEYWORDS.get(number)
        if keyword is None or tag not in _ENCODINGS:
            yield f"{keyword or number}=#{encoded.hex()}"
        else:
            yield f"{keyword}={_escaped(value.decode(_ENCODINGS[tag], errors='replace'))}"


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        yield tag, data[at : at + size], data[start : at + size]
        at += size


def _number(data: bytes) -> str:
    """An object identifier: seven bits a byte, the first two numbers in one."""
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
    if escaped.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(text) > 1 else escaped
