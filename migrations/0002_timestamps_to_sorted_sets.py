"""Timestamps leave hashes for sorted sets, so that a batch reads only what is due."""

from migrator import Keys, MemberMove, Migration
from migrator.records.ticks import format_ticks, lost, parse_ticks

migration = Migration(
    MemberMove(
        source=Keys("map:{name}:__meta:timestamps", type="hash"),
        target=Keys("map:{name}:__meta:timestamps-sorted", type="zset"),
        forward=lambda key, field, value: (field, parse_ticks(value)),
        origin=lambda key, member: member,
        inverse=lambda key, member, score: (member, format_ticks(score)),
        losses=("a score holds ticks to 128 (12.8 µs): up to ±64 ticks are lost once contract has removed the hash",),
        lost=lost,
        risks=(
            "an application that uses a sorted set as soon as it exists is stopped, or has the adapter, before expand",
        ),
    )
)
