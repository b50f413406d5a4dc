"""Contract x partition leaders -> the one number that a native Kafka quota is on every broker.

With l_b leaders of the member's topics on broker b, k brokers that lead any, and m partitions, a
promise of q bytes per second and partition becomes (control.md 5):

    Max   q x max l_b          no partition starves; permits skew times the promise
    Mean  ceil(q x m / k)      permits the promise; a partition on a crowded broker gets less than q
    Min   q x min l_b          no broker exceeds its own share; most partitions get less than q
    Adaptive   between Mean and Max, in shares of 1/1024 that `adaptive.py` moves by measured rates

Where consumers read from followers, l_b counts what each broker serves: see `fetch_spread.py`.
Nothing here knows what stands in Kafka or when a number may be lowered.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Set
from dataclasses import field

from tidegate_logic.model import (
    MAX_BYTE_RATE,
    MIN_BYTE_RATE,
    RateForm,
    ScalingMethod,
    TopicLeaders,
    Topology,
)
from tidegate_logic.value import value

# how finely Adaptive divides the way from Mean to Max; whole numbers, so that a value never jitters
ADAPTIVE_SHARES = 1024


@value(frozen=True, slots=True)
class LeaderSpread:
    """How the leaders of a member's topics lie on the brokers.

    `largest` and `smallest` are leaders on one broker, over the brokers that lead at least one;
    both 0 without leaders. `leaderless` partitions have no leader now; `missing` are topics that
    were named and do not exist. `skew` is k x max l_b / m over the known leaders; 1.0 = even; None
    when no broker leads. `led` has the leaders on each broker that leads.

    A spread of reads has, for leaders, what each broker serves; `led`, `largest` and `smallest` are
    then in `parts` of a partition, because several brokers may share one.
    """

    topics: int = 0
    leaders: int = 0
    brokers: int = 0
    largest: int = 0
    smallest: int = 0
    leaderless: int = 0
    missing: tuple[str, ...] = ()
    skew: float | None = field(default=None, compare=False)
    led: Mapping[int, int] = field(default_factory=dict, compare=False)
    parts: int = 1

    @property
    def leading(self) -> Set[int]:
        """The brokers that lead."""
        return self.led.keys()

    @property
    def partitions(self) -> int:
        """m: all partitions, with a leader or without."""
        return self.leaders + self.leaderless

    @property
    def complete(self) -> bool:
        """Whether all topics exist and all partitions have a leader; else no quota is lowered."""
        return not self.leaderless and not self.missing


class Leaders:
    """One topology, asked for many members; answers are kept, since many name the same topics."""

    def __init__(self, topology: Topology) -> None:
        self._topics = topology.topics
        self.topology = topology
        self.live_brokers = len(topology.brokers)
        self._sorted_names: list[str] | None = None
        self._spreads: dict[tuple[str, ...], LeaderSpread] = {}

    def spread(self, patterns: tuple[str, ...]) -> LeaderSpread:
        """The spread of all topics that match, each counted once however many patterns name it.

        A pattern ending in `*` means every topic that starts with the text before it, and may match
        none; any other is a name, and is reported as missing when the topology lacks it.
        """
        known = self._spreads.get(patterns)
        if known is None:
            topics, missing = self.matching(patterns)
            known = self._spreads[patterns] = _spread_of(topics, missing)
        return known

    def matching(
        self, patterns: tuple[str, ...]
    ) -> tuple[Collection[TopicLeaders], tuple[str, ...]]:
        """The topics that match, each once, and the names that the topology lacks."""
        topics: dict[str, TopicLeaders] = {}
        missing: list[str] = []
        for pattern in patterns:
            if (topic := self._topics.get(pattern)) is not None:
                topics[pattern] = topic
            elif pattern.endswith("*"):
                topics.update(
                    {name: self._topics[name] for name in self._starting_with(pattern[:-1])}
                )
            elif pattern not in missing:
                missing.append(pattern)
        return topics.values(), tuple(missing)

    def _starting_with(self, prefix: str) -> list[str]:
        if self._sorted_names is None:
            self._sorted_names = sorted(self._topics)
        names = self._sorted_names
        first = last = bisect_left(names, prefix)
        while last < len(names) and names[last].startswith(prefix):
            last += 1
        return names[first:last]


def _spread_of(topics: Collection[TopicLeaders], missing: tuple[str, ...]) -> LeaderSpread:
    led: Mapping[int, int] = {}
    leaderless = 0
    for topic in topics:
        leaderless += topic.leaderless
        led = _added(led, topic.leaders) if led else topic.leaders
    counts = sorted(led.values())
    if counts and not counts[0]:  # a broker may be listed with no leaders
        led = {broker: leaders for broker, leaders in led.items() if leaders}
        counts = sorted(led.values())
    if not counts:
        return LeaderSpread(len(topics), 0, 0, 0, 0, leaderless, missing)
    total, brokers, smallest, largest = sum(counts), len(counts), counts[0], counts[-1]
    skew = brokers * largest / total
    return LeaderSpread(
        len(topics), total, brokers, largest, smallest, leaderless, missing, skew, led
    )


def _added(led: Mapping[int, int], more: Mapping[int, int]) -> Mapping[int, int]:
    """Leaders by broker, of both together."""
    merged = dict(led)
    merged.update(more)
    if len(merged) < len(led) + len(more):
        for broker in led.keys() & more.keys():
            merged[broker] = led[broker] + more[broker]
    return merged


@value(frozen=True, slots=True)
class Scale:
    """The native quota: `times` the promised rate over `parts`, rounded up, in Kafka's bounds."""

    times: int
    parts: int = 1

    def of(self, bytes_per_second: int) -> int:
        scaled = -(-bytes_per_second * self.times // self.parts)
        return scaled if MIN_BYTE_RATE <= scaled <= MAX_BYTE_RATE else within_bounds(scaled)

    def over(self, partitions: int) -> "Scale":
        """The same of a promised total: `partitions` share it."""
        return Scale(self.times, self.parts * max(1, partitions))


# an enum's member costs ten times as much to look up as a name of this module
_MEAN, _MIN = ScalingMethod.MEAN, ScalingMethod.MIN


def partition_scale(spread: LeaderSpread, method: ScalingMethod) -> Scale:
    """What a promise per partition is multiplied by.

    No broker leads: the promise x 1, never 0, because stale clients still send and 0 means
    unlimited to Kafka.
    """
    if not spread.leaders:
        return Scale(1)
    if method is _MEAN:
        return Scale(spread.partitions, spread.brokers)
    # Adaptive begins at Max and goes by `adaptive_scale`
    return Scale(spread.smallest if method is _MIN else spread.largest, spread.parts)


def adaptive_scale(spread: LeaderSpread, share: int) -> Scale:
    """What a promise per partition is multiplied by, `share` of the way from Mean to Max.

    0 is Mean, ADAPTIVE_SHARES is Max. Max where no broker leads.
    """
    if not spread.leaders or share >= ADAPTIVE_SHARES:
        return partition_scale(spread, ScalingMethod.MAX)
    # in parts of a broker; leaderless partitions raise Mean, not Max
    to_mean = spread.partitions * spread.parts
    to_max = max(0, spread.largest * spread.brokers - to_mean)
    return Scale(
        to_mean * ADAPTIVE_SHARES + max(0, share) * to_max,
        spread.brokers * ADAPTIVE_SHARES * spread.parts,
    )


def share_scale(brokers: int) -> Scale:
    """What a promised total is multiplied by: its share on each broker; with none, the whole."""
    return Scale(1, max(1, brokers))


def expected_scale(
    form: RateForm | None, spread: LeaderSpread, method: ScalingMethod
) -> Scale | None:
    """What a promise in this form is multiplied by on a spread; None = by nothing."""
    if form is RateForm.PER_PARTITION:
        return partition_scale(spread, method)
    return share_scale(spread.brokers) if form is RateForm.TOTAL else None


def read_scale(form: RateForm | None, reach: LeaderSpread, share: int) -> Scale:
    """What a promise is multiplied by where reads were measured, `share` of the way.

    0 = the brokers that may serve share the total, ADAPTIVE_SHARES = one may have to serve it all.
    """
    scale = adaptive_scale(reach, share)
    return scale.over(reach.partitions) if form is RateForm.TOTAL else scale


def within_bounds(bytes_per_second: int) -> int:
    """The nearest rate that Kafka throttles on (1024 B/s) and that a double holds (2^53 - 1)."""
    if bytes_per_second < MIN_BYTE_RATE:
        return MIN_BYTE_RATE
    return bytes_per_second if bytes_per_second < MAX_BYTE_RATE else MAX_BYTE_RATE
