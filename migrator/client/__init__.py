"""How this tool speaks to Redis; a cluster is a list of nodes, and only this package knows the difference."""

from redis.exceptions import ResponseError

from migrator.client.client import LOST, Client, Page
from migrator.client.following import replicas, replicate
from migrator.client.lane import Lanes, Work
from migrator.client.url import connect, redacted
from migrator.client.wire import (
    Arg,
    Command,
    Node,
    Reply,
    Words,
    checked,
    exchange,
    pack_each,
    pack_pairs,
    slot_moved,
)

__all__ = [
    "LOST",
    "Arg",
    "Client",
    "Command",
    "Lanes",
    "Node",
    "Page",
    "Reply",
    "ResponseError",
    "Words",
    "Work",
    "checked",
    "connect",
    "exchange",
    "pack_each",
    "pack_pairs",
    "redacted",
    "replicas",
    "replicate",
    "slot_moved",
]
