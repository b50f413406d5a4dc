"""Usage -> recommended contracts: what members would need by what they moved, within bounds.

A rate is recommended from p99 of five-minute rates and headroom (`needed_rate`), never below the
tier's throttled rate, never above a broker's limit, and raised only as far as the tier's share of
the brokers' limits goes (`cuts_of`). What differs from the contract by less than a tenth is not
recommended, and a recommendation moves only when it would move by a tenth.

Nothing is recommended on usage that says nothing: less than 80 % of the window covered, or the
member throttled for most of it, or idle.

Where the policy allows it the recommended rate takes the declared one's place, no further from it
than the policy's bound. That happens before overrides are laid over contracts, so a person's
override always wins. The objects themselves are never written.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10

from tidegate_logic.contracts.fetch_spread import FetchSpread, Reads
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.model import (
    DIRECTION_OF,
    MAX_BYTE_RATE,
    MIN_BYTE_RATE,
    Advice,
    AdviceTerms,
    BrokerLimits,
    Contract,
    DirectionUsage,
    Entity,
    Member,
    QuotaKey,
    RateForm,
    Tier,
    Topology,
    Usage,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value
from tidegate_logic.words import rate_words

# From what a member moved to the rate that its contract would need, in the contract's own form.
#
#     perBroker      the busiest broker's p99: the quota is the same on each
#     total          p99 of all brokers together, or the busiest broker's times the brokers,
#                    where that is more: a total is divided evenly
#     perPartition   the same over the partitions; what the busiest broker moves only because it
#                    leads more of them is taken out again, for the quota is scaled by leaders
#
# All of them times the headroom, rounded up to three significant digits, so that a number looks
# like one that a person would write. Floors, limits and earlier recommendations come later.


_DIGITS = 3


@dataclass(frozen=True, slots=True)
class RateBasis:
    """What a rate means over all brokers: `times` it is the total. `skew` of leaders, 1 = even."""

    times: int
    skew: float = 1.0


def scaling_of(member: Member, contract: Contract, leaders: Leaders | None) -> RateBasis | None:
    """The basis of the contract; None if leaders or topics it needs are not known in full."""
    if contract.form is RateForm.TOTAL:
        return RateBasis(1)
    if leaders is None:
        return None
    spread = leaders.spread(member.topics) if member.topics else None
    if contract.form is RateForm.PER_BROKER:
        return RateBasis(max(1, leaders.live_brokers if spread is None else spread.brokers))
    if spread is None or spread.missing or not spread.partitions:
        return None
    return RateBasis(spread.partitions, max(1.0, spread.skew or 1.0))


def fetch_scaling_of(basis: RateBasis, reads: FetchSpread, form: RateForm) -> RateBasis:
    """The basis of a fetch rate where followers serve reads.

    What the busiest broker moves only because consumers read there is taken out again.
    """
    if form is RateForm.TOTAL and reads.reach is None:
        return basis
    return replace(basis, skew=max(1.0, reads.widest.skew or 1.0))


def needed_rate(
    usage: DirectionUsage, form: RateForm, basis: RateBasis, *, headroom_percent: int
) -> int:
    """The rate in the contract's form that usage asks for with headroom, within Kafka's bound."""
    if form is RateForm.PER_BROKER:
        per_rate = usage.p99_busiest
    else:
        per_rate = max(usage.p99_total, usage.p99_busiest * max(1, usage.brokers) / basis.skew)
        per_rate /= basis.times if form is RateForm.PER_PARTITION else 1
    return min(MAX_BYTE_RATE, rounded_up(per_rate * (100 + headroom_percent) / 100))


def rounded_up(rate: float) -> int:
    """The next whole number with three significant digits: 1,234,567 becomes 1,240,000."""
    if rate <= 0:
        return 0
    step = int(10 ** max(0, floor(log10(rate)) + 1 - _DIGITS))
    return ceil(rate / step) * step


# How far recommended contracts may rise together: each tier has its share of the limits.
#
# Of the sum of all brokers' limits in a direction each tier has the share that its declared
# contracts have of all declared contracts. Raises that do not fit into it are cut by the same
# factor, so that no member is served before another; contracts that come down make room for those
# of the same tier. A direction in which a broker has no limit bounds nothing. Nothing is ever
# lowered for this.


@value(frozen=True, slots=True)
class RateRequest:
    """One byte rate of one member: `declared`, `asked` for by usage, and `wanted` of that.

    `times` is what a rate is multiplied by to be the total. All three rates are `declared` where
    usage says nothing: what was promised still takes part of the share. What was recommended before
    `is_kept`, and is not cut any more.
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
    """The sum of all brokers' limits in bytes/s; None = one has none, or no broker is known."""
    each = [limits.of(broker).limit_of_rates(DIRECTION_OF[key]) for broker in brokers]
    known = [limit for limit in each if limit is not None]
    return sum(known) if known and len(known) == len(each) else None


