"""A broker's throttle arithmetic, event by event, as Kafka's own classes do it.

A broker keeps a ring of samples per bucket, measures the rate over the samples it still holds, and
mutes a client for as long as that rate would need to fall to the quota. Times are integer
milliseconds. No state is kept here: rings are values.
"""

from dataclasses import field
from enum import Enum
from math import floor, inf, isnan

from tidegate_logic.model import QuotaWindow
from tidegate_logic.value import value

_LONG_MAX = 2**63 - 1


class SampleRule(Enum):
    """How a Kafka version forgets samples."""

    UP_TO_3_7 = "up to 3.7"
    FROM_3_8 = "3.8 and later"


@value(frozen=True, slots=True)
class Sample:
    """One slot of the ring: when it began, when it last counted something, and the sum it holds."""

    start_ms: int
    last_event_ms: int
    total: float = 0.0


@value(frozen=True, slots=True)
class SampleRing:
    """The samples of one bucket on one broker. A new ring is empty; `record` and `measure` return
    the next ring.
    """

    window: QuotaWindow = field(default_factory=QuotaWindow)
    rule: SampleRule = SampleRule.FROM_3_8
    samples: tuple[Sample, ...] = ()
    current: int = 0

    @property
    def sample_ms(self) -> int:
        return self.window.sample_seconds * 1000

    @property
    def slots(self) -> int:
        """3.8 and later keep one slot more, so that the oldest sample may overlap the edge of the
        window.
        """
        return self.window.samples + (1 if self.rule is SampleRule.FROM_3_8 else 0)


@value(frozen=True, slots=True)
class Measured:
    """A rate in units per second and the window in milliseconds that it was taken over."""

    rate: float
    window_ms: int


def record(ring: SampleRing, amount: float, *, now_ms: int) -> SampleRing:
    """Count `amount` (bytes, or request time) at `now_ms` in the current sample, or in a fresh one
    if that is full.
    """
    if not ring.samples:
        ring = SampleRing(ring.window, ring.rule, (Sample(now_ms, now_ms),), 0)
    elif now_ms - ring.samples[ring.current].start_ms >= ring.sample_ms:
        ring = _advance(ring, now_ms)
    sample = ring.samples[ring.current]
    counted = Sample(sample.start_ms, now_ms, sample.total + amount)
    samples = _with(ring.samples, ring.current, counted)
    return SampleRing(ring.window, ring.rule, samples, ring.current)


def _advance(ring: SampleRing, now_ms: int) -> SampleRing:
    index = (ring.current + 1) % ring.slots
    samples = _with(ring.samples, index, Sample(now_ms, now_ms))
    return SampleRing(ring.window, ring.rule, samples, index)


def _with(samples: tuple[Sample, ...], index: int, sample: Sample) -> tuple[Sample, ...]:
    return (*samples[:index], sample, *samples[index + 1 :])


def _purge(ring: SampleRing, now_ms: int) -> SampleRing:
    """Empty the samples that are too old; an emptied one counts as a sample that starts now."""
    samples = ring.samples or (Sample(now_ms, now_ms),)
    if ring.rule is SampleRule.UP_TO_3_7:
        ages = [now_ms - sample.start_ms for sample in samples]
    else:
        ages = [now_ms - sample.last_event_ms for sample in samples]
    keep_ms = ring.window.seconds * 1000
    if ring.samples and max(ages) < keep_ms:
        return ring
    kept = tuple(
        [
            Sample(now_ms, now_ms) if age_ms >= keep_ms else sample
            for sample, age_ms in zip(samples, ages, strict=True)
        ]
    )
    return SampleRing(ring.window, ring.rule, kept, ring.current)


def measure(ring: SampleRing, *, now_ms: int) -> tuple[SampleRing, Measured]:
    """Kafka's `Rate`: the sum over the window, where a window younger than n - 1 whole samples
    counts as that long.

    Used for client quotas. A ring without samples measures 0 over the n - 1 samples (at least one
    millisecond).
    """
    ring = _purge(ring, now_ms)
    elapsed_ms = now_ms - min([sample.start_ms for sample in ring.samples])
    lacking = max(0, ring.window.samples - 1 - elapsed_ms // ring.sample_ms)
    window_ms = max(1, elapsed_ms + lacking * ring.sample_ms)
    return ring, Measured(_total(ring) / (window_ms / 1000), window_ms)


def most_held(ring: SampleRing) -> float:
    """The most that any measurement of this ring can find in it, whenever it is made."""
    return _total(ring)


def _total(ring: SampleRing) -> float:
    return sum([sample.total for sample in ring.samples])


def mute_ms(measured: Measured, target: float) -> int:
    """X: how long a broker mutes a client whose bucket measures this under a quota of `target`
    units per second.

    X = (O - T) / T x W, rounded half up and then cut to 32 bits as the broker does: a result that
    does not fit wraps, and one that wraps to zero or below mutes no client. 0 = not muted.
    """
    if measured.rate <= target:
        return 0
    over = (measured.rate - target) / target if target else inf
    wrapped = _to_int32(_round_to_long(over * measured.window_ms))
    return max(0, wrapped)


def _round_to_long(value: float) -> int:
    if isnan(value):
        return 0
    if value >= _LONG_MAX:
        return _LONG_MAX
    return max(floor(value + 0.5), -_LONG_MAX - 1)


def _to_int32(value: int) -> int:
    low = value & 0xFFFF_FFFF
    return low - 2**32 if low >= 2**31 else low
