import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.forwarder.settings import ForwarderSettings
from tidegate.forwarder.targets import DeadReason, Targets, Verdict
from tidegate.queues.names import Guarantee, QueueNames

EXISTING = frozenset({"orders.due", "orders.paid", "other", "__consumer_offsets", "shop.dead"})


def targets(
    *allowed: str, default: str | None = "orders.due", clock: list[float] | None = None
) -> Targets:
    now = clock if clock is not None else [0.0]
    found = Targets(
        ForwarderSettings(QueueNames("shop"), Guarantee.AT_LEAST_ONCE, allowed, default, {}),
        now_seconds=lambda: now[0],
    )
    found.list(EXISTING)
    return found


def test_a_target_that_matches_a_pattern_is_used() -> None:
    assert targets("orders.*").judge(b"orders.paid") == Verdict("orders.paid")
    assert targets("x", "orders.paid").judge(b"orders.paid") == Verdict("orders.paid")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"other", DeadReason.NOT_ALLOWED),
        (b"ordersXpaid", DeadReason.NOT_ALLOWED),
        (b"orders.new", DeadReason.NOT_FOUND),
        (b"__consumer_offsets", DeadReason.INTERNAL_TARGET),
        (b"shop.dead", DeadReason.OWN_TOPIC),
        (b"shop.control", DeadReason.OWN_TOPIC),
        (b"shop.60.0", DeadReason.OWN_TOPIC),
        (b"", DeadReason.INVALID_TARGET),
        (b"..", DeadReason.INVALID_TARGET),
        (b"a b", DeadReason.INVALID_TARGET),
        (b"\xc3\xa4", DeadReason.INVALID_TARGET),
        (b"x" * 250, DeadReason.INVALID_TARGET),
        (b"orders.due\n", DeadReason.INVALID_TARGET),
    ],
)
def test_what_may_not_be_a_target_is_dead_with_the_reason(
    header: bytes, reason: DeadReason
) -> None:
    verdict = targets("orders.*").judge(header)
    assert (verdict.topic, verdict.reason) == ("shop.dead", reason)
    assert verdict.explanation.startswith(f"{reason}: ")


def test_patterns_never_let_in_internal_or_own_topics() -> None:
    every = targets("*", default=None)
    assert every.judge(b"__consumer_offsets").reason is DeadReason.INTERNAL_TARGET
    assert every.judge(b"shop.dead").reason is DeadReason.OWN_TOPIC
    assert every.judge(b"other") == Verdict("other")


def test_the_default_is_for_records_without_a_header_and_is_allowed() -> None:
    assert targets().judge(None) == Verdict("orders.due")
    assert targets().judge(b"orders.due") == Verdict("orders.due")
    assert targets(default=None).judge(None).reason is DeadReason.NO_TARGET


names = st.from_regex(r"[a-zA-Z0-9._-]{1,12}", fullmatch=True)
patterns = st.from_regex(r"[a-zA-Z0-9._*-]{1,6}", fullmatch=True)


@given(st.lists(patterns, max_size=3), names)
def test_only_the_star_of_a_pattern_has_a_meaning(allowed: list[str], name: str) -> None:
    judged = targets(*allowed, default=None).judge(name.encode()).reason
    fits = any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), name) for one in allowed)
    if judged in (None, DeadReason.NOT_FOUND):
        assert fits
    elif judged is DeadReason.NOT_ALLOWED:
        assert not fits


@given(st.binary(max_size=20))
def test_any_header_has_a_verdict(header: bytes) -> None:
    verdict = targets("*").judge(header)
    assert verdict.reason is not None or verdict.topic in EXISTING


def test_a_refused_target_is_tried_again_after_a_while() -> None:
    clock = [0.0]
    found = targets("*", clock=clock)
    found.refuse("other", "not authorized")
    assert found.judge(b"other").explanation == "TargetRefused: topic other: not authorized"
    clock[0] = 31.0
    found.list(EXISTING)
    assert found.judge(b"other").reason is None


def test_a_new_listing_changes_the_verdict() -> None:
    found = targets("orders.*")
    assert found.judge(b"orders.new").reason is DeadReason.NOT_FOUND
    found.list(EXISTING | {"orders.new"})
    assert found.judge(b"orders.new").reason is None
