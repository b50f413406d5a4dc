"""The bounds of usage: tables that say what witnesses saw keep all of them, each way of failing misses its own."""

from typing import Any

import pytest

from .conftest import RolledUp

EXIT_CODE = "rollup run, verify and report: exit code"
DIFFER = "bytes in which tables and brokers' counters differ"


def missed(rolled_up: RolledUp, **spoilt: Any) -> list[str]:
    return [check.name for check in rolled_up(**spoilt).checks() if not check.kept]


def test_tables_that_say_what_was_seen_keep_every_bound(rolled_up: RolledUp) -> None:
    assert missed(rolled_up) == []


@pytest.mark.parametrize(
    ("spoilt", "names"),
    [
        ({"miscounted": 1}, [DIFFER]),
        ({"moved": {"reports": 1.08}}, ["reports (L3), its share of all reads"]),
        ({"moved": {"search": 0.92}}, ["search (L2), its share of all reads"]),
        ({"held": {"reports": 1.11}}, ["held back from L3 in experiment 2"]),
        ({"held": {"orders": 0.0}}, ["held back from L1 in experiment 2"]),
        ({"held": {"checkout": 1.0}}, ["held back from L0 in experiment 2"]),
    ],
)
def test_what_is_wrong_misses_its_bound_and_no_other(spoilt: dict[str, Any], names: list[str], rolled_up: RolledUp) -> None:
    assert missed(rolled_up, **spoilt) == names


@pytest.mark.parametrize("code", [1, None])
def test_a_command_that_failed_or_never_ended_misses_everything(code: int | None, rolled_up: RolledUp) -> None:
    checks = rolled_up(code=code).checks()
    assert [check.kept for check in checks] == [False] * len(rolled_up().checks())
    assert {check.measured for check in checks} <= {None, 1}


def test_the_more_that_brokers_send_to_all_alike_is_no_error_of_shares(rolled_up: RolledUp) -> None:
    users = ("checkout", "orders", "search", "reports")
    assert missed(rolled_up, moved=dict.fromkeys(users, 1.2)) == []
