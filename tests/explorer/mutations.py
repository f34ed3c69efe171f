"""Checks of scripts and engine, taken out one by one, each with a group of actors that goes wrong without it.

Not here, because leaving them out changes nothing an application or the tool could see:
- "vanished" in the copying scripts: a record that is gone is none that was mapped, so the compare-and-set refuses it.
- what stands against two new records, one under the final and one under the staged name ("two" of the adapters, the
  taken name and the type in `revive.lua`): no order of these actors makes two.
- that a rebuild writes over the old record only as it saw it: a wrong one is the work of a failover, which is in the
  model of the protocol.
- the fence in the guard: what it stops within one epoch another check would stop too, or it is what the successor does
  as well. It is how a process learns that it was replaced, see tests/test_fencing.py.
- the count of deletions: a window of one member is watched since before it was read, see tests/test_overlap.py.
"""

from __future__ import annotations

from migrator.engine.windows import Collection
from migrator.phases.markers import Guard
from tests.explorer import cases
from tests.explorer.case import Case
from tests.explorer.mutation import Left, Mutation
from tests.explorer.scene import Change

_TYPES = (
    "  if r.type ~= 'none' and r.type ~= r.kind then return nil, {'type', r.type} end\n"
    "  if r.copy_type ~= 'none' and r.copy_type ~= r.copy_kind then return nil, {'type', r.copy_type} end\n"
)
_UNMOVED = "if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end\n"
_COUNTED = (
    "-- What a window has read of it is of another life.\n"
    "if type == 'none' and phase == 'expanded' then redis.call('HINCRBY', KEYS[1], 'deletes', 1) end\n"
)
_LEFTOVER = "if type == 'none' and copy_type ~= 'none' and not r.new then redis.call('UNLINK', r.copy) end\n"


def _unsettled(move: str, piece: str, operation: str, phase: str = "switched") -> Case:
    return Case(move, phase, (piece, operation), "absent", change=cases.written, unsettled=True)


def _odd(move: str, part: str, change: Change = cases.new_is_a_list) -> Case:
    return Case(move, "expanded", (part, "get"), change=change, odd=True)


# The collection lives on.
_DELETED = Case("members", "expanded", ("quick batch", "create", "delete"))

