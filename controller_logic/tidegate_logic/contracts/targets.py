"""What a contract means on the leaders of a moment: number and exact text for every quota key.

Answers "where to", never "how fast" or "may it be written": see `quotas/steps.py`.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from hashlib import sha256

from tidegate_logic.contracts.adaptive import MEASURED_MARK, Adaptation, Adaptations
from tidegate_logic.contracts.fetch_spread import FetchBasis, FetchSpread, Reads
from tidegate_logic.contracts.leader_scaling import (
    ADAPTIVE_SHARES,
    Leaders,
    LeaderSpread,
    Scale,
    adaptive_scale,
    expected_scale,
    partition_scale,
    read_scale,
    share_scale,
)
from tidegate_logic.model import (
    KEY_OF,
    Contract,
    Direction,
    Entity,
    Level,
    Member,
    QuotaKey,
    RateForm,
    ScalingMethod,
    Tier,
)
from tidegate_logic.quota_values import KEY_WORDS, short_words
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value
from tidegate_logic.words import counted

# What contracts stand on: all that depends on form and topics of a promise, but not on its rate.
#
# Many members name the same topics, so each basis is worked out once a pass, and a promise is left
# with a multiplication.


# an enum's member costs ten times as much to look up as a name of this module
_PER_BROKER, _TOTAL = RateForm.PER_BROKER, RateForm.TOTAL
_PER_PARTITION_NAME = RateForm.PER_PARTITION.value
_PER_PARTITION = RateForm.PER_PARTITION
_NO_KEYS: frozenset[QuotaKey] = frozenset()
_NO_BROKERS: Set[int] = frozenset()
_NO_ADAPTATIONS: Adaptations = {}
_LONGEST_BASIS_TOPICS = 120  # characters; a basis is stored with every quota in the ledger


@value(frozen=True, slots=True)
class QuotaScaling:
    """How a promised rate becomes a native quota here.

    `form` and `particulars` (method, topics) are what a basis says before and after the rate.
    `scale` None = the rate itself; `produce_scale` is set where produce has another one (Adaptive),
    and `moving` are the keys whose scale measured rates have just moved. `known` is false where no
    quota can be computed: brokers are unknown, or none of the topics exists. `certain` is false
    while leaders or topics are not known in full. Totals over all brokers are the promised rate x
    `contract_times` and the quota x `leading_brokers`; both 0 where totals are not known.

    `fetch` is the scaling of fetch where followers serve reads, which says in `fetch_basis` what it
    goes by, and in `serving` which brokers may have to serve.
    """

    form: str
    particulars: str = ""
    scale: Scale | None = None
    spread: LeaderSpread | None = None
    known: bool = True
    certain: bool = True
    contract_times: int = 0
    leading_brokers: int = 0
    produce_scale: Scale | None = None
    moving: frozenset[QuotaKey] = _NO_KEYS
    fetch: "QuotaScaling | None" = None
    fetch_basis: FetchBasis | None = None
    serving: Set[int] = _NO_BROKERS

    @property
    def skew(self) -> float | None:
        """How unevenly the brokers serve, as the quota goes by; None without leaders."""
        spread, scale = self.spread, self.scale
        if spread is None or scale is None or self.fetch_basis is not FetchBasis.MEASURED:
            return None if spread is None else spread.skew
        whole = 1 if self.form == _TOTAL.value else spread.partitions
        return spread.brokers * scale.times / (scale.parts * whole)

    def basis(self, promised: int) -> str:
        """The promise that a quota is for (form, rate, method, topics), without the leaders.

        So an edited promise and a moved leader can be distinguished.
        """
        return f"{self.form} {promised}{self.particulars}"


class QuotaScalings:
    """The bases of one pass. `leaders` None = brokers and leaders are unknown.

    `adaptations` are the shares of method Adaptive, `reads` where consumers read from followers
    (None = nowhere that is known), and `measured` the shares of those reads.
    """

    def __init__(
        self,
        leaders: Leaders | None,
        method: ScalingMethod,
        adaptations: Adaptations = _NO_ADAPTATIONS,
        *,
        reads: Reads | None = None,
        measured: Adaptations = _NO_ADAPTATIONS,
    ) -> None:
        self._leaders = leaders
        self._adaptations = adaptations
        self._reads = reads
        self._measured = measured
        self._read_by: dict[
            tuple[RateForm | None, tuple[str, ...], tuple[str, ...]], QuotaScaling
        ] = {}
        self.selection_known = leaders is not None and leaders.topology.selection is not None
        self._method = method
        self._method_name = method.value
        self._found: dict[RateForm | None, dict[tuple[str, ...], QuotaScaling]] = {
            form: {} for form in (None, *RateForm)
        }

    def under(self, member: Member) -> QuotaScaling:
        """The basis of the member's contract on its topics; no topics = all live brokers."""
        contract = member.contract
        return self.of(None if contract is None else contract.form, member)

    def of(self, form: RateForm | None, member: Member) -> QuotaScaling:
        """The basis of a promise in this form to the member on its topics."""
        found, topics = self._found[form], member.topics
        scaling = found.get(topics)
        if scaling is None:
            scaling = found[topics] = self._scaling(form, topics)
        if self._adaptations and form is _PER_PARTITION:
            scaling = self._adapted(scaling, member.entity)
        return scaling if self._reads is None else self._with_reads(scaling, form, member)

    def _with_reads(
        self, scaling: QuotaScaling, form: RateForm | None, member: Member
    ) -> QuotaScaling:
        """Fetch by the brokers that serve it, produce by leaders."""
        known = self._measured.get((member.entity, Direction.EGRESS))
        is_own = bool(self._adaptations) or (known is not None and not known.is_expected)
        key = form, member.topics, member.racks
        shared = None if is_own else self._read_by.get(key)
        if shared is None:
            shared = self._read(scaling, form, member, known)
            if not is_own:
                self._read_by[key] = shared
        return shared

    def _read(
        self,
        scaling: QuotaScaling,
        form: RateForm | None,
        member: Member,
        known: Adaptation | None,
    ) -> QuotaScaling:
        spread = self._reads.of(member) if self._reads is not None else None
        is_divided = form is _PER_PARTITION or form is _TOTAL
        if spread is None or not scaling.known or not (is_divided or member.topics):
            return scaling
        return replace(scaling, fetch=self._fetching(scaling, form, spread, member, known))

    def _fetching(
        self,
        scaling: QuotaScaling,
        form: RateForm | None,
        spread: FetchSpread,
        member: Member,
        known: Adaptation | None,
    ) -> QuotaScaling:
        is_divided = form is _PER_PARTITION or form is _TOTAL
        if not is_divided or known is None or known.is_expected or spread.reach is None:
            on, basis, moving = spread.expected, spread.basis, scaling.moving
            scale = self._expected(
                form, on, self._adaptations.get((member.entity, Direction.EGRESS))
            )
        else:
            on, basis = spread.reach, FetchBasis.MEASURED
            moving = _MOVING_FETCH if known.is_moving else _NO_KEYS
            scale = read_scale(form, on, known.share)
        return replace(
            scaling,
            particulars=f"{scaling.particulars}{_mark(basis, member.racks)}",
            scale=scale,
            spread=on,
            certain=scaling.certain and spread.certain,
            contract_times=on.brokers if form is _PER_BROKER else scaling.contract_times,
            leading_brokers=spread.widest.brokers,
            produce_scale=None,
            moving=moving,
            fetch_basis=basis,
            serving=spread.widest.leading,
        )

    def _expected(
        self, form: RateForm | None, on: LeaderSpread, adaptation: Adaptation | None
    ) -> Scale | None:
        if form is _PER_PARTITION and adaptation is not None:
            return _scale(on, adaptation)
        return expected_scale(form, on, self._method)

    def _adapted(self, scaling: QuotaScaling, entity: Entity) -> QuotaScaling:
        """Each direction of an entity is measured, and so scaled, by itself."""
        found = {
            key: self._adaptations.get((entity, direction)) for direction, key in KEY_OF.items()
        }
        fetch, produce = found[_CONSUMER], found[_PRODUCER]
        if scaling.spread is None or (_is_at_max(fetch) and _is_at_max(produce)):
            return scaling
        moving = frozenset(key for key, one in found.items() if one is not None and one.is_moving)
        return replace(
            scaling,
            scale=_scale(scaling.spread, fetch),
            produce_scale=_scale(scaling.spread, produce),
            moving=moving,
        )

    def _scaling(self, form: RateForm | None, topics: tuple[str, ...]) -> QuotaScaling:
        leaders = self._leaders
        spread = leaders.spread(topics) if topics and leaders is not None else None
        if form is None:
            return QuotaScaling("", spread=spread)
        if form is _PER_BROKER:
            leading = spread.brokers if spread is not None else 0
            return QuotaScaling(
                form.value, spread=spread, contract_times=leading, leading_brokers=leading
            )
        known = leaders is not None and (spread is None or not spread.missing or spread.topics > 0)
        certain = spread is None or spread.complete
        if form is _TOTAL:
            live_brokers = leaders.live_brokers if leaders is not None else 0
            leading = live_brokers if spread is None else spread.brokers
            return QuotaScaling(
                form.value,
                _named(topics),
                _share(spread, live_brokers),
                spread,
                known,
                certain,
                int(leading > 0),
                leading,
            )
        particulars = f" {self._method_name}{_named(topics)}"
        if spread is None or not spread.brokers:
            return QuotaScaling(
                _PER_PARTITION_NAME,
                particulars,
                partition_scale(spread or LeaderSpread(), self._method),
                spread,
                known,
                certain,
            )
        scale, partitions = (
            partition_scale(spread, self._method),
            spread.leaders + spread.leaderless,
        )
        return QuotaScaling(
            _PER_PARTITION_NAME,
            particulars,
            scale,
            spread,
            known,
            certain,
            partitions,
            spread.brokers,
        )


