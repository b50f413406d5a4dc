"""Drain-then-set: two writes that reach any target with one silence, where that is safe; everywhere else the ladder goes on.

The first write is low enough that every client on every leading broker waits; while all wait, their windows empty, and a fresh reading that
shows it allows the second write, to the target. A client that is throttled already must not be drained: its window is one burst that may
leave at any moment (control study, 9.1 to 9.3). Rates are bytes per second. When a round may be made is decided in `escalation.py`.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf

from controller_logic.model import Speed
from controller_logic.scene import Scene
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.input import Draining
from controller_logic.throttle.settings import BINDING, BINDING_MILLISECONDS

_LONGEST_SCRAPE_SECONDS = 5.0  # at 15 s the scrapes of several brokers differ too much in phase
_FRESH_SECONDS = 10.0
_LEAST_RATIO = 5.0  # nearer targets are one or two steps of the ladder away
_LAG_SECONDS = 2.5  # from a sample to the effect of the write that it caused
_NOISE = 1.05
_SURELY = 0.9  # of the computed silence
_SPARE_SECONDS = 3.0
_GIVE_UP_SECONDS = 5.0

# window in seconds: the shortest and the longest silence of the first write that were safe in the exact model (9.1)
_MEASURED_SILENCES = ((2, 10.0, 12.0), (5, 14.0, 14.0), (11, 16.0, 18.0))


def silence_seconds(scene: Scene) -> float | None:
    """Xmax: how long the first write silences the busiest clients; None for a window that nobody measured."""
    window = scene.settings.window
    bounds = _silence_bounds(window.seconds)
    if bounds is None:
        return None
    least, most = bounds
    return min(most, max(least, (window.seconds + window.sample_seconds + scene.scrape_seconds + _LAG_SECONDS) / _SURELY))


def _silence_bounds(window_seconds: int) -> tuple[float, float] | None:
    for (shorter, low_a, high_a), (longer, low_b, high_b) in pairwise(_MEASURED_SILENCES):
        if shorter <= window_seconds <= longer:
            share = (window_seconds - shorter) / (longer - shorter)
            return low_a + share * (low_b - low_a), high_a + share * (high_b - high_a)
    return None


def first_write(bucket: Bucket, target: int, scene: Scene) -> Draining | None:
    """The first write towards `target`, or None where only the ladder is safe."""
    silence = silence_seconds(scene)
    if scene.settings.speed is not Speed.DRAIN or silence is None or not _may_drain(bucket, target, scene):
        return None
    window_seconds, now_seconds = scene.settings.window.seconds, scene.now_seconds
    ratio = 1 + silence / window_seconds
    estimate = _estimate(bucket, now_seconds)
    first = ceil(estimate / ratio)
    if first <= target:
        return Draining(target, target, now_seconds, now_seconds, window_seconds * (estimate / target - 1))
    rates = [flow.bytes_per_second for flow in bucket.flows.values()]
    safe = target * ratio
    least = min((window_seconds * (rate / first - 1) for rate in rates if rate > safe), default=0.0)
    if _SURELY * least < window_seconds * (1 - safe / max(rates)) + _SPARE_SECONDS:
        return None  # the brokers are too unequal to be empty at the same time
    return Draining(target, first, now_seconds, now_seconds + 1 + _SURELY * least, silence)


def _may_drain(bucket: Bucket, target: int, scene: Scene) -> bool:
    flows = [bucket.flows.get(broker) for broker in bucket.rate.leads]
    fresh = all(flow is not None and scene.now_seconds - flow.at_seconds <= _FRESH_SECONDS for flow in flows)
    if not flows or not fresh or scene.scrape_seconds > _LONGEST_SCRAPE_SECONDS or bucket.exposure < _LEAST_RATIO * target:
        return False
    near = BINDING * bucket.cap if bucket.rate.in_force is not None else inf
    return all(
        (flow.throttle_milliseconds or 0.0) <= BINDING_MILLISECONDS and flow.bytes_per_second < near for flow in bucket.flows.values()
    )


def _estimate(bucket: Bucket, now_seconds: float) -> float:
    """What the busiest broker's window may hold when the write takes effect, from the rate, its growth and the sample's age."""
    rate = max(flow.bytes_per_second for flow in bucket.flows.values())
    oldest_seconds = min(flow.at_seconds for flow in bucket.flows.values())
    growth = 0.0
    if len(bucket.seen.rates) > 1:
        (earlier_seconds, earlier), (later_seconds, later) = bucket.seen.rates[-2:]
        growth = max(0.0, (later - earlier) / max(later_seconds - earlier_seconds, 1.0))
    return min(float(bucket.exposure), _NOISE * (rate + growth * (now_seconds - oldest_seconds + _LAG_SECONDS)))


@dataclass(frozen=True, slots=True)
class SecondWrite:
    """Whether the drain ends now, and with which value (None = it gives up, or waits)."""

    ended: bool
    value: int | None = None
    predicted_mute_seconds: float = 0.0


def second_write(bucket: Bucket, drain: Draining, scene: Scene) -> SecondWrite:
    """The second write as soon as fresh readings of all leading brokers allow it; after a while the ladder goes on instead."""
    silence = silence_seconds(scene)
    started_seconds = drain.started_at_seconds
    if silence is None or bucket.cap <= drain.target or scene.now_seconds > started_seconds + silence + _GIVE_UP_SECONDS:
        return SecondWrite(ended=True)
    flows = [bucket.flows.get(broker) for broker in bucket.rate.leads]
    written = bucket.rate.in_force == drain.first
    if not written or any(flow is None or flow.at_seconds <= started_seconds + 1 for flow in flows):
        return SecondWrite(ended=False)
    window = scene.settings.window
    rate, allowed_seconds = max(flow.bytes_per_second for flow in bucket.flows.values()), silence
    if scene.now_seconds + 1 > drain.silent_until_seconds:  # somebody may be awake: his bucket may be full at the first value
        rate, allowed_seconds = max(rate, float(bucket.cap)), float((window.samples - 1) * window.sample_seconds)
    mute_seconds = max(0.0, window.seconds * (rate / drain.target - 1))
    return SecondWrite(True, drain.target, mute_seconds) if mute_seconds <= allowed_seconds else SecondWrite(ended=False)