MUTATIONS = (
    # The guard of every script of the tool.
    Mutation("guard: the phase", "or not string.find(ARGV[1], ',' .. m[1] .. ',', 1, true) then", "then",
             Case("key", "switched", ("misplaced batch", "get"), change=cases.rewritten, unsettled=True)),
    Mutation("guard: the epoch", "if m[2] ~= ARGV[2] or not string", "if not string",
             Case("key", "contracted", ("late removal", "there again"))),
    # Copying without comparing.
    Left("window: the guard", Guard, "allows", lambda _: True,
         Case("members", "expanded", ("quick batch", "rollback to pending"))),
    Left("window: the marker is watched", Collection, "_watching", lambda words: [*words[:1], ("ECHO", "OK"), words[2]],
         _DELETED),
    Left("window: only what is not there", Collection, "_adding", lambda words: (*words[:2], *words[3:]),
         Case("members", "expanded", ("quick batch", "set"))),
    Mutation("window: the expiry", "set_expiry(KEYS[2], expiry(KEYS[1]))\nreturn 1", "return 1",
             Case("members", "expanded", ("quick batch", "get"), "mortal")),
    Mutation("removal: it is counted", "  if phase == 'expanded' then redis.call('HINCRBY'", "  if false then "
             "redis.call('HINCRBY'", _DELETED),
    # Copying and repairing.
    Mutation("copy: the value that was mapped", "elseif not same(truth, kind, first, n) then code = 3",
             "elseif false then code = 3", Case("swap", "expanded", ("batch", "set"))),
    Mutation("copy: the type of the truth", "elseif is ~= kind then code = 5\n", "elseif false then code = 5\n",
             Case("key", "expanded", ("batch", "old becomes a list"), change=cases.list_beside, odd=True)),
    Mutation("copy: the type of the copy", "elseif copy_is ~= 'none' and copy_is ~= kind2 then code = 6\n  elseif",
             "elseif", _odd("key", "batch")),
    Mutation("copy: the expiry", "if n2 > 0 and set_expiry(copy, expires) then code = 1 end", "",
             Case("key", "verified", ("repair", "get"), "mortal", change=cases.persisted)),
    Mutation("expiry: none is one too", "if at == -1 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, "
             "string.format('%.0f', at)) end\n  return true", "if at ~= -1 then redis.call('PEXPIREAT', key, "
             "string.format('%.0f', at)) end\n  return true",
             Case("members", "verified", ("repair", "get"), "mortal", change=cases.persisted)),
    Mutation("copy of members: the value that was mapped", "elseif not equal(kind, now[j], ARGV[i + 1]) or not as_seen",
             "elseif not as_seen", Case("members", "expanded", ("batch", "set"))),
    Mutation("copy of members: the type of the truth", "(is ~= kind and 5) or (copy_is", "(copy_is",
             Case("members", "expanded", ("batch", "old becomes a list"), change=cases.list_beside, odd=True)),
    Mutation("copy of members: the expiry", "if redis.call('EXISTS', copy) == 1 then set_expiry(copy, expires) end", "",
             Case("members", "expanded", ("batch", "get"), "mortal")),
    Mutation("drop: that there is no truth",
             "redis.call('EXISTS', KEYS[k]) == 0 and redis.call('UNLINK', KEYS[k + 1]) or 0",
             "redis.call('UNLINK', KEYS[k + 1])",
             Case("key", "verified", ("repair", "set"), change=cases.deleted)),
    Mutation("drop of members: that there is no truth", "if not there[j] then gone", "if true then gone",
             Case("members", "verified", ("repair", "set"), change=cases.deleted)),
    # Contract and the way back.
    Mutation("retire: that the retired name is free",
             "if redis.call('EXISTS', retired) == 1 then code = 4\n    elseif", "if",
             Case("key", "contracted", ("stage", "get"), change=cases.set_aside_and_written, unsettled=True)),
    Mutation("retire: that the new record is there",
             "elseif mode ~= 'members' and new_is ~= kind2 and not accepted then code = 3", "",
             _unsettled("key", "stage", "get", "contracted")),
    Mutation("retire: the final name", "if mode == 'swap' and (code == 1 or is == 'none') and new_is == kind2 then",
             "if false then", Case("swap", "contracted", ("stage", "get"))),
    # Adapters.
    Mutation("adapters: the keys the phase needs", "if layout ~= ARGV[1] then return nil, {'layout', layout} end", "",
             Case("key", "expanded", ("batch", "set"))),
    Mutation("adapters: the mapping", "if checksum ~= '' and checksum ~= ARGV[2] then return nil, {'mapping'} end", "",
             Case("key", "expanded", ("stranger", "get"))),
    Mutation("adapters: the end of the sweep",
             "if checksum == '' and phase == 'contracted' then layout = 'new' end", "",
             Case("key", "swept", ("set", "get"), change=cases.reused, reused=True)),
    Mutation("adapters: the old record is set aside", "if gone then redis.call('RENAME', old, retired) end", "",
             Case("swap", "contracted", ("stage", "delete"))),
    Mutation("adapters: the retired name is free", " and is(retired) == 'none'\n", "\n",
             Case("key", "contracted", ("set", "get"), change=cases.set_aside_and_written, unsettled=True)),
    Mutation("adapters: the final name", "  redis.call('RENAME', new, old)\n  return only(old, now)",
             "  return only(new, now)", Case("swap", "contracted", ("set", "get"))),
    Mutation("adapters: the staged name on the way back", "    if phase ~= 'reverting' then return only(old, was) end\n"
             "    redis.call('RENAME', old, new)\n    was, now = now, was\n", "    return only(old, was)\n",
             Case("swap", "reverting", ("set", "get"))),
    Mutation("adapters: what is unmoved in switched", "left = was == kind and old}", "left = false}",
             _unsettled("key", "stage", "get")),
    Mutation("adapters: what is unmoved in contracted", "return only(new, now, was == kind and not gone and old) end",
             "return only(new, now) end", _unsettled("key", "stage", "get", "contracted")),
    Mutation("put: what is unmoved", _UNMOVED + "\nlocal at", "\nlocal at", _unsettled("key", "stage", "set")),
    Mutation("put: types", _TYPES, "", _odd("key", "set")),
    Mutation("put: the copy", "if r.copy then shape(r.copy", "if false then shape(r.copy",
             Case("key", "verified", ("stage", "set"))),
    Mutation("put: the same expiry", "  if at == -1 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, "
             "string.format('%.0f', at)) end\nend", "end",
             Case("key", "verified", ("stage", "set"), "mortal")),
    Mutation("put: the expiry that was", "ARGV[6] == 'keep' and math.max(expiry(r.truth), -1) or tonumber(ARGV[6])",
             "tonumber(ARGV[6]) or -1", Case("key", "switched", ("set", "get"), "mortal")),
    Mutation("delete: what is unmoved", _UNMOVED + "redis.call('UNLINK', r.truth)", "redis.call('UNLINK', r.truth)",
             _unsettled("key", "stage", "delete")),
    Mutation("delete: the copy", "if r.copy then redis.call('UNLINK', r.copy) end", "",
             Case("key", "expanded", ("stage", "delete"))),
    Mutation("delete: types", _TYPES, "", _odd("key", "delete")),
    Mutation("get: what is unmoved", "r.left and 'unmoved' or 'none'}", "'none'}", _unsettled("key", "stage", "get")),
    Mutation("set of members: a collection left over", _LEFTOVER + _COUNTED + "\nlocal there", "\nlocal there",
             Case("members", "expanded", ("create", "get"), change=cases.left_over)),
    Mutation("set of members: what is unmoved", "codes[j] = (left[j] and not there[j]) and 0 or 1", "codes[j] = 1",
             _unsettled("members", "stage", "set")),
    Mutation("set of members: the expiry", "  set_expiry(r.copy, expiry(r.truth))\n", "",
             Case("members", "expanded", ("set", "get"), "mortal")),
    Mutation("set of members: types", _TYPES, "", _odd("members", "set")),
    Mutation("removal of members: the copy", "if r.copy then redis.call(REMOVE[r.copy_kind]",
             "if false then redis.call(REMOVE[r.copy_kind]", Case("members", "backfilled", ("delete", "get"))),
    Mutation("removal of members: what is unmoved", "(there[j] and 1) or (left[j] and 2) or 0",
             "(there[j] and 1) or 0", _unsettled("members", "stage", "delete")),
    Mutation("removal of members: a collection left over", _LEFTOVER + "\nlocal olds", "\nlocal olds",
             Case("members", "expanded", ("delete", "get"), change=cases.left_over)),
    Mutation("get of members: what is unmoved", "if not values[j] then values[j] = left[j] and 1 or false end", "",
             _unsettled("members", "stage", "get")),
    # Markers, ledger and lease.
    Mutation("marker: the fence", "if m[3] ~= ARGV[1] or m[4] ~= ARGV[2] then return {'fenced', m[3], m[4]} end\n", "",
             Case("key", "verified", ("stage", "takeover"))),
    Mutation("marker: where it is", "if not from and not there then return {'phase', m[1], m[2]} end", "",
             Case("key", "switched", ("late change", "rollback to expanded"))),
    Mutation("fence: only up",
             "if not mine and tonumber(m[2] or 0) >= tonumber(ARGV[1]) then return {'fenced', m[2], m[3]} end", "",
             Case("key", "expanded", ("late fence", "takeover and stage"))),
    Mutation("creation of a marker: that there is none", "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end", "",
             Case("key", "pending", ("late init", "stage"))),
    Mutation("the tool's own keys: who holds the lease",
             "if l[1] ~= ARGV[1] or l[2] ~= ARGV[2] then return {'fenced', l[1] or '', l[2] or ''} end", "",
             Case("key", "verified", ("stage", "takeover and stage"))),
    Mutation("the lease: that nobody holds it", "if l[1] and l[1] ~= '' and l[1] ~= ARGV[1] and left > 0 then return "
             "{0, l[2], left, l[1]} end", "", Case("key", "expanded", ("second apply", "stage"))),
)  # fmt: skip
