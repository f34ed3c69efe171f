"""The same for the scripts of `Jobs`, and the repair of indexes.

Not here, because leaving them out changes nothing an application or the tool could see:
- the epoch in the second step, and in what takes a head out of the way: the job is compared with what is the truth by
  then, and no other shape passes for the one that was read.
- that a job is nobody's, or this worker's, before its status is looked at: only the code is another one. And that one
  in progress has a worker at all: none of these actors makes one without.
- that a repair of an index leaves a score that is there: whoever puts a member there writes its job too, and then the
  repair writes nothing.
"""

from __future__ import annotations

from tests.explorer import cases_jobs
from tests.explorer.case import Case
from tests.explorer.mutation import Mutation


def _pair(phase: str, one: str, other: str, record: str = "there") -> Case:
    return Case("jobs", phase, (one, other), record)


def _unmoved(operation: str, phase: str = "switched") -> Case:
    return Case("jobs", phase, ("stage", operation), "absent", change=cases_jobs.written, unsettled=True)


_STATUS = (
    "if op.statuses ~= '' and not string.find(op.statuses, ',' .. job.Status .. ',', 1, true) "
    "then return 'WRONG_STATUS' end\n"
)
_WORKER = "  if op.worker ~= '-' and worker ~= op.worker then return 'ALREADY_ASSIGNED' end\n"
_VERSION = "if op.version ~= '' and op.version ~= job.Version then return 'VERSION_CONFLICT' end\n"

MUTATIONS = (
    # The second step of an operation.
    Mutation("commit: the job that was read", "if not (as_read and there)", "if not there",
             _pair("expanded", "claim", "cancel")),
    Mutation("commit: that there is none to create", "n == 0 and type == 'none' or n > 0",
             "n == 0 or n > 0", _pair("expanded", "create", "create", "absent")),
    Mutation("commit: that it is still in the queue", "if not (as_read and there)", "if not as_read",
             _pair("expanded", "old claim", "claim")),
    Mutation("commit: what is unmoved", "'retry'} end\nif type == 'none' and r.left then return {'ok', phase, epoch, "
             "'unmoved'} end\n", "'retry'} end\n",
             Case("jobs", "switched", ("old write", "create"), "absent", unsettled=True)),
    Mutation("commit: the copy", "if r.copy then shape(r.copy, r.copy_kind, not r.new) end\nfollow",
             "follow", _pair("switched", "rollback to expanded", "claim")),
    Mutation("commit: the expiry that was", "local at, old = math.max(expiry(r.truth), -1), 13 + n",
             "local at, old = -1, 13 + n", _pair("expanded", "stage", "cancel", "mortal")),
    Mutation("commit: the indexes", "follow(ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11])\n", "",
             _pair("expanded", "claim", "other claim")),
    # One step, where only hashes are left.
    Mutation("do: what is unmoved", "if type == 'none' and r.left then return answer('unmoved') end\n", "",
             _unmoved("create", "contracted")),
    Mutation("do: that there is none", "if op.create and type ~= 'none' then return answer('exists') end\n", "",
             _pair("swept", "create", "create", "absent")),
    Mutation("do: reads only, where JSON is kept", "if r.copy or not r.new then\n  local items = type == 'none'",
             "if not r.new then\n  local items = type == 'none'", _pair("switched", "rollback to expanded", "update")),
    Mutation("do: whose it is", _STATUS + _WORKER, "", Case("jobs", "swept", cases_jobs.THREE[0], "running")),
    Mutation("do: the status", _STATUS, "", _pair("swept", "complete", "cancel", "running")),
    Mutation("do: the version", _VERSION, "", _pair("swept", "update", "other update")),
    Mutation("do: that it is stuck", "if not since or tonumber(since) > tonumber(SECONDS) - op.stuck then return "
             "'NOT_STUCK' end", "", Case("jobs", "swept", cases_jobs.THREE[1], "running")),
    Mutation("do: the version goes up", "exact and string.format('%.0f', job.Version + 1) or job.Version",
             "job.Version", _pair("swept", "update", "other update")),
    Mutation("do: the indexes", "follow(id, text, due, status == '300' and SECONDS or '', job.Status)\n", "",
             _pair("swept", "claim", "other claim")),
    # The queue.
    Mutation("claim: what is unmoved", "return r.left and 'UNMOVED' or 'ghost'", "return 'ghost'", _unmoved("claim")),
    Mutation("claim: reads only, where JSON is kept", "if not why and (r.copy or not r.new) then",
             "if not why and not r.new then", _pair("switched", "rollback to expanded", "claim")),
    Mutation("claim: what it knows at the head", "if not number or #claimed >= many then break end",
             "if not number then number = 1 end", _pair("swept", "claim", "other claim")),
    Mutation("delete: what is unmoved", "if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end\n"
             "redis.call('UNLINK', r.truth)\nif r.copy then redis.call('UNLINK', r.copy) end\nfollow",
             "redis.call('UNLINK', r.truth)\nif r.copy then redis.call('UNLINK', r.copy) end\nfollow",
             _unmoved("delete")),
    Mutation("delete: the copy", "if r.copy then redis.call('UNLINK', r.copy) end\nfollow", "follow",
             _pair("expanded", "claim", "delete")),
    Mutation("delete: the indexes", "follow(ARGV[6], '', '', '', '')\n", "", _pair("expanded", "claim", "delete")),
    Mutation("shelve: the job that was read", "epoch ~= ARGV[6] or not as_read", "epoch ~= ARGV[6]",
             Case("jobs", "expanded", ("claim", "hasten"), change=cases_jobs.too_early)),
    Mutation("follow: a job in progress keeps its score", "redis.call('ZADD', RUNNING, 'NX', started, id)",
             "redis.call('ZADD', RUNNING, started, id)", _pair("expanded", "update", "recover", "running")),
    Mutation("follow: out of the queue", "  if due == '' then\n    redis.call('ZREM', QUEUE, id, text)\n",
             "  if due == '' then\n", _pair("expanded", "claim", "delete")),
    # The repair of indexes.
    Mutation("index: the job that was mapped", " or not same(KEYS[2], ARGV[5], 10, n) then return 3 end",
             " then return 3 end", Case("jobs", "expanded", ("index repair", "cancel"), change=cases_jobs.unqueued)),
)  # fmt: skip