def _is_at_max(adaptation: Adaptation | None) -> bool:
    return adaptation is None or (adaptation.share == ADAPTIVE_SHARES and not adaptation.is_moving)


def _scale(spread: LeaderSpread, adaptation: Adaptation | None) -> Scale:
    return adaptive_scale(spread, ADAPTIVE_SHARES if adaptation is None else adaptation.share)


def _share(spread: LeaderSpread | None, live_brokers: int) -> Scale:
    """Partitions without a leader are expected to spread over the brokers that live."""
    if spread is None:
        return share_scale(live_brokers)
    return share_scale(spread.brokers or min(spread.leaderless, live_brokers))


def _named(topics: tuple[str, ...]) -> str:
    """The topics, sorted so that reordering them is no new promise; a long list as a digest."""
    if not topics:
        return ""
    names = ",".join(sorted({*topics}))
    return (
        f" {names}"
        if len(names) <= _LONGEST_BASIS_TOPICS
        else f" sha256:{sha256(names.encode()).hexdigest()[:16]}"
    )


# names of this module, because these are looked up for every member
_CONSUMER, _PRODUCER = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
_MOVING_FETCH = frozenset({_CONSUMER})

# what a basis says of reads from followers; no topic has such a name
_RACKS_MARK = " @racks"


def _mark(basis: FetchBasis, racks: tuple[str, ...]) -> str:
    if basis is FetchBasis.RACKS:
        return f"{_RACKS_MARK}={_named(racks).strip()}"
    return MEASURED_MARK if basis is FetchBasis.MEASURED else ""


