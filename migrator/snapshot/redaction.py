"""Takes what may be secret out of records, and leaves what a mapping looks at: types, names, lengths, structure.

Letters become other letters of the same case and of as many bytes in UTF-8; everything else stays where it is, digits
too. JSON is looked into, also where it stands in a string or in a JSON string, and stays the same JSON. Names stay: of
keys, of fields, of properties, of consumers.

Which letter becomes which hangs on the whole text and on a secret that is never written down: equal texts stay equal
within a file, and nobody can try out what the original was.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec

from migrator.keys import GUID
from migrator.snapshot.families import Found
from migrator.snapshot.ndjson import Line, StreamPart

# Whatever stands under a name with one of these in it is hidden, to its last letter.
SECRET = ("arg", "auth", "bod", "command", "cookie", "credential", "data", "error", "exception", "header", "key",
          "log", "mail", "message", "param", "passw", "payload", "pwd", "result", "secret", "session", "token", "trace",
          "url")  # fmt: skip
# What stands under these names chooses a path in an application, and in a mapping.
KEPT = frozenset({"@class", "class", "kind", "priority", "queue", "state", "status", "strategy", "type", "version"})

_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan)"
# UNKNOWN: what the jobs' mapping says of an error without a code. Hidden in one shape, it would differ from the other.
_PLAIN = re.compile(rf"{_DATE}|{_NUMBER}|true|false|null|True|False|UNKNOWN", re.ASCII)
_GUID = re.compile(GUID)
_HEX = re.compile(r"(?=.*\d)[0-9a-fA-F-]{8,}", re.DOTALL)
_DIGEST = re.compile(rb"\b[0-9a-f]{32}\b")
_JSON = msgspec.json.Decoder(msgspec.Raw)
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|[{}\[\]]', re.DOTALL)
_UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+", re.DOTALL
)
_HALF = re.compile("[\ud800-\udfff]")
_WIDE = re.compile(r"[^\x00-\x7f]")
_LONGEST_NAME = 200  # names are remembered, many of them; what is longer is data
_NO_DASHES = str.maketrans("", "", "-_ ")
_LETTER = 0xDF  # the bits of an ASCII letter that say which; the other one says upper or lower case


def _table(of: dict[int, int]) -> bytes:
    return bytes(of.get(byte, 0) for byte in range(256))


_IS_LETTER = _table(dict.fromkeys((*range(65, 91), *range(97, 123)), _LETTER))
_IS_HIGH = _table(dict.fromkeys(range(128, 256), 255))
_TO_LETTER = bytes(65 + byte % 26 for byte in range(256))
_TO_HEX = bytes(65 + byte % 6 for byte in range(256))
_TO_HIGH = bytes(0x80 + byte % 0x40 for byte in range(256))  # bytes that can begin no character: never UTF-8 by chance
# For letters beyond ASCII: of two, three and four bytes, upper and lower case.
_WIDE_LETTERS = {
    (2, True): "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞ",
    (2, False): "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþ",
    (3, True): "".join(map(chr, range(0x1EA0, 0x1EFA, 2))),
    (3, False): "".join(map(chr, range(0x1EA1, 0x1EFA, 2))),
    (4, True): "".join(map(chr, range(0x1D400, 0x1D41A))),
    (4, False): "".join(map(chr, range(0x1D41A, 0x1D434))),
}


class Redaction:
    """One file's. `keep` names fields and properties whose values are no secret, wherever they stand."""

    def __init__(self, keep: Iterable[str] = ()) -> None:
        self._keep = frozenset(map(_folded, keep))
        self._secret = secrets.token_bytes(32)

    def line(self, line: Line, family: Found) -> Line:
        """The line as it may leave the source. This tool's own keys stay whole: they hold no value of a record; only
        the quarantine holds digests of values, by which one could try out what they were."""
        if family.own:
            return line._replace(items=self._rejected(line.items)) if family.own == "quarantine" else line
        known = frozenset(re.split(r"[:{}/|]", line.key.decode("utf-8", "replace"))) | {""}
        values = _Values(self._secret, self._keep, known)
        if line.stream is not None:
            return line._replace(stream=_entries(values, line.stream))
        return line._replace(items=_items(values, line, family))

    def _rejected(self, flat: list[bytes]) -> list[bytes]:
        """Names and records of the quarantine, with other digests: equal ones stay equal, accepted ones accepted."""
        return [_DIGEST.sub(self._other, item) if i % 2 else item for i, item in enumerate(flat)]

    def _other(self, digest: re.Match[bytes]) -> bytes:
        return hashlib.shake_128(self._secret + digest[0]).hexdigest(len(digest[0]) // 2).encode()


def _items(values: _Values, line: Line, family: Found) -> list[bytes]:
    if line.kind == "hash":
        return values.fields(line.items)
    if family.names_members == line.kind and line.kind in ("set", "zset"):
        return line.items
    if line.kind == "zset":
        return [values.value(item) if i % 2 == 0 else item for i, item in enumerate(line.items)]
    return [values.value(item) for item in line.items]


def _entries(values: _Values, part: StreamPart) -> StreamPart:
    return replace(part, entries=tuple((id, fields and tuple(values.fields(fields))) for id, fields in part.entries))


class _Values:
    """Values of one record. `known` is what the name of its key shows: an id in a record may repeat it."""

    def __init__(self, secret: bytes, keep: frozenset[str], known: frozenset[str]) -> None:
        self._secret, self._keep, self._known = secret, keep, known

    def fields(self, flat: Iterable[bytes]) -> list[bytes]:
        """Field, value, field, …"""
        items = list(flat)
        for i in range(1, len(items), 2):
            name = items[i - 1] if len(items[i - 1]) <= _LONGEST_NAME else b""
            items[i] = self.value(items[i], name.decode("utf-8", "replace"))
        return items

    def value(self, raw: bytes, name: str = "") -> bytes:
        if raw.isdigit():
            return raw
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return raw if _folded(name) in self._keep else self._octets(raw)
        return self._text(text, name, hidden=_is_secret(name)).encode()

    def _text(self, text: str, name: str, *, hidden: bool) -> str:
        """As many characters, each of as many bytes."""
        folded = _folded(name)
        if folded in self._keep:
            return text
        # Before KEPT: a document under such a name is no word that chooses a path.
        if text.lstrip(" \t\r\n")[:1] in ("{", "[", '"') and _is_json(text):
            return self._json(text, name, hidden=hidden)
        if folded in KEPT and not hidden:
            return text
        if _PLAIN.fullmatch(text) or (not hidden and (text in self._known or _GUID.fullmatch(text))):
            return text
        return self._letters(text)

    def _json(self, text: str, name: str, *, hidden: bool) -> str:
        out, at = list[str](), 0
        around: list[tuple[str, bool]] = []
        for token in _TOKEN.finditer(text):
            mark = text[token.start()]
            if mark in "{[":
                around.append((name, hidden))
                name = name if mark == "[" else ""
            elif mark in "}]":
                name, hidden = around.pop()
            elif token[2] is not None:
                name = _unescaped(token[1]) if len(token[1]) <= _LONGEST_NAME else ""
                hidden = around[-1][1] or _is_secret(name)
            else:
                out += (text[at : token.start() + 1], self._string(token[1], name, hidden=hidden))
                at = token.end() - 1
        return "".join([*out, text[at:]])

    def _string(self, raw: str, name: str, *, hidden: bool) -> str:
        """What stands between the quotes of a JSON string; an escape stays an escape."""
        if "\\" not in raw:
            return self._text(raw, name, hidden=hidden)
        units = [(unit, unit if unit[0] != "\\" else _unescaped(unit)) for unit in _UNIT.findall(raw)]
        new = self._text("".join(plain for _, plain in units), name, hidden=hidden)
        out, at = list[str](), 0
        for unit, plain in units:
            found = new[at : at + len(plain)]
            at += len(plain)
            out.append(unit if found == plain else found if unit[0] != "\\" else _escaped(found))
        return "".join(out)

    def _letters(self, text: str) -> str:
        if not text.isascii():
            stream = iter(self._noise(text.encode(), 2 * len(text)))
            text = _WIDE.sub(lambda found: _wide(found[0], next(stream) << 8 | next(stream)), text)
        return self._mixed(text.encode(), _IS_LETTER, _TO_HEX if _HEX.fullmatch(text) else _TO_LETTER).decode()

    def _octets(self, raw: bytes) -> bytes:
        return self._mixed(self._mixed(raw, _IS_LETTER, _TO_LETTER), _IS_HIGH, _TO_HIGH)

    def _mixed(self, raw: bytes, chosen: bytes, noise: bytes) -> bytes:
        """The bytes with those that are `chosen` made of noise: in whole numbers, which is quick at any length."""
        old, mask = int.from_bytes(raw), int.from_bytes(raw.translate(chosen))
        new = int.from_bytes(self._noise(raw, len(raw)).translate(noise))
        return (old ^ (old ^ new) & mask).to_bytes(len(raw))

    def _noise(self, raw: bytes, length: int) -> bytes:
        return hashlib.shake_128(self._secret + raw).digest(length)


def _wide(char: str, noise: int) -> str:
    """Another letter of as many bytes. What is no letter stays; marks belong to their letters."""
    if not (char.isalpha() or unicodedata.category(char).startswith("M")):
        return char
    letters = _WIDE_LETTERS[len(char.encode()), char.isupper()]
    return letters[noise % len(letters)]


@lru_cache(4096)
def _folded(name: str) -> str:
    return name.translate(_NO_DASHES).lower()


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    folded = _folded(name)
    return any(part in folded for part in SECRET)


def _is_json(text: str) -> bool:
    try:
        _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


@lru_cache(4096)
def _unescaped(raw: str) -> str:
    """A half of a pair that stands alone is no character, and becomes one that nothing is done to."""
    if "\\" not in raw:
        return raw
    return _HALF.sub("\ufffd", str(json.loads(f'"{raw}"', strict=False)))


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"
