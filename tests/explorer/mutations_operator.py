"""The same for what restore and `--foreign` stand on.

Not here:
- that the truth is still what was mapped: with `--foreign` the copy is compared too, and adapters write both.
- that a RENAMENX is left out where its key has expired: nothing expires here, see tests/test_restore.py.
- that members which are there stay as they are: a collection is put together under a name of its own, and only what
  was accepted member by member is put into one that is there.
"""

from __future__ import annotations

from tests.explorer import cases
from tests.explorer.case import Case
from tests.explorer.cases_operator import contracted_again, rewritten
from tests.explorer.mutation import Mutation
from tests.explorer.scene import Change


def _foreign(move: str, truth: str, other: str, change: Change) -> Case:
    return Case(move, "switched", (f"foreign {truth}", other), change=change, unsettled=True)


_MEMBERS_EXPIRY = "if fresh and ARGV[6] ~= '-1' then redis.call('PEXPIREAT', key, ARGV[6]) end\n"
_EXPIRY = "if ARGV[6] ~= '-1' then redis.call('PEXPIREAT', KEYS[2], ARGV[6]) end\n"

MUTATIONS = (
    Mutation("copy: the copy as it was seen",
             "elseif n3 > 0 and not (copy_is == kind2 and same(copy, kind2, first3, n3)) then code = 3\n", "\n",
             _foreign("key", "new", "old write", rewritten)),
    Mutation("copy: that there was no copy", "elseif n3 == 0 and copy_is ~= 'none' then code = 3\n", "\n",
             _foreign("swap", "new", "old write", cases.deleted)),
    Mutation("copy of members: the copy as it was seen", "return equal(kind, value, ARGV[i + 5])", "return true",
             _foreign("members", "new", "old write", rewritten)),
    Mutation("copy of members: that there was no copy", "if ARGV[i + 4] == 'none' then return not value end",
             "if ARGV[i + 4] == 'none' then return true end", _foreign("members", "new", "old write", cases.deleted)),
    Mutation("drop: that there is no truth, for --foreign",
             "redis.call('EXISTS', KEYS[k]) == 0 and redis.call('UNLINK', KEYS[k + 1]) or 0",
             "redis.call('UNLINK', KEYS[k + 1])", _foreign("jobs", "old", "update", cases.deleted)),
    Mutation("drop of members: that there is no truth, for --foreign", "if not there[j] then gone", "if true then gone",
             _foreign("members", "old", "set", cases.deleted)),
    Mutation("adapters: a restore is under way", "if phase == 'closed' then return nil, {'closed'} end\n", "",
             Case("key", "swept", ("restore", "set"))),
    Mutation("put: that nothing is there", "if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end\n", "",
             Case("key", "reverting", ("restore", "get"), change=contracted_again)),
    Mutation("put: the expiry", _EXPIRY, "", Case("key", "swept", ("restore", "get"), "mortal")),
    Mutation("put of members: the expiry", _MEMBERS_EXPIRY, "",
             Case("members", "swept", ("restore", "get"), "mortal")),
    Mutation("guard: the epoch of a restore", "if m[2] ~= ARGV[2] or not string", "if not string",
             Case("key", "swept", ("restore", "late discard"))),
)  # fmt: skip