def by_reads(basis: str) -> bool:
    """Whether what was written on this basis was scaled by reads from followers."""
    return _RACKS_MARK in basis or MEASURED_MARK in basis


def racks_edited(before: str, after: str) -> bool:
    """Whether two bases name different racks; earlier versions recorded none."""
    named = [basis.partition(f"{_RACKS_MARK}=")[2].partition(" ")[0] for basis in (before, after)]
    return all(named) and named[0] != named[1]


def promised_by(basis: str) -> str:
    """The basis without what scales its fetch: reads that move are no new promise."""
    promised, mark, _ = basis.partition(" @")
    return promised + (_OVERRIDE_ONLY if mark and is_override_only(basis) else "")


_OVERRIDE_ONLY = " override only"
_EVERYWHERE = QuotaScaling(RateForm.PER_BROKER.value)
_DEFAULT = QuotaScaling("default")


@value(frozen=True, slots=True)
class Throttled:
    """A byte rate below its contract: `value` should be in force now, of `contract` (bytes/s).

    `predicted_mute_seconds` is the longest mute that it may cause. `floor` is the tier's throttled
    rate on the same leaders. `because` says why the value changes in this pass; None = it is the
    same share of the contract as before. `rises` says whether the last change on load was a raise,
    `by_calendar` that the calendar alone keeps it there.
    """

    value: int
    contract: int
    floor: "Target"
    because: Reason | None = None
    rises: bool = False
    predicted_mute_seconds: float = 0.0
    by_calendar: bool = False


