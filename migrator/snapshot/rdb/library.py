"""The other way: an RDB file that no server at hand loads, read with the library rdb-py.

It sees strings, lists, sets, sorted sets and hashes of Redis's versions 1 to 13. It leaves streams and values of
modules out without a word, gives the fields of a hash without their expiry, and compares no checksum: so the file is
checked first, and what it announces is compared with what was seen.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.errors import UsageError
from migrator.models import number_of
from migrator.snapshot import embedded
from migrator.snapshot.ndjson import Line
from migrator.snapshot.rdb import apart, crc64, programs
from migrator.snapshot.rdb.header import OTHER, OTHER_COPY, Header, read_header
from migrator.snapshot.rdb.programs import Program, Refusal
from migrator.snapshot.rdb.server import Report

if TYPE_CHECKING:
    import rdb

INSTALL = "install the extra `rdb` of this project: pip install '.[rdb]' in its checkout"
_PAGE = 1000  # items of a large collection on one line
_FIELD_EXPIRIES = 12  # the first version that has any


@dataclass(frozen=True, slots=True)
class Survey:
    """What rdb-py saw: keys, how many the file announces (None: it does not), the bytes behind the end mark."""

    keys: int
    announced: int | None
    tail: bytes
    behind: int


def installed() -> bool:
    return importlib.util.find_spec("rdb") is not None


def examine(path: Path, at_hand: Sequence[Program] = ()) -> Report:
    """Read the whole file once, so that nothing of a damaged one is ever used. Expired keys are among its `keys`.

    Raises UsageError for a file that is damaged, or that the library cannot read.
    """
    header = read_header(path)
    if header.valkey:
        raise UsageError(f"{path} is {header}, which only Valkey reads", next="give a valkey-server with --server BIN")
    checked, doubts = _check(path, at_hand)
    survey = _survey(path, doubts)
    notes = [] if checked else list(_compare(path, header, survey))
    if header.checksummed and survey.behind > 8:
        notes.append("bytes behind the end of the RDB were not read")
    hidden = _hidden(path, survey)
    return Report("rdb-py", survey.keys, 0, hidden or 0, (*notes, *_cannot_see(header, hidden)))


def _check(path: Path, at_hand: Sequence[Program]) -> tuple[bool, list[Refusal]]:
    """Whether a program's checker found the checksum right, else why each could not say.

    Raises UsageError where one finds the file damaged.
    """
    doubts: list[Refusal] = []
    for program in at_hand:
        verdict = programs.check(program, path)
        if verdict.refusal is None:
            return verdict.checksum, []
        if not verdict.refusal.unknown:
            raise UsageError(f"{path} is refused: {verdict.refusal}", next=OTHER)
        doubts.append(verdict.refusal)
    return False, doubts


def _survey(path: Path, doubts: Sequence[Refusal]) -> Survey:
    if not installed():
        raise UsageError("the library rdb-py, which reads RDB files without a server, is not installed", next=INSTALL)
    program, seconds = Path(__file__).with_name("survey.py"), embedded.patience(path.stat().st_size)
    # -P: a file beside the program must not stand in for a module it imports.
    status, told = apart.run(Path(sys.executable), "-P", str(program), str(path), seconds=seconds)
    last = (told.strip().splitlines() or [""])[-1]
    if status == 0:
        seen = json.loads(last)
        return Survey(seen["keys"], seen["announced"], bytes.fromhex(seen["tail"]), seen["behind"])
    reasons = {None: "it came to no end", 1: last}
    reason = Refusal("rdb-py", reasons.get(status, "it asks for more memory than there is"), unknown=False)
    raise UsageError(f"{path} is refused: {'; '.join(map(str, [*doubts, reason]))}", next=OTHER)


def _compare(path: Path, header: Header, survey: Survey) -> Iterator[str]:
    if not header.checksummed:
        yield f"integrity unchecked: {header} has no checksum"
        return
    if len(survey.tail) < 8:
        raise UsageError(f"{path} is cut off: its checksum is not whole", next=OTHER_COPY)
    wanted = int.from_bytes(survey.tail, "little")
    if wanted == 0:
        yield "integrity unchecked: the file was saved without a checksum"
    elif crc64.of_file(path, header.size - survey.behind) != wanted:
        raise UsageError(f"{path} is damaged: its checksum is another one", next=OTHER_COPY)


def _hidden(path: Path, survey: Survey) -> int | None:
    """Keys that the file announces and rdb-py left out; None where the file announces nothing."""
    if survey.announced is None:
        return None
    if survey.announced < survey.keys:
        announced = number_of(survey.announced, "key")
        raise UsageError(f"{path} is damaged: it announces {announced} and holds {survey.keys:,}", next=OTHER_COPY)
    return survey.announced - survey.keys


def _cannot_see(header: Header, hidden: int | None) -> Iterator[str]:
    if hidden:
        yield f"not visible to rdb-py: {number_of(hidden, 'key')}, streams or values of modules"
    elif hidden is None and header.version >= 8:
        yield "the file does not say how many keys it holds: streams and values of modules would be left out unseen"
    if header.version >= _FIELD_EXPIRIES:
        yield "not visible to rdb-py: expiries of single fields; a field that has one would stay for ever"


def lines(path: Path) -> Iterator[Line]:
    """What rdb-py sees of a file that `examine` has found whole. Expired keys are among it.

    Holds one key in memory at a time, whatever its size.
    """
    import rdb  # noqa: PLC0415 - an extra

    db = 0
    for item in rdb.RdbDecoder(path):
        if item["type"] == "select_db":
            db = item["db"]
        elif item["type"] not in ("resize_db", "aux_field", "checksum"):
            yield from _parts(_line(db, item))


def _line(db: int, item: rdb.Item) -> Line:
    if item["type"] == "string":
        return Line(db, item["key"], "string", item["expiry"], [item["value"]])
    if item["type"] == "list":
        return Line(db, item["key"], "list", item["expiry"], item["values"])
    if item["type"] == "set":
        return Line(db, item["key"], "set", item["expiry"], item["members"])
    if item["type"] == "hash":
        flat = [word for pair in item["values"].items() for word in pair]
        return Line(db, item["key"], "hash", item["expiry"], flat)
    if item["type"] == "sorted_set":
        flat = [word for score, member in item["values"] for word in (member, _score(score))]
        return Line(db, item["key"], "zset", item["expiry"], flat)
    raise UsageError(f"rdb-py tells of a {item['type']!r}, which is unknown", next=INSTALL)


def _score(score: float) -> bytes:
    """As a server prints it: the shortest that gives the same double, a whole number without a fraction."""
    return repr(score).removesuffix(".0").encode()


def _parts(line: Line) -> Iterator[Line]:
    if line.kind == "string":
        yield line
        return
    step = 2 * _PAGE if line.kind in ("hash", "zset") else _PAGE
    for part, begin in enumerate(range(0, len(line.items), step)):
        yield Line(line.db, line.key, line.kind, line.expires_at, line.items[begin : begin + step], part)
