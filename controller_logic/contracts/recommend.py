"""Usage -> recommended contracts: what the members of tiers would need by what they moved, within bounds, and what of it is applied.

A rate is recommended from p99 of five-minute rates and headroom (`recommend_rate.py`), never below the tier's throttled rate, never above
a broker's limit, and raised only as far as the tier's share of the brokers' limits goes (`recommend_share.py`). What differs from the
contract by less than a tenth is not recommended, and a recommendation moves only when it would move by a tenth.

Nothing is recommended on usage that says nothing: less than 80 % of the window covered, or the member throttled for most of it, or idle.

Where the policy allows it the recommended rate takes the declared one's place, no further from it than the policy's bound. That happens
before overrides are laid over contracts, so a person's override always wins. The objects themselves are never written.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller_logic.broker_limit import BrokerLimits
from controller_logic.contracts.leaders import Leaders
from controller_logic.model import MIN_BYTE_RATE, Contract, Entity, Member, QuotaKey, RateForm, Tier, Topology
from controller_logic.quotas.values import rate_words
from controller_logic.reasons import Reason
from controller_logic.recommend_rate import Ground, ground_of, needed_rate
from controller_logic.recommend_share import Cuts, Wish, cuts_of, limit_of_all, smallest_limit
from controller_logic.recommend_usage import Advice, AdviceTerms, DirectionUsage, Usage
from controller_logic.value import value

MIN_COVERAGE = 0.8
MOST_THROTTLED = 0.5
WORTH_PERCENT = 10

_KEYS = (QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE)
Place = tuple[Entity, QuotaKey]


@value(frozen=True, slots=True)
class Kept:
    """A recommendation of the pass before: the form it is in, what usage asked for, and what of it was recommended."""

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
        return (self.usage, self.tiers, self.terms, self.limits) != (other.usage, other.tiers, other.terms, other.limits)


@dataclass(frozen=True, slots=True)
class Advised:
    """The tiers with applied rates in them, the advice on every member by tier and name, and what the next pass goes by.

    `is_complete` says that all leaders that it needs were known.
    """

    tiers: tuple[Tier, ...] | None = None
    advice: Mapping[tuple[str, str], tuple[Advice, ...]] = field(default_factory=dict)
    kept: Mapping[Place, Kept] = field(default_factory=dict)
    basis: AdviceBasis | None = None
    is_complete: bool = False


def advise(basis: AdviceBasis, before: Advised | None = None) -> Advised:
    """Advice on every byte rate that a contract names; of members that overlap only the first counts. `before` is the pass before's.

    Leaders that move, brokers that die or come back change no advice that was made on known leaders: they are looked at again with the next
    figures. A recommendation that usage asks for as before stays even then, unless it was made for other limits or terms.
    """
    if before is None or before.basis is None:
        return _Advisor(basis, {}).advise()
    if not basis.differs(before.basis) and (before.is_complete or basis.topology is None):
        return before
    as_before = (before.basis.terms, before.basis.limits) == (basis.terms, basis.limits)
    return _Advisor(basis, before.kept if as_before else {}).advise()


class _Advisor:
    """The advice of one pass."""

    def __init__(self, basis: AdviceBasis, kept: Mapping[Place, Kept]) -> None:
        self._basis = basis
        self._usage = basis.usage
        self._terms = basis.terms
        self._kept = kept
        brokers = basis.topology.brokers if basis.topology is not None else frozenset()
        self._live_brokers = len(brokers)
        self._leaders = Leaders(basis.topology) if basis.topology is not None and brokers else None
        self._most = {key: smallest_limit(basis.limits, brokers, key) for key in _KEYS}
        self._room = {key: limit_of_all(basis.limits, brokers, key) for key in _KEYS}

    def advise(self) -> Advised:
        wishes: dict[Place, Wish] = {}
        refusals: dict[Place, Advice] = {}
        for tier, member, contract in _contracts(self._basis.tiers):
            ground = ground_of(member, contract, self._leaders)
            for key, declared in _rates(contract):
                said = Wish(tier, member, key, contract.form, declared, declared, declared, 0 if ground is None else ground.times)
                problem = self._problem(said, ground)
                if problem is not None:
                    refusals[member.entity, key] = Advice(tier.key, member.name, key, declared, *problem)
                wishes[member.entity, key] = said if problem is not None else self._wish(said, ground)
        return self._gathered(wishes, refusals)

    def _gathered(self, wishes: Mapping[Place, Wish], refusals: Mapping[Place, Advice]) -> Advised:
        cuts = cuts_of(wishes.values(), self._room)
        advice: dict[tuple[str, str], tuple[Advice, ...]] = {}
        kept: dict[Place, Kept] = {}
        for place, wish in wishes.items():
            said = refusals.get(place) or self._advice(wish, cuts)
            owner = (wish.tier.key, wish.member.name)
            advice[owner] = (*advice.get(owner, ()), said)
            if said.recommended is not None:
                kept[place] = Kept(wish.form, wish.asked, said.recommended)
        is_complete = self._leaders is not None and not any(one.reason is Reason.TOPOLOGY_INCOMPLETE for one in refusals.values())
        return Advised(_applied(self._basis.tiers, advice), advice, kept, self._basis, is_complete)

    def _problem(self, wish: Wish, ground: Ground | None) -> tuple[Reason, str] | None:
        problem = _unusable(self._usage.figures.get((wish.member.entity, wish.key)), days=self._usage.days)
        if problem is None and ground is None and self._before(wish) is None:
            return Reason.TOPOLOGY_INCOMPLETE, "the partitions of its topics are not known in full, nor so a rate for each"
        return problem

    def _before(self, wish: Wish) -> Kept | None:
        """What was recommended before, if in the form in which the contract is still."""
        before = self._kept.get((wish.member.entity, wish.key))
        return before if before is not None and before.form is wish.form else None

    def _wish(self, wish: Wish, ground: Ground | None) -> Wish:
        """What usage asks for and what of it is wanted; as before where that is less than a tenth away, or leaders are not known now."""
        before, floor = self._before(wish), _floor(wish)
        asked = wish.declared
        if ground is not None:
            figures = self._usage.figures[wish.member.entity, wish.key]
            asked = needed_rate(figures, wish.form, ground, headroom_percent=self._terms.headroom_percent)
        if before is not None and (ground is None or not _is_worth_it(asked, before.asked)):
            return _with_wants(wish, before.asked, max(before.recommended, floor), is_kept=True)
        limit, wanted = self._most[wish.key], asked
        if limit is not None and ground is not None:
            wanted = min(asked, max(wish.declared, _most(limit, wish.form, ground, live_brokers=self._live_brokers)))
        return _with_wants(wish, asked, max(wanted, floor))

    def _advice(self, wish: Wish, cuts: Cuts) -> Advice:
        part = 1.0 if wish.is_kept else cuts.get((wish.tier.key, wish.key), 1.0)
        wanted = wish.wanted if wish.wanted <= wish.declared else wish.declared + int((wish.wanted - wish.declared) * part)
        usage = self._usage.figures[wish.member.entity, wish.key]
        told = _words(usage, days=self._usage.days, headroom_percent=self._terms.headroom_percent)
        if not _is_worth_it(wanted, wish.declared):
            spent = wish.asked > wish.declared and _is_worth_it(wish.asked, wish.declared)
            reason = Reason.SHARE_SPENT if spent else Reason.CONTRACT_FITS
            why = "the tier's share of the brokers' limits is spent" if spent else "the contract fits"
            return Advice(wish.tier.key, wish.member.name, wish.key, wish.declared, reason, f"{told}; {why}")
        return self._recommended(wish, wanted, f"{told}, so {rate_words(wanted)} {wish.form.value} would fit")

    def _recommended(self, wish: Wish, wanted: int, message: str) -> Advice:
        applied, reason = None, Reason.RECOMMENDED
        if (percent := self._terms.max_change_percent) is not None:
            bound = wish.declared * percent // 100
            applied = max(_floor(wish), min(wish.declared + bound, max(wish.declared - bound, wanted)))
            reason = Reason.RECOMMENDATION_APPLIED
            message = f"{message}; {rate_words(applied)} is applied, at most {percent} % from the declared {rate_words(wish.declared)}"
        return Advice(wish.tier.key, wish.member.name, wish.key, wish.declared, reason, message, wanted, applied)


def _with_wants(wish: Wish, asked: int, wanted: int, *, is_kept: bool = False) -> Wish:
    """`replace` takes as long as all the rest, and this is done for every member."""
    return Wish(wish.tier, wish.member, wish.key, wish.form, wish.declared, asked, wanted, wish.times, is_kept)


def _contracts(tiers: Iterable[Tier]) -> Iterator[tuple[Tier, Member, Contract]]:
    seen: set[Entity] = set()
    for tier in tiers:
        for member in tier.members:
            if member.contract is not None and member.entity not in seen:
                yield tier, member, member.contract
            seen.add(member.entity)


def _rates(contract: Contract) -> Iterator[tuple[QuotaKey, int]]:
    for key, rate in zip(_KEYS, (contract.fetch_bytes_per_second, contract.produce_bytes_per_second), strict=True):
        if rate is not None:
            yield key, rate


def _unusable(figures: DirectionUsage | None, *, days: int) -> tuple[Reason, str] | None:
    """Why nothing can be recommended on these figures."""
    if figures is None:
        return Reason.USAGE_UNKNOWN, f"the usage tables of the last {days} days do not name it"
    if figures.coverage < MIN_COVERAGE:
        told = f"samples cover {figures.coverage:.0%} of the last {days} days, and less than {MIN_COVERAGE:.0%} tells too little"
        return Reason.USAGE_INCOMPLETE, told
    if figures.throttled_share > MOST_THROTTLED:
        told = f"it was below its contract for {figures.throttled_share:.0%} of the last {days} days, so what it moved is not what it needs"
        return Reason.USAGE_THROTTLED, told
    if figures.p99_total <= 0:
        return Reason.UNUSED, f"it moved nothing in 99 % of five minutes of the last {days} days, which says nothing of what it needs"
    return None


def _is_worth_it(rate: int, than: int) -> bool:
    return abs(rate - than) * 100 >= WORTH_PERCENT * than


def _floor(wish: Wish) -> int:
    """No contract may be below the tier's throttled rate in the same form, nor where Kafka throttles nothing."""
    throttled = next((rates for rates in wish.tier.throttled if rates.form is wish.form), None)
    fetch, produce = (None, None) if throttled is None else (throttled.fetch_bytes_per_second, throttled.produce_bytes_per_second)
    rate = fetch if wish.key is QuotaKey.CONSUMER_BYTE_RATE else produce
    return max(MIN_BYTE_RATE, rate or 0)