@value(frozen=True, slots=True)
class Target:
    """Where one quota key should end: the number, and its exact text in Kafka's store.

    `promised` is the rate in the contract's own form, `scaling` what made it the number. `throttle`
    is set while the number is a throttle of the contract; it is guarded against mutes already.
    """

    value: int
    text: str
    promised: int
    scaling: QuotaScaling
    throttle: Throttled | None = None

    @property
    def certain(self) -> bool:
        """False while leaders or topics are not known in full."""
        return self.scaling.certain

    @property
    def basis(self) -> str:
        """The promise it was computed for."""
        return self.scaling.basis(self.promised)


@value(frozen=True, slots=True)
class Promise:
    """What a contract means on the leaders of a moment.

    `unknown` are managed keys whose target cannot be known (no topic of the member exists, or
    leaders are unknown): they are left as they are, and there are no targets then. Totals over all
    brokers are in bytes per second, for byte rates only.
    """

    targets: Mapping[QuotaKey, Target]
    unknown: frozenset[QuotaKey] = _NO_KEYS
    spread: LeaderSpread | None = None

    @property
    def keys(self) -> Set[QuotaKey]:
        """Every managed key."""
        return self.unknown or self.targets.keys()

    @property
    def values(self) -> Mapping[QuotaKey, int]:
        return {key: target.value for key, target in self.targets.items()}

    @property
    def contract_total(self) -> Mapping[QuotaKey, int]:
        """What was promised over all brokers; empty without leaders or known brokers."""
        return {
            key: one.promised * one.scaling.contract_times
            for key, one in self.targets.items()
            if one.scaling.contract_times
        }

    @property
    def permitted_total(self) -> Mapping[QuotaKey, int]:
        """What the numbers allow over all brokers: quota x brokers that lead."""
        return {
            key: one.value * one.scaling.leading_brokers
            for key, one in self.targets.items()
            if one.scaling.leading_brokers
        }

    def __str__(self) -> str:
        rates = ", ".join(
            [
                f"{KEY_WORDS[key]} {short_words(key, target.value)}"
                for key, target in self.targets.items()
            ]
        )
        if self.spread is None:
            return f"{rates} per broker"
        if not self.spread.leaders:
            return f"{rates} per broker; none of its topics has a leader now"
        return (
            f"{rates} per broker; {self.spread.leaders} partitions led by "
            f"{self.spread.brokers} brokers, skew {self.spread.skew:.2f}{self._fetch_words()}"
        )

    def _fetch_words(self) -> str:
        target = self.targets.get(_CONSUMER)
        on = None if target is None else target.scaling
        if on is None or on.fetch_basis is None or on.skew is None:
            return ""
        return f"; {fetch_words(on.fetch_basis, on.serving)}, skew {on.skew:.2f}"


def fetch_words(basis: FetchBasis, serving: Set[int]) -> str:
    """What a fetch quota goes by where followers serve reads. Ends without a stop."""
    goes_by = {
        FetchBasis.LEADERS: "leaders until its reads are measured",
        FetchBasis.RACKS: "the declared racks",
        FetchBasis.MEASURED: "measured reads",
    }
    return f"fetch by {goes_by[basis]}, from {counted(len(serving), 'broker')}"


NOTHING = Promise({})


