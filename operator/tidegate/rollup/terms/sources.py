"""Where contracts, limits, quotas and states come from: policy, operator's metrics, audit trail.

The policy declares the terms of now. Terms of another time come from the operator's own metrics, or
from the trail where Prometheus did not scrape the operator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tidegate.control.audit.lines import AuditLine as AuditLine
from tidegate.control.audit.lines import seconds_of
from tidegate.rollup.fold.clients import MOST_BYTES_PER_SECOND, Client
from tidegate.rollup.fold.windows import StepFunction, scrape_times
from tidegate.rollup.labels import with_budgets
from tidegate.rollup.samples import Selection, SeriesSamples, Transport
from tidegate.rollup.schemas import DIRECTIONS, Direction
from tidegate.throttle_metrics import POLICY_LABELS, policy_labels
from tidegate_logic import model
from tidegate_logic.contracts.allowed import allowed_tiers
from tidegate_logic.contracts.leader_scaling import share_scale
from tidegate_logic.decision import LevelState
from tidegate_logic.model import (
    BrokerLimits,
    Budget,
    Contract,
    Member,
    Policy,
    QuotaKey,
    QuotaWindow,
    RateForm,
    Tier,
)
from tidegate_logic.reasons import Reason

# The declared terms of one policy: its tiers' members, their contracts, and the brokers' limits.


KEYS: Final[Mapping[Direction, QuotaKey]] = {
    direction: model.BYTE_RATE_OF[direction] for direction in DIRECTIONS
}
WAYS: Final[Mapping[Direction, model.Direction]] = {
    direction: model.DIRECTION_OF[key] for direction, key in KEYS.items()
}
DIRECTION_OF_KEY: Final[Mapping[str, Direction]] = {
    key.value: direction for direction, key in KEYS.items()
}
DIRECTION_OF_WAY: Final[Mapping[str, Direction]] = {
    way.value: direction for direction, way in WAYS.items()
}

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
Flags = NDArray[np.bool_]
RatesByDirection = Mapping[Direction, float]


@dataclass(frozen=True, slots=True)
class PolicyMember:
    """A member with its user and client id in Kafka's series.

    Of members that overlap only the first counts.
    """

    tier: Tier
    member: Member
    client: Client


@dataclass(frozen=True)
class PolicyTerms:
    """The declared terms of a policy; `key` is its namespace/name.

    `from_status` has the rates on each broker in the tiers' status, by tier and member.
    `past_members` are those of another time, where they are not the tiers' members of now.
    `changed_ms` is when the spec of each tier changed last, as far as Kubernetes was asked.
    `budgets_known` is false where it is not known which budgets there are.
    """

    key: str
    tiers: Sequence[Tier] = ()
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    window: QuotaWindow = field(default_factory=QuotaWindow)
    from_status: Mapping[tuple[str, str], RatesByDirection] = field(default_factory=dict)
    past_members: Sequence[PolicyMember] | None = None
    changed_ms: Mapping[str, int] = field(default_factory=dict)
    budgets_known: bool = True

    @classmethod
    def of(
        cls,
        policy: Policy,
        tiers: Sequence[Tier],
        statuses: Mapping[str, Mapping[str, Any]] | None = None,
        changed_ms: Mapping[str, int] | None = None,
        budgets: Sequence[Budget] | None = (),
    ) -> Self:
        """`statuses` are those of the BusinessTier objects, by tier; `budgets` the oldest first.

        None = they are not known in full.
        """
        from_status = {
            (key, name): rates
            for key, status in (statuses or {}).items()
            for name, rates in _from_status(status)
        }
        allowed = with_budgets(allowed_tiers(policy, tuple(tiers)), budgets or ())
        return cls(
            policy.key,
            allowed,
            policy.limits,
            policy.window,
            from_status,
            changed_ms=changed_ms or {},
            budgets_known=budgets is not None,
        )

    @cached_property
    def members(self) -> Sequence[PolicyMember]:
        """All members of tiers, the oldest tier first, without Kafka's default entities."""
        if self.past_members is not None:
            return self.past_members
        found: dict[Client, PolicyMember] = {}
        for tier in self.tiers:
            for member in tier.members:
                if not member.entity.is_default:
                    client = _name(member.entity.user), _name(member.entity.client_id)
                    found.setdefault(client, PolicyMember(tier, member, client))
        return tuple(found.values())

    def limit(self, broker: int, direction: Direction) -> int | None:
        """Return the declared limit of a broker's NIC."""
        return self.limits.of(broker).limit(WAYS[direction])

    def most_bytes_per_second(self, broker: int, direction: Direction) -> float:
        """Return what a counter of this broker can grow by at most, twice what its NIC is said to
        carry: a capacity that was declared too low must not take bytes away.
        """
        capacity = self.limits.of(broker).capacity(WAYS[direction])
        return MOST_BYTES_PER_SECOND if capacity is None else 2.0 * capacity

    def promised(self, one: PolicyMember, *, brokers: int) -> RatesByDirection:
        """Return the rates on each broker: from the status, else from the contract.

        Empty without a contract, or for one that depends on leaders and is not in the status.
        """
        return self.from_status.get((one.tier.key, one.member.name)) or contract_rates(
            one.member, brokers=brokers
        )