def smallest_limit(limits: BrokerLimits, brokers: Collection[int], key: QuotaKey) -> int | None:
    """The lowest limit of any broker in bytes/s, which bounds every quota; None = none has one."""
    return min(
        (
            limit
            for broker in brokers
            if (limit := limits.of(broker).limit_of_rates(DIRECTION_OF[key])) is not None
        ),
        default=None,
    )


def cuts_of(wishes: Iterable[RateRequest], room: Mapping[QuotaKey, int | None]) -> Cuts:
    """Which part (0 to 1) of each raise fits, by tier and byte rate; absent = all of it.

    It has to fit into the tier's share of `room`.
    """
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


def _sums(wishes: Iterable[RateRequest]) -> tuple[_Sums, _Sums, _Sums]:
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


MIN_COVERAGE = 0.8
MOST_THROTTLED = 0.5
WORTH_PERCENT = 10

_KEYS = tuple(DIRECTION_OF)
Place = tuple[Entity, QuotaKey]


@value(frozen=True, slots=True)
class PreviousAdvice:
    """A recommendation of the last pass: its form, what usage asked for, and what it became."""

    form: RateForm
    asked: int
    recommended: int


@dataclass(frozen=True, slots=True)
class AdviceBasis:
    """All that recommendations are made of but those before."""

    usage: Usage
    tiers: tuple[Tier, ...]
    terms: AdviceTerms = field(default_factory=AdviceTerms)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    topology: Topology | None = None

    def differs(self, other: "AdviceBasis") -> bool:
        """Whether it says anything else but of leaders."""
        return (self.usage, self.tiers, self.terms, self.limits) != (
            other.usage,
            other.tiers,
            other.terms,
            other.limits,
        )


@dataclass(frozen=True, slots=True)
class Recommendations:
    """The tiers with applied rates in them, and the advice on every member by tier and name.

    `kept` and `basis` are what the next pass goes by. `is_complete` = all leaders that it needs
    were known.
    """

    tiers: tuple[Tier, ...] | None = None
    advice: Mapping[tuple[str, str], tuple[Advice, ...]] = field(default_factory=dict)
    kept: Mapping[Place, PreviousAdvice] = field(default_factory=dict)
    basis: AdviceBasis | None = None
    is_complete: bool = False


def advise(basis: AdviceBasis, before: Recommendations | None = None) -> Recommendations:
    """Advice on every byte rate that a contract names. `before` is what the last pass advised.

    Of members that overlap only the first counts. Leaders that move, brokers that die or come back
    change no advice that was made on known leaders: they are reviewed again with the next figures.
    A recommendation that usage asks for as before stays even then, unless it was made for other
    limits or terms.
    """
    if before is None or before.basis is None:
        return _Advisor(basis, {}).advise()
    if not basis.differs(before.basis) and (before.is_complete or basis.topology is None):
        return before
    as_before = (before.basis.terms, before.basis.limits) == (basis.terms, basis.limits)
    return _Advisor(basis, before.kept if as_before else {}).advise()