def promise_of(contract: Contract | None, scaling: QuotaScaling | None) -> Promise:
    """What a contract means there; no basis = nothing promised, no contract = unlimited."""
    if scaling is None:
        return NOTHING
    if contract is None:
        return Promise({}, spread=scaling.spread)
    if not scaling.known:
        return Promise({}, _managed_keys(contract), scaling.spread)
    targets = {
        key: Target(number, str(number), rate, on)
        for key, number, rate, on in quotas_of(contract, scaling)
    }
    return Promise(targets, _NO_KEYS, scaling.spread)


ScaledQuota = tuple[QuotaKey, int, int, QuotaScaling]


def quotas_of(contract: Contract, scaling: QuotaScaling) -> list[ScaledQuota]:
    """For each key of the contract: the number per broker, the promised rate, and the scaling."""
    found: list[ScaledQuota] = []
    if (
        contract.request_percentage is not None
        or contract.controller_mutations_per_second is not None
    ):
        found += [
            (key, rate, rate, _EVERYWHERE) for key, rate in _fixed(contract) if rate is not None
        ]
    scale = scaling.scale
    if (rate := contract.fetch_bytes_per_second) is not None:
        on = scaling.fetch or scaling
        number = rate if on.scale is None else on.scale.of(rate)
        found.append((_CONSUMER, number, rate, on))
    if (rate := contract.produce_bytes_per_second) is not None:
        scale = scaling.produce_scale or scale
        found.append((_PRODUCER, rate if scale is None else scale.of(rate), rate, scaling))
    if contract.override_only_keys:
        only = contract.override_only_keys
        found = [
            (key, number, rate, _override_only(on) if key in only else on)
            for key, number, rate, on in found
        ]
    return found


def default_promise(rates: Mapping[QuotaKey, int]) -> Promise:
    """What a policy declares for one of Kafka's default entities."""
    return Promise({key: Target(rate, str(rate), rate, _DEFAULT) for key, rate in rates.items()})


def _override_only(scaling: QuotaScaling) -> QuotaScaling:
    """The same scaling, with a basis that says for good that only an override gave the quota."""
    return replace(scaling, particulars=f"{scaling.particulars}{_OVERRIDE_ONLY}")


def is_override_only(basis: str) -> bool:
    """Whether the quota written on this basis came from an override alone."""
    return basis.endswith(_OVERRIDE_ONLY)


def _fixed(contract: Contract) -> tuple[tuple[QuotaKey, int | None], ...]:
    """The quotas that are the same number on every broker wherever the leaders are."""
    return (
        (QuotaKey.REQUEST_PERCENTAGE, contract.request_percentage),
        (QuotaKey.CONTROLLER_MUTATION_RATE, contract.controller_mutations_per_second),
    )


def _managed_keys(contract: Contract) -> frozenset[QuotaKey]:
    rates = (
        (_CONSUMER, contract.fetch_bytes_per_second),
        (_PRODUCER, contract.produce_bytes_per_second),
    )
    return frozenset(key for key, rate in (*rates, *_fixed(contract)) if rate is not None)


# What a member may be throttled to, and what a held key means instead of its contract.


HeldKeys = Mapping[QuotaKey, Throttled]
ThrottledTargets = Mapping[Entity, HeldKeys]


def throttled_rates(tier: Tier, member: Member) -> Contract | None:
    """The tier's throttled rates in the form of the member's contract; None = never throttled.

    Without a contract the form is perPartition for a member with topics, else perBroker.
    """
    if tier.level is Level.L0 or member.exempt:
        return None
    without_contract = RateForm.PER_PARTITION if member.topics else RateForm.PER_BROKER
    form = without_contract if member.contract is None else member.contract.form
    rates = next((rates for rates in tier.throttled if rates.form is form), None)
    if member.protected and rates is not None:
        return replace(rates, fetch_bytes_per_second=None)
    return rates


def held_down(promise: Promise, held: HeldKeys) -> Promise:
    """The promise with the held keys at their held rates, also those without a contract."""
    targets = {key: _held(promise.targets.get(key, one.floor), one) for key, one in held.items()}
    return replace(promise, targets={**promise.targets, **targets})


def _held(target: Target, held: Throttled) -> Target:
    return replace(target, value=held.value, text=str(held.value), throttle=held)