def contract_rates(member: Member, *, brokers: int) -> RatesByDirection:
    """Return the rates on each broker; empty without a contract or where they depend on leaders."""
    contract = member.contract
    if (
        contract is None
        or contract.form is RateForm.PER_PARTITION
        or (contract.form is RateForm.TOTAL and member.topics)
    ):
        return {}
    scale = share_scale(brokers if contract.form is RateForm.TOTAL else 1)
    return {
        way: float(scale.of(rate))
        for way in DIRECTIONS
        if (rate := _declared_rate(contract, way)) is not None
    }


def _declared_rate(contract: Contract, direction: Direction) -> int | None:
    """Return the rate in the contract's own form."""
    return (
        contract.produce_bytes_per_second
        if direction == "produce"
        else contract.fetch_bytes_per_second
    )


def _name(part: object) -> str:
    return part if isinstance(part, str) else ""


def _from_status(status: Mapping[str, Any]) -> Iterator[tuple[str, RatesByDirection]]:
    """Yield the contracts in a status.

    A throttled member is left out: its status has the throttled rate and not the contract.
    """
    for member in status.get("members") or ():
        rates = member.get("target") or member.get("quota") or {}
        if member.get("state") != "Throttled":
            yield (
                member["name"],
                {way: float(rates[way]) for way in DIRECTIONS if rates.get(way) is not None},
            )


# The operator's metrics over a range of time. Only the replica that holds the policy's Lease
# exports them, so series of several Pods follow each other and are read as one.


MemberKey = tuple[str, str, Direction]  # tier, member, direction
STATES: Final = tuple(state.value for state in LevelState)
CONTRACT, STEPPING, THROTTLED, RELAXING = map(
    STATES.index, ("Contract", "Stepping", "Throttled", "Relaxing")
)
_DIRECTIONS: Final[Mapping[str, Direction]] = {direction: direction for direction in DIRECTIONS}
_OTHER_RHYTHM: Final = 0.75  # of an interval: two Prometheus servers scrape at different times


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSamples:
    """Rows over `times_ms`, NaN = unknown then; no times = no samples at all.

    `levels` are indices of `STATES`, -1 = unknown. A member without a contract has a quota only
    while it is throttled, and no target. A trail has no lines of members whose quota did not
    change.
    """

    times_ms: Whole
    quotas: Mapping[MemberKey, Rates]
    targets: Mapping[MemberKey, Rates]
    levels: Mapping[str, Whole]
    limits: Mapping[tuple[int, Direction], StepFunction]
    source: Literal["metrics", "trail"] = "metrics"

    def contract(self, key: MemberKey) -> StepFunction | None:
        """Return the member's contract as a quota on each broker; None if it is unknown."""
        row = self.targets.get(key)
        known = np.flatnonzero(np.isfinite(row)) if row is not None else ()
        return (
            StepFunction.of(self.times_ms[known], row[known])
            if row is not None and len(known)
            else None
        )


