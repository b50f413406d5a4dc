"""From what a member moved to the rate that its contract would need, in the form in which the contract is written.

    perBroker      the busiest broker's p99: the quota is the same on each
    total          p99 of all brokers together, or the busiest broker's times the brokers, where that is more: a total is divided evenly
    perPartition   the same over the partitions; what the busiest broker moves only because it leads more of them is taken out again,
                   for the quota is scaled by leaders already

All of them times the headroom, rounded up to three significant digits, so that a number looks like one that a person would write. Nothing
here knows floors, limits or what was recommended before.
"""

from dataclasses import dataclass
from math import ceil, floor, log10

from controller_logic.contracts.leaders import Leaders
from controller_logic.model import MAX_BYTE_RATE, Contract, Member, RateForm
from controller_logic.recommend_usage import DirectionUsage

_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Ground:
    """What a rate of a contract means over all brokers: `times` it is the total. `skew` is how unevenly its leaders lie, 1 = even."""

    times: int
    skew: float = 1.0


def ground_of(member: Member, contract: Contract, leaders: Leaders | None) -> Ground | None:
    """None where it depends on leaders or topics that are not known in full."""
    if contract.form is RateForm.TOTAL:
        return Ground(1)
    if leaders is None:
        return None
    spread = leaders.spread(member.topics) if member.topics else None
    if contract.form is RateForm.PER_BROKER:
        return Ground(max(1, leaders.live_brokers if spread is None else spread.brokers))
    if spread is None or spread.missing or not spread.partitions:
        return None
    return Ground(spread.partitions, max(1.0, spread.skew or 1.0))


def needed_rate(usage: DirectionUsage, form: RateForm, ground: Ground, *, headroom_percent: int) -> int:
    """The rate in the contract's form that usage asks for, headroom included; never above what Kafka can hold."""
    if form is RateForm.PER_BROKER:
        per_rate = usage.p99_busiest
    else:
        per_rate = max(usage.p99_total, usage.p99_busiest * max(1, usage.brokers) / ground.skew)
        per_rate /= ground.times if form is RateForm.PER_PARTITION else 1
    return min(MAX_BYTE_RATE, rounded_up(per_rate * (100 + headroom_percent) / 100))


def rounded_up(rate: float) -> int:
    """The next whole number with three significant digits: 1,234,567 becomes 1,240,000."""
    if rate <= 0:
        return 0
    step = int(10 ** max(0, floor(log10(rate)) + 1 - _DIGITS))
    return ceil(rate / step) * step
