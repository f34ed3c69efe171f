"""From a URL to a client, without ever telling the password."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from migrator.client.client import Client
from migrator.client.topology import Cluster, Single
from migrator.client.wire import NO_DISK, is_refusal
from migrator.errors import UnreachableError, UsageError

_SOCKET_SECONDS = 30.0


def connect(url: str, **settings: Any) -> Client:
    """A client for `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://host:port/service/db`.

    Connects at once. Raises UsageError for a URL that is not one and UnreachableError after `patience` seconds.
    """
    options: dict[str, Any] = {
        "protocol": 2,  # one shape of replies on every server
        "retry": Retry(NoBackoff(), 0),  # retries are ours: we know what may be sent twice
        "socket_timeout": _SOCKET_SECONDS,
        "socket_connect_timeout": 5.0,
    }
    client = Client(_topology(url, options), **settings)
    for node in client.nodes():
        answer, info = client.on_node(node, ("PING",), ("INFO", "cluster"))
        if not client.cluster and isinstance(info, bytes) and b"cluster_enabled:1" in info:
            raise UsageError(f"{node.address} is part of a cluster", next="use redis+cluster:// in --url")
        # Where it cannot save, it refuses PING as well; reading goes on, and a write is told what it is.
        if isinstance(answer, ResponseError) and not is_refusal(answer, NO_DISK):
            raise UnreachableError(
                f"Redis does not let us in: {answer}", next="check the user and the password in --url"
            )
    return client


def _topology(url: str, options: dict[str, Any]) -> Single | Cluster:
    try:
        parts = urlsplit(url)
        if parts.scheme == "redis+cluster":
            _address(parts)  # raises for a port that is none
            return Cluster(url.replace("redis+cluster://", "redis://", 1), options)
        if parts.scheme == "redis+sentinel":
            return _sentinel(url, options)
        if parts.scheme in ("redis", "rediss", "unix"):
            if parts.scheme != "unix" and not re.fullmatch(r"/?\d*/?", parts.path):
                raise ValueError("no database")  # the library would take it for 0
            pool = redis.ConnectionPool.from_url(url, **options)
            db = int(pool.connection_kwargs.get("db") or 0)
            return Single(pool, parts.path if parts.scheme == "unix" else _address(parts), db)
    except ValueError:
        pass  # the message of the library may repeat the URL, and with it a password
    raise UsageError(
        f"--url is not a Redis URL: {redacted(url)}",
        next="use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://",
    )


def _address(parts: Any) -> str:
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def _sentinel(url: str, options: dict[str, Any]) -> Single:
    """`redis+sentinel://[user:password@]host:port[,host:port]/service[/db]`."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    pairs = [(host.partition(":")[0], int(host.partition(":")[2] or 26379)) for host in hosts.split(",")]
    user, _, password = credentials.partition(":")
    login = {"username": unquote(user) or None, "password": unquote(password) or None} if credentials else {}
    master = Sentinel(pairs, sentinel_kwargs=dict(options), **options).master_for(
        service, db=int(db or 0), **login, **options
    )
    return Single(master.connection_pool, f"{service} (sentinel)", int(db or 0))


def redacted(url: str) -> str:
    """The URL without its password, whatever its form."""
    head, at, tail = url.rpartition("@")
    if at:
        scheme, slashes, login = head.partition("://")
        user = login.partition(":")[0] if slashes else ""
        url = f"{scheme}{slashes}{user}:***@{tail}" if slashes else f"***@{tail}"
    return re.sub(r"(?i)([?&](?:password|username)=)[^&]*", r"\1***", url)
