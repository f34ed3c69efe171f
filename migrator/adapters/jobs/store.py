"""The methods of a job store, for all that keep one: what is said is checked here, the steps are a core's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, TypeVar

from migrator.adapters.core import Steps
from migrator.adapters.jobs import words
from migrator.adapters.jobs.model import Deleted, Done, Id, Job, NotDone, Recovered, SetAside, guid
from migrator.adapters.jobs.rules import Operation
from migrator.adapters.jobs.words import Seconds, Text

R = TypeVar("R")


class Core(Protocol):
    """The steps of each method; ids and workers are guids in lower case."""

    def get(self, id: bytes) -> Steps[Done | NotDone]: ...
    def do(self, id: bytes, operation: Operation) -> Steps[Done | NotDone]: ...
    def claim(self, worker: bytes) -> Steps[Done | NotDone]: ...
    def claim_many(self, worker: bytes, most: int) -> Steps[list[Job]]: ...
    def recover(self, seconds: float, retry_ms: int, limit: int) -> Steps[Recovered]: ...
    def delete(self, id: bytes) -> Steps[Deleted | NotDone]: ...
    def set_aside(self) -> Steps[list[SetAside]]: ...
    def put_back(self, member: bytes) -> Steps[bool]: ...


class Store:
    """What `Jobs` and `MemoryJobs` have in common."""

    _core: Core

    def _run(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    def get(self, id: Id) -> Done | NotDone:
        """The job. JOB_NOT_FOUND, UNMOVED, DESERIALIZATION_ERROR."""
        return self._run(self._core.get(guid(id)))

    def create(
        self,
        id: Id,
        name: str,
        payload: Text = b"",
        *,
        headers: Text = b"{}",
        route_params: Text = b"{}",
        query_params: Text = b"[]",
        max_retries: int = 3,
        due: datetime | None = None,
    ) -> Done | NotDone:
        """A new job, in the queue in the same step: queued (100), or scheduled (200) if `due` says when.

        `headers`, `route_params` and `query_params` are JSON. JOB_CREATE_FAILED where there is one with that id."""
        return self._run(
            self._core.do(*words.created(id, name, payload, headers, route_params, query_params, max_retries, due))
        )

    def update(self, id: Id, changes: Mapping[str, Text], *, version: int) -> Done | NotDone:
        """Sets fields of the hash, by name (`{"Name": "other", "Status": "100"}`), if the version is still `version`.

        The indexes follow the new status; times are set by the server. VERSION_CONFLICT where somebody was quicker."""
        return self._run(self._core.do(*words.updated(id, changes, version)))

    def claim(self, worker: Id) -> Done | NotDone:
        """The job that has been due longest, in progress (300) and this worker's from now on; JOB_NOT_CLAIMED.

        What cannot be claimed does not block the queue: see `set_aside`. An *unmoved* job is passed over and stays."""
        return self._run(self._core.claim(words.worker_of(worker)))

    def claim_many(self, worker: Id, most: int) -> list[Job]:
        """Up to `most` of them, the longest due first; fewer, or none, where no more are due.

        It takes several steps: where an error comes in the middle, it says so, and `recover` finds those that were
        claimed."""
        return self._run(self._core.claim_many(words.worker_of(worker), words.limit_of(most)))

    def claim_job(self, id: Id, worker: Id) -> Done | NotDone:
        """One job by its id. ALREADY_ASSIGNED, WRONG_STATUS, RETRY_DELAY where it is not due, JOB_NOT_FOUND."""
        return self._run(self._core.do(*words.taken(id, worker)))

    def complete(self, job: Job, result: Text | None = None) -> Done | NotDone:
        """Completed (400), if it is still this worker's and as `job` says: pass the job as claim or update gave it.

        ALREADY_ASSIGNED, WRONG_STATUS or VERSION_CONFLICT where it was recovered, or given to another, meanwhile."""
        return self._run(self._core.do(*words.completed(job, result)))

    def fail(self, job: Job, error: str, *, code: str = "UNKNOWN", retry_in: Seconds | None = None) -> Done | NotDone:
        """Failed (500); or scheduled (200) again in `retry_in` seconds, if that is given and retries are left.

        Refused as `complete` is."""
        return self._run(self._core.do(*words.failed(job, error, code, retry_in)))

    def cancel(self, id: Id, *, version: int | None = None) -> Done | NotDone:
        """Canceled (600), if it is waiting or in progress; whoever works on it is refused later. WRONG_STATUS."""
        return self._run(self._core.do(*words.canceled(id, version)))

    def recover(self, stuck_for: Seconds, *, retry_in: Seconds = 0, limit: int = 100) -> Recovered:
        """Jobs in progress for `stuck_for` seconds or longer, at most `limit`, as they are now: scheduled again in
        `retry_in` seconds, or failed where no retry is left. Their workers can no longer complete them. Only those in
        the index of jobs in progress are found; whole seconds count. A member that is no job, or cannot be read or
        changed, does not keep the others: it stays in that index, and `passed_over` of the list names it."""
        return self._run(
            self._core.recover(
                words.millis(stuck_for, "stuck_for") / 1000, words.millis(retry_in, "retry_in"), words.limit_of(limit)
            )
        )

    def delete(self, id: Id) -> Deleted | NotDone:
        """Removes a job in every shape, whatever its status. JOB_NOT_FOUND, UNMOVED."""
        return self._run(self._core.delete(guid(id)))

    def set_aside(self) -> list[SetAside]:
        """Members that were taken out of the queue because they could not be claimed, the oldest first. They lie in the
        hash `<namespace>:aside:<migration>:{…}` beside the queue."""
        return self._run(self._core.set_aside())

    def put_back(self, member: bytes) -> bool:
        """Puts such a member back into the queue with the score it had; False if it is not set aside."""
        return self._run(self._core.put_back(member))


class AsyncStore:
    """The same, awaited."""

    _core: Core

    async def _run(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    async def get(self, id: Id) -> Done | NotDone:
        """See `Jobs.get`."""
        return await self._run(self._core.get(guid(id)))

    async def create(
        self,
        id: Id,
        name: str,
        payload: Text = b"",
        *,
        headers: Text = b"{}",
        route_params: Text = b"{}",
        query_params: Text = b"[]",
        max_retries: int = 3,
        due: datetime | None = None,
    ) -> Done | NotDone:
        """See `Jobs.create`."""
        return await self._run(
            self._core.do(*words.created(id, name, payload, headers, route_params, query_params, max_retries, due))
        )

    async def update(self, id: Id, changes: Mapping[str, Text], *, version: int) -> Done | NotDone:
        """See `Jobs.update`."""
        return await self._run(self._core.do(*words.updated(id, changes, version)))

    async def claim(self, worker: Id) -> Done | NotDone:
        """See `Jobs.claim`."""
        return await self._run(self._core.claim(words.worker_of(worker)))

    async def claim_many(self, worker: Id, most: int) -> list[Job]:
        """See `Jobs.claim_many`."""
        return await self._run(self._core.claim_many(words.worker_of(worker), words.limit_of(most)))

    async def claim_job(self, id: Id, worker: Id) -> Done | NotDone:
        """See `Jobs.claim_job`."""
        return await self._run(self._core.do(*words.taken(id, worker)))

    async def complete(self, job: Job, result: Text | None = None) -> Done | NotDone:
        """See `Jobs.complete`."""
        return await self._run(self._core.do(*words.completed(job, result)))

    async def fail(
        self, job: Job, error: str, *, code: str = "UNKNOWN", retry_in: Seconds | None = None
    ) -> Done | NotDone:
        """See `Jobs.fail`."""
        return await self._run(self._core.do(*words.failed(job, error, code, retry_in)))

    async def cancel(self, id: Id, *, version: int | None = None) -> Done | NotDone:
        """See `Jobs.cancel`."""
        return await self._run(self._core.do(*words.canceled(id, version)))

    async def recover(self, stuck_for: Seconds, *, retry_in: Seconds = 0, limit: int = 100) -> Recovered:
        """See `Jobs.recover`."""
        return await self._run(
            self._core.recover(
                words.millis(stuck_for, "stuck_for") / 1000, words.millis(retry_in, "retry_in"), words.limit_of(limit)
            )
        )

    async def delete(self, id: Id) -> Deleted | NotDone:
        """See `Jobs.delete`."""
        return await self._run(self._core.delete(guid(id)))

    async def set_aside(self) -> list[SetAside]:
        """See `Jobs.set_aside`."""
        return await self._run(self._core.set_aside())

    async def put_back(self, member: bytes) -> bool:
        """See `Jobs.put_back`."""
        return await self._run(self._core.put_back(member))
