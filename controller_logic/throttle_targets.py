"""Where each entity of one tier should end so that every broker in need gets what it needs: a water-fill, weighted by contracts.

On each broker the largest givers come down to a common share of their contracts; over all brokers the lowest such value counts, because a
native quota is one number. Targets say nothing about speed: see `throttle_cuts.py`. All amounts are bytes per second.
"""

from collections.abc import Mapping, Sequence

from controller_logic.throttle.buckets import Bucket
from controller_logic.throttle.input import RateKey
from controller_logic.throttle.settings import FEW, FEW_ENTITIES

_HALVINGS = 50  # of the interval that holds the share: finer than a byte


def targets_of(tier: Sequence[Bucket], needs: Mapping[int, float]) -> dict[RateKey, float]:
    """The value that each giver of the tier should end at; entities that need not give are absent.

    `needs` has brokers that tell what their clients send; see `blind_targets` for the others.
    """
    targets: dict[RateKey, float] = {}
    for broker, need in needs.items():
        givers = largest_givers(tier, broker, need)
        share = common_share(givers, broker, need)
        for bucket in givers:
            value = max(bucket.floor.value, share * bucket.contract)
            if value < bucket.sends(broker):
                targets[bucket.key] = min(value, targets.get(bucket.key, value))
    return targets


def largest_givers(tier: Sequence[Bucket], broker: int, need: float) -> list[Bucket]:
    """Few who are cut deep rather than all a little, because writes are dear: those who can give FEW times the need, at least twelve."""
    chosen: list[Bucket] = []
    given = 0.0
    for bucket in sorted((one for one in tier if one.gives(broker) > 0), key=lambda one: -one.gives(broker)):
        if given >= FEW * need and len(chosen) >= FEW_ENTITIES:
            break
        chosen.append(bucket)
        given += bucket.gives(broker)
    return chosen


def common_share(givers: Sequence[Bucket], broker: int, need: float) -> float:
    """theta: the share of their contracts at which the givers together send `need` less; 0 where even their floors are too much."""
    sending = [(bucket.sends(broker), bucket.floor.value, bucket.contract) for bucket in givers]
    goal = sum(sends for sends, _, _ in sending) - need
    low, high = 0.0, max((sends / contract for sends, _, contract in sending), default=0.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum([min(sends, max(floor, middle * contract)) for sends, floor, contract in sending]) > goal:
            high = middle
        else:
            low = middle
    return low


def blind_targets(tier: Sequence[Bucket], brokers: frozenset[int]) -> dict[RateKey, float]:
    """Where nobody tells what clients send: the whole tier that leads there goes to its floors, one safe step after the other."""
    return {bucket.key: float(bucket.floor.value) for bucket in tier if bucket.unmeasured & brokers and bucket.cap > bucket.floor.value}
