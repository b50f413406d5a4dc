"""One direction at one moment, as cuts and raises look at it: cards, buckets, and who could give how much where."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller_logic.model import Level
from controller_logic.readings import Direction
from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.input import ThrottleInput
from controller_logic.throttle.pressure import Card, blind_brokers
from controller_logic.throttle.settings import ThrottleSettings

CUT_ORDER = (Level.L3, Level.L2, Level.L1)
RAISE_ORDER = (Level.L1, Level.L2, Level.L3)


@dataclass(frozen=True, slots=True)
class Scene:
    """`tiers` are the buckets of this direction by level, `cuttable` what each level could give on each broker, in bytes/s.

    `unmeasured` are the brokers that lead for some of them and tell nothing of what clients send.
    """

    now_seconds: float
    direction: Direction
    settings: ThrottleSettings
    scrape_seconds: float
    cards: Mapping[int, Card]
    tiers: Mapping[Level, tuple[Bucket, ...]]
    cuttable: Mapping[tuple[int, Level], float]
    unmeasured: frozenset[int] = frozenset()

    @property
    def blind(self) -> frozenset[int]:
        return blind_brokers(self.cards)

    @property
    def all_blind(self) -> bool:
        return all(not card.known for card in self.cards.values())

    @property
    def throttled(self) -> tuple[Bucket, ...]:
        """Every bucket that is below its contract by our decision."""
        return tuple(bucket for level in RAISE_ORDER for bucket in self.tiers[level] if bucket.is_throttled)

    def can_give(self, broker: int, levels: Iterable[Level] = CUT_ORDER) -> float:
        """What these levels send there above their floors, in bytes/s."""
        return sum(self.cuttable.get((broker, level), 0.0) for level in levels)

    def matters(self, broker: int, bytes_per_second: float, share: float) -> bool:
        """Whether so much is more than this share of the broker's limit."""
        limit = self.cards[broker].limit
        return limit is not None and bytes_per_second > share * limit


def scene_of(given: ThrottleInput, direction: Direction, cards: Mapping[int, Card], buckets: Sequence[Bucket]) -> Scene:
    """The scene of one direction; `buckets` may be of both."""
    mine = [bucket for bucket in buckets if bucket.rate.direction is direction]
    tiers = {level: tuple(bucket for bucket in mine if bucket.level is level) for level in CUT_ORDER}
    unmeasured = frozenset(broker for bucket in mine for broker in bucket.unmeasured)
    scrape_seconds = given.readings.scrape_seconds
    return Scene(given.now_seconds, direction, given.settings, scrape_seconds, cards, tiers, _cuttable(mine), unmeasured)


def _cuttable(buckets: Iterable[Bucket]) -> dict[tuple[int, Level], float]:
    given: dict[tuple[int, Level], float] = {}
    for bucket in buckets:
        for broker in bucket.flows.keys() | bucket.unmeasured:
            given[broker, bucket.level] = given.get((broker, bucket.level), 0.0) + bucket.gives(broker)
    return given
