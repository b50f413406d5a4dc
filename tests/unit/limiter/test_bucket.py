"""The arithmetic of the limiter: nothing is lost, nothing is used twice, and the order is kept."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.limiter import Bucket, Ticket

RATE, REFILL = 100_000, 0.01  # so a refill is 1000 bytes


def test_a_request_that_finds_tokens_takes_them() -> None:
    bucket = Bucket(RATE)
    assert bucket.put(600, 1, 0.0).done_seconds == 0.0
    assert bucket.take(400, 3)
    assert not bucket.take(1, 3)


def test_a_request_larger_than_a_refill_is_done_when_its_last_byte_came() -> None:
    bucket = Bucket(RATE)
    ticket = bucket.put(3500, 1, 0.0)  # 1000 of it at once
    assert bucket.advance(0.029) == []
    assert bucket.advance(0.03) == [ticket]
    assert ticket.done_seconds == pytest.approx(0.03)
    assert bucket.tokens == 500


def test_many_refills_at_once_are_dated_one_by_one() -> None:
    bucket = Bucket(RATE)
    first, second = bucket.put(2000, 1, 0.0), bucket.put(2000, 1, 0.0)
    assert bucket.advance(60.0) == [first, second]
    assert [first.done_seconds, second.done_seconds] == [pytest.approx(0.01), pytest.approx(0.03)]
    assert bucket.tokens == bucket.burst_bytes


def test_a_more_important_tier_is_served_first_and_the_other_keeps_what_it_has() -> None:
    bucket = Bucket(RATE)
    low = bucket.put(2000, 3, 0.0)
    high = bucket.put(1000, 1, 0.0)
    assert bucket.advance(0.01) == [high]
    assert bucket.advance(0.02) == [low]


def test_tier_0_never_waits_and_the_others_pay() -> None:
    bucket = Bucket(RATE)
    assert bucket.take(1500, 0)
    waits = bucket.put(800, 1, 0.0)
    assert bucket.advance(0.01) == []  # 500 are left of this refill
    assert bucket.advance(0.02) == [waits]


def test_a_debt_outlasts_a_refill_by_no_more_than_allowed() -> None:
    bucket = Bucket(RATE)
    bucket.take(1_000_000, 0)
    waits = bucket.put(1000, 1, 0.0)
    assert bucket.advance(0.01) == []
    assert bucket.tokens == -1000
    assert bucket.advance(0.03) == [waits]
    assert waits.done_seconds == pytest.approx(0.03)
    deeper = Bucket(RATE, debt_seconds=1.0)
    deeper.take(1_000_000, 0)
    deeper.advance(0.01)
    assert deeper.tokens == -RATE


def test_a_minimum_share_is_served_beside_a_more_important_tier() -> None:
    bucket = Bucket(RATE, minimum_shares={3: 0.05})
    bucket.put(1_000_000, 1, 0.0)
    low = bucket.put(50, 3, 0.0)
    assert bucket.advance(0.01) == [low]
    alone = Bucket(RATE)
    alone.put(1_000_000, 1, 0.0)
    alone.put(50, 3, 0.0)
    assert alone.advance(9.0) == []


def test_keys_take_turns_so_that_a_large_request_holds_up_no_small_one() -> None:
    bucket = Bucket(RATE, quantum_bytes=500)
    large = bucket.put(100_000, 1, 0.0, key="large")
    small = [bucket.put(100, 1, 0.0, key="small") for _ in range(5)]
    assert bucket.advance(0.01) == small
    assert large.left_bytes == 100_000 - 1000 - 500


def test_cancelling_gives_back_what_was_reserved() -> None:
    bucket = Bucket(RATE)
    gone, stays = bucket.put(5000, 1, 0.0), bucket.put(1500, 2, 0.0)
    assert bucket.cancel(gone)
    assert not bucket.cancel(bucket.put(0, 0, 0.0))
    assert bucket.advance(0.01) == [stays]
    assert stays.done_seconds == pytest.approx(0.01)


def test_a_new_rate_holds_for_those_who_wait() -> None:
    bucket = Bucket(RATE)
    ticket = bucket.put(11_000, 1, 0.0)
    assert bucket.set_rate(10 * RATE, 0.005) == []
    assert bucket.advance(0.01) == [ticket]


@pytest.mark.parametrize(
    "settings",
    [
        {"bytes_per_second": 0},
        {"bytes_per_second": math.nan},
        {"bytes_per_second": 1, "refill_seconds": 0},
        {"bytes_per_second": 1, "quantum_bytes": 0},
        {"bytes_per_second": 1, "minimum_shares": {0: 0.1}},
        {"bytes_per_second": 1, "minimum_shares": {1: -0.1}},
        {"bytes_per_second": 1, "minimum_shares": {1: 0.6, 2: 0.6}},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|shares"):
        Bucket(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size_bytes", "tier"), [(-1, 0), (-1, 1), (1, 4), (1, -1)])
def test_a_request_that_makes_no_sense_is_refused_and_takes_nothing(
    size_bytes: int, tier: int
) -> None:
    bucket = Bucket(RATE)
    with pytest.raises(ValueError, match="0 bytes or more"):
        bucket.take(size_bytes, tier)
    with pytest.raises(ValueError, match="0 bytes or more"):
        bucket.put(size_bytes, tier, 0.0)
    assert (bucket.tokens, bucket.waiting) == (bucket.burst_bytes, 0)


def test_nothing_to_send_goes_unless_somebody_waits() -> None:
    bucket = Bucket(RATE)
    assert bucket.put(0, 1, 0.0).done_seconds == 0.0
    bucket.put(5000, 1, 0.0)
    assert bucket.put(0, 1, 0.0).done_seconds is None
    assert bucket.put(0, 0, 0.0).done_seconds == 0.0
    assert len(bucket.advance(1.0)) == 2


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "cancel", "wait"]),
        st.integers(0, 3),
        st.integers(0, 5000),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([{}, {2: 0.1, 3: 0.05}]))
def test_whatever_is_asked_for(
    steps: list[tuple[str, int, int, str]], shares: dict[int, float]
) -> None:
    """Nothing above the rate, nothing unused while somebody waits, and each key in its order."""
    bucket = Bucket(RATE, minimum_shares=shares, quantum_bytes=700)
    now, asked, done, tier_0 = 0.0, list[Ticket](), list[Ticket](), 0
    for what, tier, number, key in steps:
        if what == "wait":
            now += number / 100_000
            done += bucket.advance(now)
        elif what == "cancel" and asked:
            ticket = asked[number % len(asked)]
            assert bucket.cancel(ticket) == (ticket.done_seconds is None)
            if ticket.done_seconds is None:
                asked.remove(ticket)
        elif what == "put":
            ticket = bucket.put(number, tier, now, key=key)
            tier_0 += number if tier == 0 else 0
            asked.append(ticket)
            if ticket.done_seconds is not None:
                done.append(ticket)
    assert bucket.waiting == sum(ticket.done_seconds is None for ticket in asked)
    assert not bucket.waiting or bucket.tokens <= 1e-6
    moved = sum(ticket.size_bytes for ticket in done if ticket.tier)
    assert moved <= RATE * now + bucket.burst_bytes + 1e-6
    for tier in (1, 2, 3):
        for key in "abc":
            times = [one.done_seconds for one in asked if (one.tier, one.key) == (tier, key)]
            ended = [math.inf if at is None else at for at in times]
            assert ended == sorted(ended)
    done += bucket.advance(now + 60 + tier_0 / RATE)
    assert bucket.waiting == 0
    assert all(ticket.done_seconds is not None for ticket in asked)
