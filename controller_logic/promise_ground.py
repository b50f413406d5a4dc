"""What contracts stand on: for one form of promise and one list of topics, everything that does not depend on the rate.

Many members name the same topics, so each ground is worked out once a pass, and a promise is left with a multiplication.
"""

from hashlib import sha256

from controller_logic.leader_scaling import Leaders, LeaderSpread, Scale, partition_scale, share_scale
from controller_logic.model import Member, RateForm, ScalingMethod
from controller_logic.value import value

_PER_BROKER, _TOTAL = RateForm.PER_BROKER, RateForm.TOTAL  # an enum's member costs ten times as much to look up as a name here
_PER_PARTITION_NAME = RateForm.PER_PARTITION.value
_LONGEST_BASIS_TOPICS = 120  # characters; a basis is stored with every quota in the ledger


@value(frozen=True, slots=True)
class Ground:
    """How a promised rate becomes a native quota here.

    `form` and `particulars` (method, topics) are what a basis says before and after the rate. `scale` None = the rate itself.
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


class Grounds:
    """The grounds of one pass. `leaders` None = brokers and leaders are unknown."""

    def __init__(self, leaders: Leaders | None, method: ScalingMethod) -> None:
        self._leaders = leaders
        self._method = method
        self._method_name = method.value
        self._found: dict[RateForm | None, dict[tuple[str, ...], Ground]] = {form: {} for form in (None, *RateForm)}

    def under(self, member: Member) -> Ground:
        """The ground of the member's contract on its topics; no topics means all brokers that live."""
        return self.of(member.contract.form if member.contract is not None else None, member.topics)

    def of(self, form: RateForm | None, topics: tuple[str, ...]) -> Ground:
        """The ground of a promise in this form on these topics."""
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