def read_operator(
    transport: Transport, policy_key: str, start_ms: int, end_ms: int, *, interval_ms: int
) -> OperatorSamples:
    """Read the operator's metrics in [start, end). Raises tidegate.errors."""

    namespace, name = policy_labels(policy_key)

    def read(metric: str) -> list[SeriesSamples]:
        return transport.read(
            Selection(metric, dict(zip(POLICY_LABELS, (namespace, name), strict=True))),
            start_ms,
            end_ms,
        )

    quotas, targets = (
        read("tidegate_member_quota_bytes_per_second"),
        read("tidegate_member_target_bytes_per_second"),
    )
    levels, limits = read("tidegate_tier_state"), read("tidegate_broker_limit_bytes_per_second")
    times = scrape_times(one.times_ms for one in (*quotas, *targets, *levels))
    most_ms = int(_OTHER_RHYTHM * interval_ms)
    return OperatorSamples(
        times,
        {
            key: carried(row, times, most_ms)
            for key, row in _members(quotas, times, namespace).items()
        },
        {
            key: carried(row, times, most_ms)
            for key, row in _members(targets, times, namespace).items()
        },
        {level: _filled(row) for level, row in _levels(levels, times).items()},
        _limits(limits),
    )


def carried(row: Rates, times_ms: Whole, most_ms: int) -> Rates:
    """Return the row with gaps of up to this length filled with the value before."""
    last = np.maximum.accumulate(np.where(np.isfinite(row), np.arange(len(row)), 0))
    return np.where(times_ms - times_ms[last] <= most_ms, row[last], np.nan) if len(row) else row


def _members(
    series: Iterable[SeriesSamples], times_ms: Whole, namespace: str
) -> dict[MemberKey, Rates]:
    rows: dict[MemberKey, Rates] = {}
    for one in series:
        direction = _DIRECTIONS.get(one.labels.get("direction", ""))
        if direction is None:
            continue
        tier = one.labels.get("tier", "")  # with its namespace where that is not the policy's
        tier_key = tier if "/" in tier else f"{namespace}/{tier}"
        key = tier_key, one.labels.get("member", ""), direction
        row = rows.setdefault(key, np.full(len(times_ms), np.nan))
        row[np.searchsorted(times_ms, one.times_ms)] = one.values
    return rows


def _levels(series: Iterable[SeriesSamples], times_ms: Whole) -> dict[str, Whole]:
    rows: dict[str, Whole] = {}
    for one in series:
        if one.labels.get("state") in STATES:
            row = rows.setdefault(one.labels.get("level", ""), np.full(len(times_ms), -1, np.int64))
            row[np.searchsorted(times_ms, one.times_ms[one.values == 1])] = STATES.index(
                one.labels["state"]
            )
    return rows


def _filled(row: Whole) -> Whole:
    """Fill gaps of a level with the state before."""
    return (
        row[np.maximum.accumulate(np.where(row >= 0, np.arange(len(row)), 0))] if len(row) else row
    )


def _limits(series: Iterable[SeriesSamples]) -> dict[tuple[int, Direction], StepFunction]:
    """Collect limits by broker and direction. The metric is 0 for a NIC without a limit."""
    by_nic: dict[tuple[int, Direction], list[SeriesSamples]] = {}
    for one in series:
        broker, way = one.labels.get("broker", ""), one.labels.get("direction", "")
        if broker.isdecimal() and way in DIRECTION_OF_WAY:
            by_nic.setdefault((int(broker), DIRECTION_OF_WAY[way]), []).append(one)
    return {key: _step_function(each) for key, each in by_nic.items()}


def _step_function(series: list[SeriesSamples]) -> StepFunction:
    times = np.concatenate([one.times_ms for one in series])
    values = np.concatenate([one.values for one in series])
    order = np.argsort(times, kind="stable")
    return StepFunction.of(times[order], np.where(values[order] > 0, values[order], np.inf))


# The lines of an audit trail that episodes are made of: quotas written, NICs over their limits, and
# mutes predicted and observed. Only applied writes count; refused and dry ones changed nothing.


_BY_LOAD = frozenset({Reason.THROTTLED, Reason.CALENDAR, Reason.RELAXING, Reason.RELEASED})


