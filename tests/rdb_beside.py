"""The contents that stand beside the RDB files of the shared data, each in the manner of the project it comes from.

Each check raises AssertionError where the file's content is another one. `expired` keys of it may be missing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import redis

from tests.rdb_seen import Seen, Value, through_server

Check = Callable[[Path, Seen, int], None]


def text(raw: bytes) -> str:
    """HDT3213 puts U+FFFD in the place of what is not UTF-8."""
    return raw.decode("utf-8", "replace")


def byte_by_byte(raw: bytes) -> str:
    """rdb-rs and librdb write a byte as the character of that number where the whole is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def hdt(path: Path, seen: Seen, expired: int, *, partly: bool = False) -> None:
    """HDT3213's JSON: a list of records with type, value and expiries."""
    records = [one for one in json.loads(path.read_text()) if one["type"] not in ("aux", "functions")]
    libraries = {one["functionsLua"] for one in json.loads(path.read_text()) if one["type"] == "functions"}
    assert set(seen.libraries) == libraries
    found = {(db, text(key)): value for (db, key), value in seen.keys.items()}
    gone = 0
    for one in records:
        expires = int(datetime.fromisoformat(one["expiration"]).timestamp() * 1000) if "expiration" in one else None
        value = found.pop((one["db"], one["key"]), None)
        if value is None:
            gone += 1
            assert expires is not None, one["key"]
            continue
        assert (value.type, value.expires) == (one["type"], expires), one["key"]
        fields = {name: at for name, at in one.get("expire", {}).items() if at}
        assert {text(name): at for name, at in value.fields.items()} == fields, one["key"]
        assert _plain(value, text) == _HDT[value.type](one), one["key"]
    assert gone == 0 if partly else (gone, found) == (expired, {})


def hdt_part(path: Path, seen: Seen, expired: int) -> None:
    hdt(path, seen, expired, partly=True)


def _hdt_stream(one: Any) -> Any:
    groups = {}
    for group in one.get("groups", ()):
        owner = {id: consumer["name"] for consumer in group.get("consumers", ()) for id in consumer.get("pending", ())}
        waiting = {each["id"]: (owner[each["id"]], each["deliveryCount"]) for each in group.get("pending", ())}
        groups[group["name"]] = (group["lastId"], waiting)
    kept = [each for entry in one["entries"] for each in entry["msgs"] if not each["deleted"]]
    return {"entries": {each["id"]: each["fields"] for each in kept}, "last": one["lastId"], "groups": groups}


_HDT: dict[str, Callable[[Any], Any]] = {
    "string": lambda one: one["value"],
    "list": lambda one: one["values"],
    "set": lambda one: sorted(one["members"]),
    "hash": lambda one: one["hash"],
    "zset": lambda one: {each["member"]: float(each["score"]) for each in one["entries"]},
    "stream": _hdt_stream,
}


def _plain(value: Value, decoded: Callable[[bytes], str]) -> Any:
    data = value.data
    if value.type == "string":
        return decoded(data)
    if value.type == "list":
        return list(map(decoded, data))
    if value.type == "set":
        return sorted(map(decoded, data))
    if value.type == "zset":
        return {decoded(name): score for name, score in data.items()}
    if value.type == "hash":
        return {decoded(name): decoded(one) for name, one in data.items()}
    return {**data, "entries": {id: {decoded(n): decoded(v) for n, v in one} for id, one in data["entries"].items()}}


def by_value(path: Path, seen: Seen, expired: int, *, partly: bool = False) -> None:
    """rdb-rs's and librdb's JSON: an object, or one for each database, with nothing but values."""
    objects = _objects(path.read_text())
    libraries = {code for one in objects for code in one.get("__func__", {}).values()}
    assert set(seen.libraries) == libraries
    wanted = [{key: value for key, value in one.items() if not key.startswith("__")} for one in objects]
    databases = sorted({db for db, _ in seen.keys})
    gone = 0
    for number, keys in enumerate(wanted):
        db = databases[number] if number < len(databases) else None
        found = {byte_by_byte(key): value for (of, key), value in seen.keys.items() if of == db}
        assert partly or set(found) <= set(keys)
        gone += len(set(keys) - set(found))
        for key in set(found) & set(keys):
            assert _plain(found[key], byte_by_byte) == _like(keys[key], found[key].type), key
    assert len(databases) <= len(wanted)
    assert gone == (0 if partly else expired)