class _Advisor:
    """The advice of one pass."""

    def __init__(self, basis: AdviceBasis, kept: Mapping[Place, PreviousAdvice]) -> None:
        self._basis = basis
        self._usage = basis.usage
        self._window = f"the {basis.usage.which} {time_words(basis.usage.days)}"
        self._terms = basis.terms
        self._kept = kept
        brokers = basis.topology.brokers if basis.topology is not None else frozenset()
        self._live_brokers = len(brokers)
        self._leaders = Leaders(basis.topology) if basis.topology is not None and brokers else None
        self._reads = Reads.of_topology(self._leaders)
        self._most = {key: smallest_limit(basis.limits, brokers, key) for key in _KEYS}
        self._room = {key: limit_of_all(basis.limits, brokers, key) for key in _KEYS}

    def advise(self) -> Recommendations:
        wishes: dict[Place, RateRequest] = {}
        refusals: dict[Place, Advice] = {}
        for tier, member, contract in _contracts(self._basis.tiers):
            by_leaders = scaling_of(member, contract, self._leaders)
            reads = self._reads.of(member) if self._reads is not None else None
            for key, declared in _rates(contract):
                basis = by_leaders
                if basis is not None and reads is not None and key is QuotaKey.CONSUMER_BYTE_RATE:
                    basis = fetch_scaling_of(basis, reads, contract.form)
                said = RateRequest(
                    tier,
                    member,
                    key,
                    contract.form,
                    declared,
                    declared,
                    declared,
                    0 if basis is None else basis.times,
                )
                problem = self._problem(said, basis)
                if problem is not None:
                    refusals[member.entity, key] = Advice(
                        tier.key, member.name, key, declared, *problem
                    )
                wishes[member.entity, key] = (
                    said if problem is not None else self._wish(said, basis)
                )
        return self._gathered(wishes, refusals)

    def _gathered(
        self, wishes: Mapping[Place, RateRequest], refusals: Mapping[Place, Advice]
    ) -> Recommendations:
        cuts = cuts_of(wishes.values(), self._room)
        advice: dict[tuple[str, str], tuple[Advice, ...]] = {}
        kept: dict[Place, PreviousAdvice] = {}
        for place, wish in wishes.items():
            said = refusals.get(place) or self._advice(wish, cuts)
            owner = (wish.tier.key, wish.member.name)
            advice[owner] = (*advice.get(owner, ()), said)
            if said.recommended is not None:
                kept[place] = PreviousAdvice(wish.form, wish.asked, said.recommended)
        is_complete = self._leaders is not None and not any(
            one.reason is Reason.TOPOLOGY_INCOMPLETE for one in refusals.values()
        )
        return Recommendations(
            _applied(self._basis.tiers, advice), advice, kept, self._basis, is_complete
        )

    def _problem(self, wish: RateRequest, basis: RateBasis | None) -> tuple[Reason, str] | None:
        problem = _unusable(self._usage.figures.get((wish.member.entity, wish.key)), self._window)
        if problem is None and basis is None and self._before(wish) is None:
            return (
                Reason.TOPOLOGY_INCOMPLETE,
                "not all partitions of its topics are known, so there is no rate for each",
            )
        return problem

    def _before(self, wish: RateRequest) -> PreviousAdvice | None:
        """What was recommended before, if the contract still has the same form."""
        before = self._kept.get((wish.member.entity, wish.key))
        return before if before is not None and before.form is wish.form else None

    def _wish(self, wish: RateRequest, basis: RateBasis | None) -> RateRequest:
        """What usage asks for, and what of it is wanted.

        As before where that is less than a tenth away, or leaders are not known now.
        """
        before, floor = self._before(wish), _floor(wish)
        asked = wish.declared
        if basis is not None:
            figures = self._usage.figures[wish.member.entity, wish.key]
            asked = needed_rate(
                figures, wish.form, basis, headroom_percent=self._terms.headroom_percent
            )
        if before is not None and (basis is None or not _is_worth_it(asked, before.asked)):
            return _with_wants(wish, before.asked, max(before.recommended, floor), is_kept=True)
        limit, wanted = self._most[wish.key], asked
        if limit is not None and basis is not None:
            wanted = min(
                asked,
                max(wish.declared, _most(limit, wish.form, basis, live_brokers=self._live_brokers)),
            )
        return _with_wants(wish, asked, max(wanted, floor))

    def _advice(self, wish: RateRequest, cuts: Cuts) -> Advice:
        part = 1.0 if wish.is_kept else cuts.get((wish.tier.key, wish.key), 1.0)
        wanted = (
            wish.wanted
            if wish.wanted <= wish.declared
            else wish.declared + int((wish.wanted - wish.declared) * part)
        )
        usage = self._usage.figures[wish.member.entity, wish.key]
        measured_text = _words(usage, self._window, headroom_percent=self._terms.headroom_percent)
        if not _is_worth_it(wanted, wish.declared):
            spent = wish.asked > wish.declared and _is_worth_it(wish.asked, wish.declared)
            reason = Reason.SHARE_SPENT if spent else Reason.CONTRACT_FITS
            why = (
                "the tier's share of the brokers' limits is spent" if spent else "the contract fits"
            )
            return Advice(
                wish.tier.key,
                wish.member.name,
                wish.key,
                wish.declared,
                reason,
                f"{measured_text}; {why}",
            )
        return self._recommended(
            wish, wanted, f"{measured_text}, so {rate_words(wanted)} {wish.form.value} would fit"
        )

    def _recommended(self, wish: RateRequest, wanted: int, message: str) -> Advice:
        applied, reason = None, Reason.RECOMMENDED
        if (percent := self._terms.max_change_percent) is not None:
            bound = wish.declared * percent // 100
            applied = max(
                _floor(wish), min(wish.declared + bound, max(wish.declared - bound, wanted))
            )
            reason = Reason.RECOMMENDATION_APPLIED
            message = (
                f"{message}; {rate_words(applied)} is applied, at most {percent} % from the "
                f"declared {rate_words(wish.declared)}"
            )
        return Advice(
            wish.tier.key,
            wish.member.name,
            wish.key,
            wish.declared,
            reason,
            message,
            wanted,
            applied,
        )


