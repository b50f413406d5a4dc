"""A NIC's mean lacks what clients that were muted in it will send from now on."""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.plant import MB, OUT
from tidegate_logic.model import ClientRate, Entity, Level
from tidegate_logic.throttle.attribution import DirectionSnapshot, hidden_loads
from tidegate_logic.throttle.buckets import Bucket, Floor
from tidegate_logic.throttle.input import (
    ActiveThrottle,
    LastChange,
    ManagedRate,
    RateHistory,
    ThrottleSettings,
)
from tidegate_logic.throttle.nic_status import NicStatus, Pressure

NIC = NicStatus(1, Pressure.OVER, 100 * MB, None, 110.0 * MB, 1030.0, 24.0)


def cut_at(
    seconds: float, before_mb: float = 40, sends_mb: float = 20, peak_mb: float = 40
) -> Bucket:
    """L3's only client, which was cut to 20 MB/s at that time and sends so much by Kafka's byte
    rate now.
    """
    change = LastChange(seconds, round(before_mb * MB))
    rate = ManagedRate(Entity("three"), OUT, Level.L3, 60 * MB, MB, 20 * MB, frozenset({1}), change)
    flows = {1: ClientRate(1030.0, sends_mb * MB, 0.0)}
    held = ActiveThrottle(20 * MB, 60 * MB, seconds, applied=True)
    return Bucket(
        rate,
        Floor(MB),
        flows,
        flows[1],
        held,
        RateHistory(peaks=((990.0, peak_mb * MB),), since_seconds=0.0, known_seconds=600.0),
    )


def hidden_mb(bucket: Bucket, *, scrape_seconds: float = 1.0, nic: NicStatus = NIC) -> float:
    tiers = {Level.L3: (bucket,), Level.L2: (), Level.L1: ()}
    scene = DirectionSnapshot(1030.0, OUT, ThrottleSettings(), scrape_seconds, {1: nic}, tiers, {})
    return hidden_loads(scene, [nic]).get(1, 0.0) / MB


def test_the_part_of_a_mute_that_lies_in_the_mean_is_missing_in_it() -> None:
    # muted from 1000 to 1011 for 11 x (40 / 20 - 1) seconds; the mean begins at 1006
    assert hidden_mb(cut_at(1000.0)) == pytest.approx(20 * 5 / 24)


def test_a_mute_is_never_taken_to_be_longer_than_a_step_may_mute() -> None:
    assert hidden_mb(cut_at(1010.0, before_mb=60, peak_mb=60)) == pytest.approx(20 * 12 / 24)


def test_what_was_not_sent_before_the_cut_did_not_mute() -> None:
    assert hidden_mb(cut_at(1010.0, before_mb=60, peak_mb=25)) == pytest.approx(20 * 11 * 0.25 / 24)


@pytest.mark.parametrize(
    "bucket",
    [
        pytest.param(cut_at(990.0), id="muted before the mean began"),
        pytest.param(cut_at(1010.0, sends_mb=5), id="it sends less than it may"),
        pytest.param(cut_at(1010.0, before_mb=10), id="it was raised"),
        pytest.param(replace(cut_at(1010.0), held=None), id="it is not throttled"),
    ],
)
def test_elsewhere_nothing_is_hidden(bucket: Bucket) -> None:
    assert hidden_mb(bucket) == 0


def test_a_scrape_as_long_as_the_rhythm_of_a_client_hides_nothing() -> None:
    assert hidden_mb(cut_at(1010.0), scrape_seconds=15.0, nic=replace(NIC, span_seconds=15.0)) == 0
