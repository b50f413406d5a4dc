"""How far recommended contracts may rise together: a tier's part of what the brokers may carry is its part of today's promises.

Of the sum of all brokers' limits in a direction each tier has the share that its declared contracts have of all declared contracts. Raises
that do not fit into it are cut by the same factor, so that no member is served before another; contracts that come down make room for
those of the same tier. A direction in which a broker has no limit bounds nothing. Nothing is ever lowered for this.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from controller_logic.broker_limit import BrokerLimits
from controller_logic.model import Member, QuotaKey, RateForm, Tier
from controller_logic.readings import Direction
from controller_logic.value import value

_WAYS = {QuotaKey.CONSUMER_BYTE_RATE: Direction.EGRESS, QuotaKey.PRODUCER_BYTE_RATE: Direction.INGRESS}


@value(frozen=True, slots=True)
class Wish:
    """One byte rate of one member: `declared`, `asked` for by usage, `wanted` of that, and what a rate is multiplied by to be the total.

    All are `declared` where usage says nothing: what was promised still takes part of the share. What was recommended before `is_kept`, and
    is not cut any more.
    """

    tier: Tier
    member: Member
    key: QuotaKey
    form: RateForm
    declared: int
    asked: int
    wanted: int
    times: int
    is_kept: bool = False


Cuts = Mapping[tuple[str, QuotaKey], float]


def limit_of_all(limits: BrokerLimits, brokers: Collection[int], key: QuotaKey) -> int | None:
    """The limits of all brokers together that way, in bytes per second; None where one has none, or no broker is known."""
    each = [limits.of(broker).limit(_WAYS[key]) for broker in brokers]
    known = [limit for limit in each if limit is not None]
    return sum(known) if known and len(known) == len(each) else None


def smallest_limit(limits: BrokerLimits, brokers: Collection[int], key: QuotaKey) -> int | None:
    """The lowest limit of any broker that way: no quota above it means anything. None where none has one."""
    return min((limit for broker in brokers if (limit := limits.of(broker).limit(_WAYS[key])) is not None), default=None)


def cuts_of(wishes: Iterable[Wish], room: Mapping[QuotaKey, int | None]) -> Cuts:
    """By tier and byte rate, which part (0 to 1) of each raise fits into the tier's share of `room`; absent = all of it."""
    declared, kept, raised = _sums(wishes)
    everybody: dict[QuotaKey, int] = defaultdict(int)
    for (_, key), total in declared.items():
        everybody[key] += total
    cuts: dict[tuple[str, QuotaKey], float] = {}
    for (tier_key, key), raises in raised.items():
        limit = room.get(key)
        if limit is None or not raises:
            continue
        share = limit * declared[tier_key, key] / everybody[key]
        cuts[tier_key, key] = max(0.0, min(1.0, (share - kept[tier_key, key]) / raises))
    return cuts


_Sums = dict[tuple[str, QuotaKey], int]


def _sums(wishes: Iterable[Wish]) -> tuple[_Sums, _Sums, _Sums]:
    """Totals by tier and byte rate: what is declared, what stays of it, and what the raises add."""
    declared: _Sums = defaultdict(int)
    kept: _Sums = defaultdict(int)
    raised: _Sums = defaultdict(int)
    for wish in wishes:
        place = (wish.tier.key, wish.key)
        declared[place] += wish.declared * wish.times
        stays = wish.wanted if wish.is_kept else min(wish.declared, wish.wanted)
        kept[place] += stays * wish.times
        raised[place] += (wish.wanted - stays) * wish.times
    return declared, kept, raised
