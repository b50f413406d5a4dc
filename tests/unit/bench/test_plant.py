"""The simulated cluster throttles as Kafka's brokers do, and loses no bytes on the way."""

from dataclasses import replace

import numpy as np
import pytest

from bench.control.plant import Blueprint, Consumer, Partition, Plant, Producer, QuotaWindows
from bench.control.played import play
from bench.control.scenarios import SCENARIOS, Sums, compared

QUOTA = 1000.0
EVERYBODY = slice(0, 1)


def consumer_of(fetch_bytes: float) -> QuotaWindows:
    return QuotaWindows(np.array([fetch_bytes]), np.array([0.0]), 1)


def passed(windows: QuotaWindows, quota: float, seconds: int, offered: float = 1e9) -> float:
    """Bytes that went through of a client that would send without end."""
    total = 0.0
    for _ in range(seconds):
        sent = windows.granted(np.array([[offered]]), np.array([quota]), EVERYBODY)
        windows.record(sent)
        total += float(sent.sum())
    return total


@pytest.mark.parametrize(
    ("seconds_of_quota", "share"),
    [
        pytest.param(1, 0.917, id="small fetches come close to the quota"),
        pytest.param(10, 0.5, id="a fetch of ten seconds' bytes waits as long again"),
    ],
)
def test_a_throttled_consumer_gets_less_than_its_quota_the_more_it_asks_for_at_once(
    seconds_of_quota: float, share: float
) -> None:
    windows = consumer_of(seconds_of_quota * QUOTA)
    passed(windows, QUOTA, 120)
    assert passed(windows, QUOTA, 1200) / (1200 * QUOTA) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("ratio", "mute_seconds"), [(2, 10.0), (5, 40.0), (50, 491.0)])
def test_a_client_is_muted_until_its_window_fits_the_new_quota(
    ratio: float, mute_seconds: float
) -> None:
    windows = consumer_of(QUOTA / 10)
    passed(windows, float("inf"), 30, offered=QUOTA)
    passed(windows, QUOTA / ratio, 5, offered=QUOTA)
    assert float(windows.longest_mute_seconds.max()) == pytest.approx(mute_seconds, rel=0.06)


def test_a_raise_frees_no_one_who_is_muted() -> None:
    windows = consumer_of(QUOTA / 10)
    passed(windows, float("inf"), 30, offered=QUOTA)
    passed(windows, QUOTA / 5, 2)
    assert passed(windows, 100 * QUOTA, 20) == 0.0


def test_what_is_written_is_read_or_waits() -> None:
    blueprint = Blueprint(
        [Producer("producer", 0, 100.0, 1e9)],
        [Consumer("reader", 3, 0, 60.0, 1e9)],
        [Partition(0, 0, (0, 1)), Partition(0, 1, (1, 0))],
        2,
        1e6,
        lambda _: (1e6, 1e6),
        lambda _: 1.0,
        1.0,
        1.0,
        noisy=False,
    )
    plant = Plant(blueprint, 1)
    for _ in range(50):
        plant.step()
    copied = written = 50 * 100.0
    assert plant.moved[1].sum() == pytest.approx(written + copied)
    assert plant.moved[0].sum() - copied == pytest.approx(50 * 60.0)
    assert plant.backlog[1].sum() == pytest.approx(written - 50 * 60.0)


def test_the_same_seed_plays_the_same() -> None:
    short = replace(SCENARIOS["wave"], seconds=70)
    assert play(short, 1, 5) == play(short, 1, 5)
    assert play(short, 1, 5) != play(short, 2, 5)


def test_sums_are_held_against_what_they_were() -> None:
    before = Sums(54, 100, 10.0, 1.0, 21.0, 1000)
    better = compared(Sums(54, 92, 9.2, 1.0, 22.0, 1050), before)
    assert all(figure.kept for figure in better)
    assert better[0].note == "-8.0 % against 100 s before"
    worse = compared(Sums(54, 93, 9.3, 1.1, 22.1, 1051), before)
    assert not any(figure.kept for figure in worse)
