"""JSON is split, never re-encoded: a value keeps its bytes, so numbers keep their digits and `[]` stays `[]`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from migrator.errors import Unmappable

_SPLIT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_STRING = msgspec.json.Decoder(str)
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
_SPACE = b" \t\r\n"


class Span(NamedTuple):
    """Where a property's value stands: text[start:end]."""

    name: str
    start: int
    end: int


def split(text: bytes) -> tuple[dict[str, bytes], bool]:
    """A JSON object -> its properties, each with the bytes of its value, and whether a name came twice.

    A name that came twice has its last value; the names stand in the order of their last places, so that a
    caller who takes two spellings for one name can let the last one win too. Raises Unmappable for anything
    that System.Text.Json would not read as an object; a lone surrogate is not valid JSON here.
    """
    properties = _split(text)
    # Compact text without a repeated name comes back byte for byte, and nothing else does: spaces, escapes in
    # names and hidden values all make the original longer.
    if msgspec.json.encode(properties) == text:
        return {name: bytes(value) for name, value in properties.items()}, False
    names = _names(text)
    last_first = dict.fromkeys(reversed(names))
    return {name: bytes(properties[name]) for name in reversed(last_first)}, len(names) > len(last_first)


def _split(text: bytes) -> Mapping[str, msgspec.Raw]:
    if not text:
        raise Unmappable("empty value")
    if text.startswith(_BOM):
        raise Unmappable("starts with a byte-order mark")
    try:
        text.decode()  # msgspec does not look inside the strings it skips
        return _SPLIT.decode(text)
    except UnicodeDecodeError:
        raise Unmappable("not UTF-8") from None
    except msgspec.ValidationError:
        raise Unmappable("not a JSON object") from None
    except msgspec.DecodeError:
        raise Unmappable("not valid JSON") from None
    except RecursionError:
        raise Unmappable("JSON nested too deeply") from None


def _names(text: bytes) -> list[str]:
    """The names of the outermost object as they come, repeated ones too."""
    try:
        # Numbers stay text: Python refuses to convert one of more than 4300 digits.
        pairs = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except RecursionError:
        raise Unmappable("JSON nested too deeply") from None
    return [name for name, _ in pairs]


def read_string(value: bytes) -> bytes:
    """A JSON string, as `split` gave it -> its text."""
    if b"\\" not in value:
        return value[1:-1]
    return _STRING.decode(value).encode()


def write_string(text: bytes) -> bytes:
    """Text -> a JSON string with only the escapes JSON demands. Raises UnicodeDecodeError if it is not UTF-8."""
    return msgspec.json.encode(text.decode())


def is_json(text: bytes) -> bool:
    """Whether this is exactly one JSON value with no space around it."""
    try:
        text.decode()
        return bytes(_VALUE.decode(text)) == text
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False


def spans(text: bytes) -> list[Span]:
    """The properties of a JSON object in the order they come, repeated ones too. `text` has passed `split`."""
    found: list[Span] = []
    depth, name, start = 0, b"", -1
    for token in _TOKEN.finditer(text):
        mark = text[token.start()]
        if depth == 1 and start < 0 and mark == ord('"'):
            name = token[0]
        elif depth == 1 and mark == ord(":"):
            start = token.end()
        elif depth == 1 and start >= 0 and mark in b",}":
            value = text[start : token.start()]
            end = token.start() - len(value) + len(value.rstrip(_SPACE))
            found.append(Span(read_string(name).decode(), end - len(value.strip(_SPACE)), end))
            start = -1
        depth += (mark in b"{[") - (mark in b"}]")
    return found


def edit(text: bytes, found: Sequence[Span], replaced: Iterable[tuple[Span, bytes]], added: Iterable[bytes]) -> bytes:
    """An object with new bytes for some values and new properties (`"name":value`) behind the last; the rest stays.

    `found` are the spans of `text`, at least one.
    """
    last = found[-1].end
    changes = [*((span.start, span.end, value) for span, value in replaced)]
    changes += [(last, last, b"," + one) for one in added]
    out: list[bytes] = []
    at = 0
    for start, end, value in sorted(changes, key=lambda change: change[:2]):
        out += (text[at:start], value)
        at = end
    return b"".join([*out, text[at:]])