@dataclass(frozen=True, slots=True)
class Written:
    """A byte rate written at `at_ms`; None = unlimited.

    `contract` None = nothing is promised, so nothing is below it.
    """

    at_ms: int
    policy: str
    entity: str
    direction: str
    member: str
    tier: str
    level: str
    before: int | None
    after: int | None
    contract: int | None
    predicted_mute_seconds: float | None
    reason: str = ""

    @property
    def is_below(self) -> bool:
        return self.after is not None and self.contract is not None and self.after < self.contract

    @property
    def was_below(self) -> bool:
        return self.before is not None and self.contract is not None and self.before < self.contract

    @property
    def ends_hold(self) -> bool:
        """Whether it replaced a throttle, not a foreign quota or one for fewer leaders."""
        return self.was_below and self.reason in _BY_LOAD

    @property
    def is_cut(self) -> bool:
        return self.after is not None and (self.before is None or self.after < self.before)


@dataclass(frozen=True, slots=True)
class NicOver:
    """A NIC over its limit, as a round of decisions read it; `over_rate` None = unknown."""

    at_ms: int
    direction: str
    broker: int
    over_rate: float | None


@dataclass(frozen=True, slots=True)
class Muted:
    """The longest mute that Kafka reported after a round, of any client in it."""

    at_ms: int
    direction: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Trail:
    """What was read, each in order of time; `since_ms` is its beginning, None = it has no lines."""

    written: Sequence[Written] = field(default_factory=tuple)
    over: Sequence[NicOver] = field(default_factory=tuple)
    muted: Sequence[Muted] = field(default_factory=tuple)
    since_ms: int | None = None


def read_trail(lines: Iterable[AuditLine], policy: str, *, end_ms: int) -> Trail:
    """Read the lines of this policy ("" = of all) before `end_ms`.

    Lines before the period give the state in which it begins. Trails of several replicas may be
    given one after the other. What a line lacks is left out, never made up.
    """
    ours = sorted((line for line in lines if policy in ("", line.get("policy"))), key=_at_ms)
    ours = [line for line in ours if _at_ms(line) < end_ms]
    return Trail(
        tuple(one for line in ours if line.get("kind") == "write" for one in _written(line)),
        tuple(one for line in ours if line.get("kind") == "round" for one in _over(line)),
        tuple(one for line in ours if line.get("kind") == "effect" for one in _muted(line)),
        since_ms=_at_ms(ours[0]) if ours else None,
    )


def _at_ms(line: AuditLine) -> int:
    return round(seconds_of(line) * 1000)


def _written(line: AuditLine) -> Iterator[Written]:
    direction = DIRECTION_OF_KEY.get(str(line.get("key")))
    if direction is None or line.get("outcome") != "applied":
        return
    yield Written(
        at_ms=_at_ms(line),
        policy=str(line.get("policy")),
        entity=str(line.get("entity")),
        direction=direction,
        member=str(line.get("member") or ""),
        tier=str(line.get("tier") or ""),
        level=str(line.get("level") or ""),
        before=_whole_number(line.get("from")),
        after=_whole_number(line.get("to")),
        contract=_whole_number(line.get("contract")),
        predicted_mute_seconds=_seconds(line.get("predictedMute_s")),
        reason=str(line.get("reason") or ""),
    )


def _over(line: AuditLine) -> Iterator[NicOver]:
    for broker, direction in product(line.get("brokers", ()), _directions(line)):
        if broker.get("need"):
            nic, threshold = broker.get("nic"), broker.get("threshold")
            known = isinstance(nic, (int, float)) and isinstance(threshold, (int, float))
            yield NicOver(
                _at_ms(line),
                direction,
                int(broker["id"]),
                max(0.0, nic - threshold) if known else None,
            )


def _muted(line: AuditLine) -> Iterator[Muted]:
    observed = (_seconds(entity.get("observedMute_s")) for entity in line.get("entities", ()))
    known = [seconds for seconds in observed if seconds is not None]
    if known:
        for direction in _directions(line):
            yield Muted(_at_ms(line), direction, max(known))