def _with_wants(
    wish: RateRequest, asked: int, wanted: int, *, is_kept: bool = False
) -> RateRequest:
    """`replace` takes as long as all the rest, and this is done for every member."""
    return RateRequest(
        wish.tier,
        wish.member,
        wish.key,
        wish.form,
        wish.declared,
        asked,
        wanted,
        wish.times,
        is_kept,
    )


def _contracts(tiers: Iterable[Tier]) -> Iterator[tuple[Tier, Member, Contract]]:
    seen: set[Entity] = set()
    for tier in tiers:
        for member in tier.members:
            if member.contract is not None and member.entity not in seen:
                yield tier, member, member.contract
            seen.add(member.entity)


def _rates(contract: Contract) -> Iterator[tuple[QuotaKey, int]]:
    for key in _KEYS:
        if (rate := contract.byte_rate(key)) is not None:
            yield key, rate


def _unusable(figures: DirectionUsage | None, window: str) -> tuple[Reason, str] | None:
    """Why nothing can be recommended on these figures."""
    if figures is None:
        return (
            Reason.USAGE_UNKNOWN,
            f"the usage tables of {window} do not name it",
        )
    if figures.coverage < MIN_COVERAGE:
        measured_text = (
            f"samples cover {figures.coverage:.0%} of {window}, and less than "
            f"{MIN_COVERAGE:.0%} is too little"
        )
        return Reason.USAGE_INCOMPLETE, measured_text
    if figures.throttled_share > MOST_THROTTLED:
        measured_text = (
            f"it was below its contract for {figures.throttled_share:.0%} of {window}, so what it "
            "transferred is not what it needs"
        )
        return Reason.USAGE_THROTTLED, measured_text
    if figures.p99_total <= 0:
        return (
            Reason.UNUSED,
            (
                f"it transferred nothing in 99 % of the five-minute windows of {window}, which "
                "says nothing about what it needs"
            ),
        )
    return None


def time_words(days: float) -> str:
    """`7 days`, or `4 hours` where that is less than two days."""
    hours = max(1, round(days * 24))
    count, unit = (hours, "hour") if hours < 48 else (round(days), "day")
    return f"{count} {unit}s" if count > 1 else unit


def _is_worth_it(rate: int, than: int) -> bool:
    return abs(rate - than) * 100 >= WORTH_PERCENT * than


def _floor(wish: RateRequest) -> int:
    """The lowest rate for a contract: the tier's throttled rate, and what Kafka throttles on."""
    throttled = next((rates for rates in wish.tier.throttled if rates.form is wish.form), None)
    rate = None if throttled is None else throttled.byte_rate(wish.key)
    return max(MIN_BYTE_RATE, rate or 0)


def _most(limit: int, form: RateForm, basis: RateBasis, *, live_brokers: int) -> int:
    """The largest sensible rate in the contract's form, with no broker above `limit`."""
    if form is RateForm.PER_BROKER:
        return limit
    return limit * live_brokers // (basis.times if form is RateForm.PER_PARTITION else 1)


def _words(usage: DirectionUsage, window: str, *, headroom_percent: int) -> str:
    moved = f"{rate_words(usage.p99_total)} on one broker"
    if usage.brokers > 1:
        moved = (
            f"{rate_words(usage.p99_total)} on {usage.brokers} brokers, "
            f"{rate_words(usage.p99_busiest)} on the busiest"
        )
    return (
        f"99 % of five minutes of {window} stayed under {moved}; with {headroom_percent} % headroom"
    )


def _applied(
    tiers: tuple[Tier, ...], advice: Mapping[tuple[str, str], tuple[Advice, ...]]
) -> tuple[Tier, ...]:
    """The tiers with applied rates instead of declared ones; others come back as they are."""
    changes = {
        owner: {one.key: one.applied for one in said if one.applied is not None}
        for owner, said in advice.items()
        if any(one.applied is not None for one in said)
    }
    touched = {tier_key for tier_key, _ in changes}
    return tuple(_laid(tier, changes) if tier.key in touched else tier for tier in tiers)


def _laid(tier: Tier, changes: Mapping[tuple[str, str], Mapping[QuotaKey, int]]) -> Tier:
    return replace(
        tier,
        members=tuple(
            _with(member, changes.get((tier.key, member.name), {})) for member in tier.members
        ),
    )


def _with(member: Member, rates: Mapping[QuotaKey, int]) -> Member:
    if not rates or member.contract is None:
        return member
    contract = member.contract
    fetch = rates.get(QuotaKey.CONSUMER_BYTE_RATE, contract.fetch_bytes_per_second)
    produce = rates.get(QuotaKey.PRODUCER_BYTE_RATE, contract.produce_bytes_per_second)
    return replace(
        member,
        contract=replace(contract, fetch_bytes_per_second=fetch, produce_bytes_per_second=produce),
    )
