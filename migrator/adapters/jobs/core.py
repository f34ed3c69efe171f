"""The steps of `Jobs`: one script call where only hashes are left; elsewhere a job is read, changed and committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from migrator.adapters.bridge import Answer, Bridge
from migrator.adapters.core import Patience, Steps
from migrator.adapters.jobs import rules
from migrator.adapters.jobs.model import (
    Code,
    Deleted,
    Done,
    Fields,
    Job,
    NotDone,
    PassedOver,
    Recovered,
    SetAside,
    id_of,
    read_aside,
)
from migrator.adapters.jobs.rules import Changed, Operation
from migrator.adapters.outcomes import UnfitError
from migrator.adapters.window import anew, page_from, scan
from migrator.client import Arg
from migrator.errors import Unmappable, UsageError
from migrator.moves import KeyMove
from migrator.moves.family import Pair
from migrator.moves.values import from_items
from migrator.records.job.edit import edit_job
from migrator.records.scores import format_score

_STUCK_PAGE = 100
_TRIES = 3
_NOT_RUNNING = (Code.JOB_NOT_FOUND, Code.WRONG_STATUS)
_GONE = tuple(code.value for code in _NOT_RUNNING)  # from the index of those in progress
_CODES = {b"none": Code.JOB_NOT_FOUND, b"exists": Code.JOB_CREATE_FAILED, b"unmoved": Code.UNMOVED}


@dataclass(frozen=True, slots=True)
class Read:
    """A job as step one read it: its items, to be compared, and what they mean in the shape of the hash."""

    pair: Pair
    epoch: int
    new: bool
    items: Sequence[bytes]
    job: Fields | None


class JobsCore:
    """The steps of each method but those of claim."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge, self._family = bridge, bridge.family
        move = bridge.move
        assert isinstance(move, KeyMove)
        kinds = self._family.kinds
        if kinds != {"old": "string", "new": "hash"} or len(move.source.captures) != 1 or len(move.indexes) != 2:
            raise UsageError(
                f"{bridge.id} is no move of jobs: from a string to a hash, named by one id, "
                "with the queue and the jobs in progress as its two indexes",
                next="use Records",
            )
        self._capture = move.source.captures[0]
        self.queue, self.running = (index.keys.format({}) for index in move.indexes)
        bridge.check_beside(self.queue, self.running)
        self.indexes = (self.queue, self.running, bridge.beside("aside", self.queue))

    def pair(self, id: bytes) -> Pair:
        return self.bridge.pair({self._capture: id})

    def ask(self, pairs: Sequence[Pair], name: str, args: Sequence[Arg], *, writes: bool) -> Steps[Answer]:
        key = pairs[0].old if pairs else self.queue
        return (yield from self.bridge.ask_beside(key, self.indexes, pairs, name, args, writes=writes))

    def get(self, id: bytes) -> Steps[Done | NotDone]:
        pair = self.pair(id)
        answer = yield from self.bridge.ask(pair, "adapter_get", (), writes=False)
        what, *found = answer.rest
        if what in _CODES:
            return NotDone(_CODES[what], answer.epoch)
        try:
            job = self.mapped(pair, new=what == b"new", items=found[1], raw=True)
            rules.check(job, id)
        except Unmappable:
            return NotDone(Code.DESERIALIZATION_ERROR, answer.epoch)
        return Done(Job(job), answer.epoch)

    def mapped(self, pair: Pair, *, new: bool, items: Sequence[bytes], raw: bool = False) -> Fields:
        """The hash that belongs to a record in either shape; a hash is made whole first, but for `raw`.
        Raises Unmappable."""
        value = from_items("hash" if new else "string", items)
        if not (new and raw):
            old = self._family.unmap_key(pair, value) if new else value
            value, _ = self._family.map_key(pair, old)
        return cast(Fields, value)

    def do(self, id: bytes, operation: Operation) -> Steps[Done | NotDone]:
        """One operation on one job, again while the job or the phase changes in the middle."""
        pair, patience, tries = self.pair(id), Patience(), 0
        while True:
            tries += 1
            answer = yield from self.ask((pair,), "adapter_jobs_do", (id, *operation.args()), writes=True)
            micros, word, *more = answer.rest
            if word == b"done":
                return Done(Job(from_items("hash", more[0])), answer.epoch)
            if word in _CODES:
                return NotDone(_CODES[word], answer.epoch)
            if word != b"read":
                return NotDone(Code(word.decode()), answer.epoch)
            done = yield from self._second(pair, answer.epoch, operation, int(micros), more)
            if done.__class__ is Done or cast(NotDone, done).code is not Code.RETRY:
                return done
            if not patience.spent:
                yield from patience.wait("the job or the phase is changing")
            elif tries >= _TRIES:  # not the first time: a process that was stopped for so long has only begun
                return done

    def _second(
        self, pair: Pair, epoch: int, operation: Operation, micros: int, more: Sequence[Any]
    ) -> Steps[Done | NotDone]:
        shape, items, since = more
        try:
            job = self.mapped(pair, new=shape == b"new", items=items) if items else None
        except Unmappable:
            return NotDone(Code.DESERIALIZATION_ERROR, epoch)
        changed = rules.apply(operation, job, micros, None if since is None else float(since))
        read = Read(pair, epoch, shape == b"new", items, job)
        if not isinstance(changed, Code):
            return (yield from self.commit(read, changed, b""))
        if operation.stuck is not None and changed in _NOT_RUNNING:
            done = yield from self.shelve(read, pair.key[self._capture], "drop", None)
            return NotDone(changed if done else Code.RETRY, epoch)
        return NotDone(changed, epoch)

    def commit(self, read: Read, changed: Changed, taken: bytes) -> Steps[Done | NotDone]:
        """Step two; RETRY if anything is not as it was read. `taken`: the queue's member it was found by.

        Raises Unmappable for a change that the mapping does not take."""
        pair, family = read.pair, self._family
        if read.new or read.job is None:
            old = family.unmap_key(pair, changed.fields)
        else:
            old = edit_job(read.items[0], read.job, changed.fields)
        new, _ = family.map_key(pair, old)
        news = [word for item in new.items() for word in item]
        args: list[Arg] = [
            read.epoch, pair.key[self._capture], taken, _score(changed.queue), _score(changed.running), changed.before,
            len(read.items), *read.items, 1, old, len(news), *news,
        ]  # fmt: skip
        answer = yield from self.ask((pair,), "adapter_jobs_commit", args, writes=True)
        word = answer.rest[0]
        if word == b"done":
            return Done(Job(new), answer.epoch)
        return NotDone(_CODES.get(word, Code.RETRY), answer.epoch)

    def shelve(self, read: Read, member: bytes, why: str, score: float | None) -> Steps[bool]:
        """Takes a member out of the way, or gives it the score it should have; False if the job is not as read."""
        args: list[Arg] = [read.epoch, member, why, _score(score), len(read.items), *read.items]
        answer = yield from self.ask((read.pair,), "adapter_jobs_shelve", args, writes=True)
        return bool(answer.rest[0] == b"done")

    def delete(self, id: bytes) -> Steps[Deleted | NotDone]:
        answer = yield from self.ask((self.pair(id),), "adapter_jobs_delete", (id,), writes=True)
        word = answer.rest[0]
        return Deleted(answer.epoch) if word == b"done" else NotDone(_CODES[word], answer.epoch)

    def recover(self, seconds: float, retry_ms: int, limit: int) -> Steps[Recovered]:
        """Pass by pass over those in progress for so long; what stays in the index is passed over."""
        operation, found, stays = rules.recover(seconds, retry_ms), Recovered(), 0
        late: set[bytes] = set()
        while len(found) < limit:
            page = min(_STUCK_PAGE, limit - len(found))
            answer = yield from self.ask((), "adapter_jobs_stuck", (repr(seconds), stays, page), writes=False)
            for member in answer.rest[0]:
                done = yield from self._recover_one(member, operation)
                if isinstance(done, Job):
                    found.append(done)
                elif done == Code.NOT_STUCK.value and member not in late:
                    late.add(member)  # begun anew meanwhile, it is not among them; it stays if it comes a second time
                elif done not in _GONE:
                    stays += 1
                    if done != Code.NOT_STUCK.value:
                        found.passed_over.append(PassedOver(member, done))
            if len(answer.rest[0]) < page:
                break
        return found

    def _recover_one(self, member: bytes, operation: Operation) -> Steps[Job | str]:
        """The job, or why not. What is wrong with one is no reason to leave the others."""
        if id_of(member) != member:
            return "junk"
        try:
            done = yield from self.do(member, operation)
        except Unmappable:
            return Code.DESERIALIZATION_ERROR.value
        except UnfitError as error:
            return error.why
        return done.job if isinstance(done, Done) else done.code.value

    def set_aside(self) -> Steps[list[SetAside]]:
        def ask(cursor: int) -> Steps[Answer]:
            return self.ask((), "adapter_jobs_aside", ("page", *page_from(cursor)), writes=False)

        def walk() -> Steps[list[SetAside]]:
            found: dict[bytes, bytes] = {}
            first = yield from ask(0)
            yield from scan(ask, self.indexes[2], first, lambda page: found.update(from_items("hash", page)))
            return read_aside(found)

        return (yield from anew(walk))

    def put_back(self, member: bytes) -> Steps[bool]:
        answer = yield from self.ask((), "adapter_jobs_aside", ("back", member), writes=True)
        return bool(answer.rest[0])


def _score(score: float | None) -> bytes:
    return b"" if score is None else format_score(score)