def _directions(line: AuditLine) -> Iterable[str]:
    way = str(line.get("dir"))
    return DIRECTIONS if way == model.Direction.COMBINED else (DIRECTION_OF_WAY.get(way, way),)


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


# The trail as samples, where Prometheus does not scrape the operator. It has the time of every
# write in ms. The rate that the first write replaced was in force since the trail began.


_BACK: Final = frozenset({Reason.RELAXING})
_HELD: Final = _BACK | {Reason.THROTTLED, Reason.CALENDAR}
_FOR_EVER: Final = 2**62


class TrailAccount:
    """One policy's writes by member, as samples.

    A value is the one in force before its time, as a scrape covers the time before it.
    """

    def __init__(self, lines: Iterable[AuditLine], policy_key: str, interval_ms: int) -> None:
        trail = read_trail(lines, policy_key, end_ms=_FOR_EVER)
        self._since_ms = trail.since_ms
        self._interval_ms = interval_ms
        self._writes: dict[MemberKey, list[Written]] = {}
        for direction in DIRECTIONS:
            for one in (
                each for each in trail.written if each.direction == direction and each.member
            ):
                self._writes.setdefault((one.tier, one.member, direction), []).append(one)

    def samples(self, start_ms: int, end_ms: int) -> OperatorSamples:
        """Return what was in force in [start, end), from the first line of the trail on.

        There are no times without a trail.
        """
        times = self._times(start_ms, end_ms)
        rows = {key: _Rows(writes, times) for key, writes in self._writes.items()}
        return OperatorSamples(
            times,
            {key: row.quotas for key, row in rows.items()},
            {key: row.contracts for key, row in rows.items()},
            _level_rows(rows.values(), len(times)),
            {},
            "trail",
        )

    def _times(self, start_ms: int, end_ms: int) -> Whole:
        """Return the times of regular scrapes, and the times before and after each write."""
        if self._since_ms is None:
            return np.empty(0, np.int64)
        written = np.array(
            [one.at_ms for writes in self._writes.values() for one in writes], np.int64
        )
        usual = np.arange(
            start_ms + -start_ms % self._interval_ms, end_ms, self._interval_ms, dtype=np.int64
        )
        times = np.unique(np.concatenate([usual, written, written + 1]))
        return times[(times >= max(start_ms, self._since_ms)) & (times < end_ms)]


class _Rows:
    """Quota, contract and state of one member and direction at these times."""

    def __init__(self, writes: Sequence[Written], times_ms: Whole) -> None:
        self.level = next((one.level for one in reversed(writes) if one.level), "")
        # 0 = before the first
        last = np.searchsorted(
            np.array([one.at_ms for one in writes], np.int64), times_ms, side="left"
        )
        self.quotas = _row_of([writes[0].before, *(one.after for one in writes)])[last]
        at_first = writes[0].contract if writes[0].ends_hold or not writes[0].was_below else None
        self.contracts = _row_of([at_first, *(one.contract for one in writes)])[last]
        relaxing, held = (
            np.array([False, *(one.reason in reasons for one in writes)])[last]
            for reasons in (_BACK, _HELD)
        )
        without_contract = np.isnan(self.contracts) & np.isfinite(self.quotas) & held
        self.below: Flags = (self.quotas < self.contracts) | without_contract
        self.relaxing: Flags = self.below & relaxing


def _row_of(rates: Sequence[int | None]) -> Rates:
    return np.array([np.nan if rate is None else rate for rate in rates], np.float64)


def _level_rows(rows: Iterable[_Rows], times: int) -> dict[str, Whole]:
    """Return the states of levels. One relaxes once all its members below contract do."""
    below: dict[str, Flags] = {}
    cut: dict[str, Flags] = {}
    for row in rows:
        below[row.level] = below.get(row.level, np.zeros(times, bool)) | row.below
        cut[row.level] = cut.get(row.level, np.zeros(times, bool)) | (row.below & ~row.relaxing)
    return {
        level: np.where(cut[level], THROTTLED, np.where(below[level], RELAXING, CONTRACT)).astype(
            np.int64
        )
        for level in below
    }
