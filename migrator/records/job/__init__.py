"""The AsyncEndpoints job: from one JSON string, as three eras of the library wrote it, to a hash, and back.

    era  names       a failed job carries                       written in 2025
    A    PascalCase  `Exception`: text or null                  09-27
    B    camelCase   `exception`: text or null                  09-27 to 10-02
    C    camelCase   `error`: {code, message, exception} or null  10-02 to 10-04

The hash has the 17 fields of the library in its order, then `StartedAtUnix` and `Version` where they apply, then
properties nobody knows, under their own names. Of those, a string is stored as its text and any other value as
its JSON; a string whose text is itself JSON keeps its quotes, so `5` and `"5"` stay apart on the way back.
"""

from __future__ import annotations

from migrator.records.job.reader import lost, read_hash
from migrator.records.job.to_hash import hash_from_json
from migrator.records.job.to_json import json_from_hash

__all__ = ["LOSSES", "hash_from_json", "json_from_hash", "lost", "read_hash"]

LOSSES: tuple[str, ...] = (
    "The era: names come back in camelCase, in the order the library declares them, unknown ones last.",
    "Spaces between values, and how text was escaped: only what JSON demands is escaped.",
    "Null against empty text: Name and Payload come back empty, Result and WorkerId null.",
    "A failure that was only text comes back as an error object with the code UNKNOWN.",
    "A property that was absent comes back with the library's default, an absent LastUpdatedAt as CreatedAt.",
    "A property that came twice comes back once, with its last value; of Error and Exception one comes back.",
    "A status that was a name or a quoted number comes back as a number.",
    "How a date was spelled, and its fraction digits beyond the seventh; without a zone it comes back in UTC.",
    "The zone of RetryDelayUntil: it comes back in UTC.",
    "StartedAtUnix is left out where StartedAt says the same or where it was no whole number, a null Version always.",
    "isCanceled is derived from the status.",
)
"""What json_from_hash cannot give back after hash_from_json."""
