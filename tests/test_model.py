"""The protocol, searched to the end: no counterexample with all its rules, one for each rule that is left out.

The search itself called for some of these rules; the code follows them all.
"""

from __future__ import annotations

import time

import pytest

from tests.model import windows
from tests.model.configurations import (
    FOUND,
    FOUND_LATE,
    LARGE,
    MEMBERS_LARGE,
    MEMBERS_SMALL,
    MEMBERS_WITHOUT,
    SMALL,
    WITHOUT,
)
from tests.model.world import show

LEFT_OUT = WITHOUT | FOUND


def told(name, configuration, without="", shown=show, limit=10_000_000):
    """The search, with its numbers and its counterexample printed."""
    began = time.monotonic()
    found = configuration.search(without, limit)
    left_out = f" without '{without}'" if without else ""
    print(f"\n{name}{left_out}: {found.states:,} states, {time.monotonic() - began:.1f} s", flush=True)
    if found.fault:
        print(f"a counterexample of {len(found.trace) - 1} steps:")
        print(found.told(shown))
    return found


@pytest.mark.parametrize("name", SMALL)
def test_all_rules_together_leave_no_counterexample(name):
    assert told(name, SMALL[name]).fault == ""


@pytest.mark.parametrize("without", LEFT_OUT)
def test_each_rule_left_out_has_one(without):
    assert told("a record", LEFT_OUT[without], without).fault


def test_members_in_windows_leave_no_counterexample():
    assert told("members", MEMBERS_SMALL, shown=windows.show).fault == ""


@pytest.mark.parametrize("without", MEMBERS_WITHOUT)
def test_each_rule_of_windows_left_out_has_one(without):
    assert told("members", MEMBERS_SMALL, without, windows.show).fault


@pytest.mark.prove
@pytest.mark.parametrize("name", LARGE)
def test_all_rules_together_leave_no_counterexample_in_larger_bounds(name):
    assert told(name, LARGE[name]).fault == ""


@pytest.mark.prove
@pytest.mark.parametrize("without", FOUND_LATE)
def test_each_rule_left_out_has_one_that_takes_long_to_find(without):
    assert told("a record", FOUND_LATE[without], without).fault


@pytest.mark.prove
@pytest.mark.parametrize("without", LEFT_OUT)
def test_the_bounds_a_rule_is_left_out_in_have_none_with_it(without):
    """Else the counterexample might be another rule's."""
    assert told("a record", LEFT_OUT[without]).fault == ""


@pytest.mark.prove
def test_members_in_windows_leave_no_counterexample_in_larger_bounds():
    assert told("members", MEMBERS_LARGE, shown=windows.show).fault == ""
