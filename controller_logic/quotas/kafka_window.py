"""The broker's throttle arithmetic, event by event, and what it means for lowering a quota.

A broker keeps a ring of samples per bucket, measures the rate over the samples it still holds, and mutes a client for
as long as that rate would need to fall to the quota (kafka-quotas 4.1 to 4.3). Lowering a quota therefore mutes a client
for bytes it sent under the old one, and no later raise frees it: the second half says how far a step may go.
Times of the first half are integer milliseconds, of the second half seconds. No state is kept here: rings are values.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil, floor, inf, isnan

from controller_logic.model import QuotaWindow

_LONG_MAX = 2**63 - 1
_MEASURED_STEP_DISTANCE = (30, 11)  # seconds between safe steps, for a window of so many seconds (control.md 1.2)


class SampleRule(Enum):
    """How a Kafka version forgets samples."""

    UP_TO_3_7 = "up to 3.7"
    FROM_3_8 = "3.8 and later"


@dataclass(frozen=True, slots=True)
class Sample:
    """One slot of the ring: when it began, when it last counted something, and the sum it holds."""

    start_ms: int
    last_event_ms: int
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class SampleRing:
    """The samples of one bucket on one broker. A new ring is empty; `record` and `measure` return the next ring."""

    window: QuotaWindow = field(default_factory=QuotaWindow)
    rule: SampleRule = SampleRule.FROM_3_8
    samples: tuple[Sample, ...] = ()
    current: int = 0

    @property
    def sample_ms(self) -> int:
        return self.window.sample_seconds * 1000

    @property
    def slots(self) -> int:
        """3.8 and later keep one slot more, so that the oldest sample may overlap the edge of the window."""
        return self.window.samples + (1 if self.rule is SampleRule.FROM_3_8 else 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate in units per second and the window in milliseconds that it was taken over."""

    rate: float
    window_ms: int


def record(ring: SampleRing, amount: float, *, now_ms: int) -> SampleRing:
    """Count `amount` (bytes, or request time) at `now_ms` in the current sample, or in a fresh one if that is full."""
    if not ring.samples:
        ring = replace(ring, samples=(Sample(now_ms, now_ms),))
    elif now_ms - ring.samples[ring.current].start_ms >= ring.sample_ms:
        ring = _advance(ring, now_ms)
    sample = ring.samples[ring.current]
    counted = Sample(sample.start_ms, now_ms, sample.total + amount)
    return replace(ring, samples=_with(ring.samples, ring.current, counted))


def _advance(ring: SampleRing, now_ms: int) -> SampleRing:
    index = (ring.current + 1) % ring.slots
    return replace(ring, samples=_with(ring.samples, index, Sample(now_ms, now_ms)), current=index)


def _with(samples: tuple[Sample, ...], index: int, sample: Sample) -> tuple[Sample, ...]:
    return (*samples[:index], sample, *samples[index + 1 :])


def _purge(ring: SampleRing, now_ms: int) -> SampleRing:
    """Empty the samples that are too old; an emptied one counts as a sample that starts now."""
    keep_ms = ring.window.samples * ring.sample_ms
    from_start = ring.rule is SampleRule.UP_TO_3_7
    kept = tuple(
        Sample(now_ms, now_ms) if now_ms - (sample.start_ms if from_start else sample.last_event_ms) >= keep_ms else sample
        for sample in ring.samples or (Sample(now_ms, now_ms),)
    )
    return replace(ring, samples=kept)


def measure(ring: SampleRing, *, now_ms: int) -> tuple[SampleRing, Measured]:
    """Kafka's `Rate`: the sum over the window, where a window younger than n - 1 whole samples counts as that long.

    Used for client quotas. A ring without samples measures 0 over the n - 1 samples (at least one millisecond).
    """
    ring = _purge(ring, now_ms)
    elapsed_ms = now_ms - min(sample.start_ms for sample in ring.samples)
    lacking = max(0, ring.window.samples - 1 - elapsed_ms // ring.sample_ms)
    window_ms = max(1, elapsed_ms + lacking * ring.sample_ms)
    return ring, Measured(_total(ring) / (window_ms / 1000), window_ms)


def measure_simple(ring: SampleRing, *, now_ms: int) -> tuple[SampleRing, Measured]:
    """Kafka's `SimpleRate`, used for replication throttles: the sum over the age of the oldest sample, at least one sample."""
    ring = _purge(ring, now_ms)
    window_ms = max(now_ms - min(sample.start_ms for sample in ring.samples), ring.sample_ms)
    return ring, Measured(_total(ring) / (window_ms / 1000), window_ms)


def _total(ring: SampleRing) -> float:
    return sum(sample.total for sample in ring.samples)


def mute_ms(measured: Measured, target: float) -> int:
    """X: how long a broker mutes a client whose bucket measures this under a quota of `target` units per second.

    X = (O - T) / T x W, rounded half up and then cut to 32 bits as the broker does: a result that does not fit wraps, and
    one that wraps to zero or below mutes nobody (kafka-quotas 4.4, vectors 15 to 17). 0 = not muted.
    """
    if measured.rate <= target:
        return 0
    over = (measured.rate - target) / target if target else inf
    wrapped = _to_int32(_round_to_long(over * measured.window_ms))
    return max(0, wrapped)


def request_mute_ms(measured: Measured, target_percent: float, window: QuotaWindow) -> int:
    """X of the request quota: the same, but never longer than one sample."""
    return min(mute_ms(measured, target_percent), window.sample_seconds * 1000)


def _round_to_long(value: float) -> int:
    if isnan(value):
        return 0
    if value >= _LONG_MAX:
        return _LONG_MAX
    return max(floor(value + 0.5), -_LONG_MAX - 1)


def _to_int32(value: int) -> int:
    low = value & 0xFFFF_FFFF
    return low - 2**32 if low >= 2**31 else low


def predicted_mute_seconds(exposure: int, target: int, window: QuotaWindow) -> float:
    """The longest mute when a bucket that may hold a full window at `exposure` is set to `target` (both bytes/s, above 0).

    W x E / T - (n - 1) samples, W the whole window: 11 E / T - 10 with Kafka's defaults (control.md 1.2). Never below 0.
    """
    return max(0.0, window.seconds * exposure / target - (window.samples - 1) * window.sample_seconds)


def largest_safe_step(exposure: int, max_mute_seconds: int, window: QuotaWindow) -> int:
    """The lowest quota in bytes/s that may follow `exposure` with no mute above `max_mute_seconds`.

    ceil(E / rho), rho = (max_mute + (n - 1) samples) / W; half of E with Kafka's defaults and 12 s. Where even an unchanged
    quota may mute for longer than allowed (one sample is longer than max_mute), the answer is `exposure`: no step is safe.
    """
    allowed_seconds = max_mute_seconds + (window.samples - 1) * window.sample_seconds
    return min(exposure, -(-exposure * window.seconds // allowed_seconds))


def step_distance_seconds(window: QuotaWindow) -> int:
    """How long to wait between two lowerings, so that the next one does not meet the burst that follows a mute.

    30 s were measured for a window of 11 s; other windows in proportion, rounded up.
    """
    distance_seconds, of_window_seconds = _MEASURED_STEP_DISTANCE
    return ceil(window.seconds * distance_seconds / of_window_seconds)
