"""What contracts stand on: for one form of promise and one list of topics, everything that does not depend on the rate.

Many members name the same topics, so each ground is worked out once a pass, and a promise is left with a multiplication.
"""

from dataclasses import replace
from hashlib import sha256

from controller_logic.adaptive_input import Adaptation, Adaptations
from controller_logic.contracts.leaders import ADAPTIVE_SHARES, Leaders, LeaderSpread, Scale, adaptive_scale, partition_scale, share_scale
from controller_logic.entity import Entity
from controller_logic.model import Member, QuotaKey, RateForm, ScalingMethod
from controller_logic.readings import Direction
from controller_logic.value import value

_PER_BROKER, _TOTAL = RateForm.PER_BROKER, RateForm.TOTAL  # an enum's member costs ten times as much to look up as a name here
_PER_PARTITION_NAME = RateForm.PER_PARTITION.value
_PER_PARTITION = RateForm.PER_PARTITION
_NO_KEYS: frozenset[QuotaKey] = frozenset()
_NO_ADAPTATIONS: Adaptations = {}
_LONGEST_BASIS_TOPICS = 120  # characters; a basis is stored with every quota in the ledger


@value(frozen=True, slots=True)
class Ground:
    """How a promised rate becomes a native quota here.

    `form` and `particulars` (method, topics) are what a basis says before and after the rate. `scale` None = the rate itself;
    `produce_scale` is set where produce has another one (Adaptive), and `moving` are the keys whose scale measured rates have just moved.
    `known` is false where no quota can be computed: brokers are unknown, or none of the topics exists. `certain` is false
    while leaders or topics are not known in full. Totals over all brokers are the promised rate x `contract_times` and the
    quota x `leading_brokers`; both 0 where totals are not known.
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


class Grounds:
    """The grounds of one pass. `leaders` None = brokers and leaders are unknown; `adaptations` are the shares of method Adaptive."""

    def __init__(self, leaders: Leaders | None, method: ScalingMethod, adaptations: Adaptations = _NO_ADAPTATIONS) -> None:
        self._leaders = leaders
        self._adaptations = adaptations
        self._method = method
        self._method_name = method.value
        self._found: dict[RateForm | None, dict[tuple[str, ...], Ground]] = {form: {} for form in (None, *RateForm)}

    def under(self, member: Member) -> Ground:
        """The ground of the member's contract on its topics; no topics means all brokers that live."""
        return self.of(member.contract.form if member.contract is not None else None, member)

    def of(self, form: RateForm | None, member: Member) -> Ground:
        """The ground of a promise in this form to the member on its topics."""
        ground = self._shared(form, member.topics)
        return self._adapted(ground, member.entity) if self._adaptations and form is _PER_PARTITION else ground

    def _adapted(self, ground: Ground, entity: Entity) -> Ground:
        """Each direction of an entity is measured, and so scaled, by itself."""
        fetch, produce = (self._adaptations.get((entity, direction)) for direction in (Direction.EGRESS, Direction.INGRESS))
        if ground.spread is None or (_is_at_max(fetch) and _is_at_max(produce)):
            return ground
        moved = {QuotaKey.CONSUMER_BYTE_RATE: fetch, QuotaKey.PRODUCER_BYTE_RATE: produce}
        moving = frozenset(key for key, one in moved.items() if one is not None and one.is_moving)
        return replace(ground, scale=_scale(ground.spread, fetch), produce_scale=_scale(ground.spread, produce), moving=moving)

    def _shared(self, form: RateForm | None, topics: tuple[str, ...]) -> Ground:
        found = self._found[form]
        ground = found.get(topics)
        if ground is None:
            ground = found[topics] = self._ground(form, topics)
        return ground

    def _ground(self, form: RateForm | None, topics: tuple[str, ...]) -> Ground:
        leaders = self._leaders
        spread = leaders.spread(topics) if topics and leaders is not None else None
        if form is None:
            return Ground("", spread=spread)
        if form is _PER_BROKER:
            leading = spread.brokers if spread is not None else 0
            return Ground(form.value, spread=spread, contract_times=leading, leading_brokers=leading)
        known = leaders is not None and (spread is None or not spread.missing or spread.topics > 0)
        certain = spread is None or spread.complete
        if form is _TOTAL:
            live_brokers = leaders.live_brokers if leaders is not None else 0
            leading = live_brokers if spread is None else spread.brokers
            return Ground(form.value, _named(topics), _share(spread, live_brokers), spread, known, certain, int(leading > 0), leading)
        scale = partition_scale(spread or LeaderSpread(), self._method)
        totals = (spread.partitions, spread.brokers) if spread is not None and spread.brokers else (0, 0)
        return Ground(_PER_PARTITION_NAME, f" {self._method_name}{_named(topics)}", scale, spread, known, certain, *totals)


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
    """The topics in an order of their own, so that reordering them is no new promise; a long list becomes its digest."""
    if not topics:
        return ""
    names = ",".join(sorted(set(topics)))
    return f" {names}" if len(names) <= _LONGEST_BASIS_TOPICS else f" sha256:{sha256(names.encode()).hexdigest()[:16]}"