def _most(limit: int, form: RateForm, ground: Ground, *, live_brokers: int) -> int:
    """The largest sensible rate in the contract's form where no broker may carry more than `limit`."""
    if form is RateForm.PER_BROKER:
        return limit
    return limit * live_brokers // (ground.times if form is RateForm.PER_PARTITION else 1)


def _words(usage: DirectionUsage, *, days: int, headroom_percent: int) -> str:
    moved = f"{rate_words(round(usage.p99_total))} on one broker"
    if usage.brokers > 1:
        moved = f"{rate_words(round(usage.p99_total))} on {usage.brokers} brokers, {rate_words(round(usage.p99_busiest))} on the busiest"
    return f"99 % of five minutes of the last {days} days stayed under {moved}; with {headroom_percent} % headroom"


def _applied(tiers: tuple[Tier, ...], advice: Mapping[tuple[str, str], tuple[Advice, ...]]) -> tuple[Tier, ...]:
    """The tiers with applied rates in place of declared ones; those of which nothing is applied come back as they are."""
    changes = {
        owner: {one.key: one.applied for one in said if one.applied is not None}
        for owner, said in advice.items()
        if any(one.applied is not None for one in said)
    }
    touched = {tier_key for tier_key, _ in changes}
    return tuple(_laid(tier, changes) if tier.key in touched else tier for tier in tiers)


def _laid(tier: Tier, changes: Mapping[tuple[str, str], Mapping[QuotaKey, int]]) -> Tier:
    return replace(tier, members=tuple(_with(member, changes.get((tier.key, member.name), {})) for member in tier.members))


def _with(member: Member, rates: Mapping[QuotaKey, int]) -> Member:
    if not rates or member.contract is None:
        return member
    contract = member.contract
    fetch = rates.get(QuotaKey.CONSUMER_BYTE_RATE, contract.fetch_bytes_per_second)
    produce = rates.get(QuotaKey.PRODUCER_BYTE_RATE, contract.produce_bytes_per_second)
    return replace(member, contract=replace(contract, fetch_bytes_per_second=fetch, produce_bytes_per_second=produce))
