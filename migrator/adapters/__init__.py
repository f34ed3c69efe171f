"""What applications import: they read and write the new shape while a migration is under way, whatever its phase.

An adapter never acts on a phase it remembers: every call is a script that reads the marker and acts on it in the same
step. `Records` is for a KeyMove, `Members` for a MemberMove, `Timestamps` for a hash of ticks that becomes a sorted
set, `Jobs` for a job store whose JSON becomes hashes; `MemoryJobs` is `Jobs` without Redis. Each has an Async twin.
Deletions of members are counted in the marker while a backfill runs, which then compares what it planned before.
"""

from migrator.adapters.jobs.jobs import AsyncJobs, Jobs
from migrator.adapters.jobs.memory import AsyncMemoryJobs, MemoryJobs
from migrator.adapters.jobs.model import Code, Deleted, Done, Job, NotDone, PassedOver, Recovered, SetAside
from migrator.adapters.members import AsyncMembers, Members
from migrator.adapters.outcomes import KEEP, Batch, Found, Keep, Missing, Removed, UncertainError, Unmoved, Written
from migrator.adapters.records import AsyncRecords, Records
from migrator.adapters.timestamps import AsyncTimestamps, Timestamps
from migrator.adapters.timestamps_core import Mark, Stamp
from migrator.moves.loader import load
from migrator.phases.announced import PROTOCOL, Announced, announced

__all__ = [
    "KEEP", "PROTOCOL", "Announced", "AsyncJobs", "AsyncMembers", "AsyncMemoryJobs", "AsyncRecords", "AsyncTimestamps",
    "Batch", "Code", "Deleted", "Done", "Found", "Job", "Jobs", "Keep", "Mark", "Members", "MemoryJobs", "Missing",
    "NotDone", "PassedOver", "Records", "Recovered", "Removed", "SetAside", "Stamp", "Timestamps", "UncertainError",
    "Unmoved", "Written", "announced", "load",
]  # fmt: skip