def by_value_alive(path: Path, seen: Seen, expired: int) -> None:
    """The same without what had expired."""
    by_value(path, seen, 0)


def by_value_part(path: Path, seen: Seen, expired: int) -> None:
    by_value(path, seen, expired, partly=True)


def _objects(raw: str) -> list[dict[str, Any]]:
    whole = json.loads(raw) if raw.lstrip().startswith("[") else [json.loads("{" + raw + "}")]
    return list(whole)


def _like(value: Any, kind: str) -> Any:
    """Of a sorted set the scores are text there, of a set the order counts, of a stream there may be no more than its
    entries."""
    if kind == "zset":
        return {name: float(score) for name, score in value.items()}
    if kind == "set":
        return sorted(value)
    if kind != "stream":
        return value
    return _Stream(value)


class _Stream:
    """Equal to what was seen as far as the content beside it goes."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._wanted = wanted

    def __eq__(self, seen: object) -> bool:
        assert isinstance(seen, dict)
        assert seen["entries"] == {one["id"]: one["items"] for one in self._wanted["entries"]}
        if "lastID" not in self._wanted:
            return True
        assert seen["last"] == self._wanted["lastID"]
        groups = {}
        for one in self._wanted["groups"]:
            owner = {each["id"]: by["name"] for by in one["consumers"] for each in by.get("pending", ())}
            waiting = {each["id"]: (owner[each["id"]], each["count"]) for each in one["pending"]}
            groups[one["name"]] = (one["lastid"], waiting)
        assert seen["groups"] == groups
        return True

    __hash__ = None  # type: ignore[assignment]


def module(path: Path, seen: Seen, expired: int) -> None:
    """Of a value of a module there is but a description: it must not be seen as anything."""
    assert set(_objects(path.read_text())[0]) == {"key1"}
    assert seen.keys == {}


def csv_report(path: Path, seen: Seen, expired: int) -> None:
    """A memory report of HDT3213: keys, types, counts of elements, expiries."""
    with path.open() as file:
        wanted = {(int(row["database"]), row["key"]): row for row in csv.DictReader(file)}
    found = {(db, text(key)): value for (db, key), value in seen.keys.items()}
    for place in set(wanted) & set(found):
        value, row = found[place], wanted[place]
        assert value.type == row["type"]
        assert value.type in ("string", "stream") or len(value.data) == int(row["element_count"])
    assert set(found) <= set(wanted)
    assert len(set(wanted) - set(found)) == expired


def csv_report_alive(path: Path, seen: Seen, expired: int) -> None:
    """The same without what had expired."""
    csv_report(path, seen, 0)


def csv_prefixes(path: Path, seen: Seen, expired: int) -> None:
    """A report of HDT3213 on prefixes: how many keys begin with each."""
    with path.open() as file:
        for row in csv.DictReader(file):
            keys = [key for db, key in seen.keys if db == int(row["database"])]
            assert sum(text(key).startswith(row["prefix"]) for key in keys) == int(row["key_count"]), row


def commands(path: Path, seen: Seen, expired: int, scratch: str) -> None:
    """An append-only file: sent to an empty server, it makes the same content."""
    with redis.Redis.from_url(scratch, protocol=2) as client:
        client.flushall()
        for words in _commands(path.read_bytes()):
            client.execute_command(*words)
    made = through_server(scratch)
    assert {place: (one.type, one.data, one.expires, one.fields) for place, one in made.keys.items()} == {
        place: (one.type, one.data, one.expires, one.fields) for place, one in seen.keys.items()
    }


def _commands(raw: bytes) -> list[list[bytes]]:
    found, at = [], 0

    def number(mark: bytes) -> int:
        nonlocal at
        end = raw.index(b"\r\n", at)
        assert raw[at : at + 1] == mark
        value, at = int(raw[at + 1 : end]), end + 2
        return value

    while at < len(raw):
        words = []
        for _ in range(number(b"*")):
            size = number(b"$")
            words.append(raw[at : at + size])
            at += size + 2
        found.append(words)
    return found
