"""Rows of `tidegate top`: brokers against their limits, levels, members and why they have a quota.

Rates are bytes per second, measured ones as floats; None is unknown, never zero. Rows join the
observation and the decision.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, metrics_of, opened_cluster
from tidegate.commands.options import AccessOptions
from tidegate.control.ledger_watch import look_of
from tidegate.errors import TidegateError
from tidegate.observe.metrics_watch import Reader
from tidegate.observe.observation import KafkaCluster, Observer, QuotaPlugins
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    DIRECTION_OF,
    ClientRate,
    Direction,
    Entity,
    LedgerEntry,
    Level,
    Observation,
    QuotaKey,
    ReadingProblem,
    Readings,
    StoredQuota,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.readings import Flows, flows_of
from tidegate_logic.throttle.nic_status import (
    NicStatus,
    Pressure,
    Watched,
    WatchedBroker,
    watch,
)

# One policy's cluster and its load, read but not written, observed and judged as by the operator.
#
# Only the last pressure of each broker is kept from view to view, so that a load around its limit
# does not flicker. The decision is made without the load: what to throttle depends on the memory of
# the running operator, which a command does not have.


@dataclass(frozen=True, slots=True)
class LevelWord:
    """One level in the policy's status: its state, since when (RFC 3339) and why."""

    state: str
    since: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """One view of a policy's cluster. `is_measured` = the policy has metrics.

    Without them, or without known brokers, readings are None. `cluster_id` None = no answer.
    `watched` None = load or brokers are not known at all. `said` are the levels in the operator's
    status.
    """

    observation: Observation
    decision: Decision
    cluster_id: str | None
    is_measured: bool
    watched: Watched | None = None
    flows: Flows = field(default_factory=Flows)  # the rates of clients, by usable readings only
    said: Mapping[Level, LevelWord] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def readings(self) -> Readings | None:
        return self.observation.readings


class Viewer:
    """Reads one view of a policy's cluster after another. Nothing is written."""

    def __init__(
        self, around: CommandContext, cluster: KafkaCluster, reader: Reader | None
    ) -> None:
        self._around = around
        self._cluster = cluster
        self._reader = reader
        self._observer = Observer(QuotaPlugins(settle_seconds=0.0, beside=False))
        self._pressures: Mapping[int, Pressure] = {}

    def read(self, source: PolicySource) -> View:
        """Read one view. A server that is away makes a hold or a problem of readings, no error."""
        now_seconds = self._around.now_seconds()
        usage, unread = source.usage(now_seconds)
        seen = self._observer.observe(
            source.declared,
            self._cluster,
            now_seconds=now_seconds,
            usage=usage,
            ledger=look_of(source.status, source.declared.policy),
        )
        decision, _ = decide(seen.observation, Memory())
        observation = replace(seen.observation, readings=self._read(seen.observation))
        stale_after_seconds = observation.policy.stale_after_seconds
        flows = flows_of(
            observation.readings, now_seconds=now_seconds, stale_after_seconds=stale_after_seconds
        )
        watched = watch(observation, flows, self._pressures)
        self._pressures = {one.broker: one.pressure for one in watched or ()}
        cluster_id = seen.facts.cluster_id if seen.facts is not None else None
        warnings = (*source.remarks(), *(warning.message for warning in (*seen.warnings, *unread)))
        return View(
            observation,
            decision,
            cluster_id,
            self._reader is not None,
            watched,
            flows,
            _said(source.status),
            warnings,
        )

    def _read(self, observation: Observation) -> Readings | None:
        if self._reader is None or observation.topology is None:
            return None
        try:
            return self._reader.read(observation.topology.brokers)
        except TidegateError as error:
            problem = ReadingProblem(error.reason, error.message)
            return Readings(observation.now_seconds, 0.0, problems=(problem,))


def _said(status: Mapping[str, Any]) -> Mapping[Level, LevelWord]:
    levels = {level.value: level for level in Level}
    known = [one for one in status.get("levels") or () if one.get("level") in levels]
    return {
        levels[one["level"]]: LevelWord(
            str(one.get("state")), one.get("since") or "", one.get("because") or ""
        )
        for one in known
    }


@contextmanager
def opened_viewer(
    around: CommandContext,
    source: PolicySource,
    access: AccessOptions,
    *,
    metrics_file: Path | None,
) -> Iterator[Viewer]:
    """The policy's cluster and Prometheus; `metrics_file` has the credentials of the latter."""
    with opened_cluster(around, source, access) as cluster:
        reader = _reader(around, source, metrics_file)
        if reader is None:
            yield Viewer(around, cluster, None)
            return
        with closing(reader):
            yield Viewer(around, cluster, reader)


def _reader(
    around: CommandContext, source: PolicySource, metrics_file: Path | None
) -> Reader | None:
    settings = metrics_of(source, metrics_file)
    return None if settings is None else around.open_reader(settings)


_FIRST_LEVEL_LAST = sorted(Level, reverse=True)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker in one direction. `why` explains its state, `clients` is their rate together."""

    broker: int
    direction: Direction | None
    pressure: Pressure
    nic: NicStatus | None
    clients: float | None
    age_seconds: float | None
    why: str


@dataclass(frozen=True, slots=True)
class RateRow:
    """One byte rate of one member. `sends` is its rate over all brokers.

    `delay_seconds` is the longest throttle time that any broker reports. `in_force` is the quota in
    Kafka now, per broker as `contract` is; None = unlimited, or not known where not `is_read`.
    `entry` is its entry in the ledger.
    """

    report: MemberReport
    key: QuotaKey
    sends: float | None
    delay_seconds: float | None
    in_force: int | None
    contract: int | None
    is_read: bool
    entry: LedgerEntry | None

    @property
    def is_below(self) -> bool:
        """Whether its quota is below its contract."""
        return (
            self.contract is not None
            and self.in_force is not None
            and self.in_force < self.contract
        )


@dataclass(frozen=True, slots=True)
class LevelRow:
    """All members of one level. Rates are sums of those that are known, None = none is.

    `word` None = not in the operator's status.
    """

    level: Level
    word: LevelWord | None
    tiers: int
    members: int
    below: int
    fetch: float | None
    produce: float | None
    delay_seconds: float | None


def broker_rows(view: View) -> tuple[BrokerRow, ...]:
    """A row for each limited direction of each live broker; one row for a broker without limits."""
    flows = view.flows
    return tuple(
        row
        for one in view.watched or ()
        for row in _rows_of(one, flows, view.observation.now_seconds)
    )


def _rows_of(one: WatchedBroker, flows: Flows, now_seconds: float) -> Iterable[BrokerRow]:
    if not one.nics:
        yield BrokerRow(one.broker, None, one.pressure, None, None, None, "it has no limit")
    for way, nic in one.nics.items():
        clients = flows.total(one.broker, way) if flows.is_measured(one.broker, way) else None
        age_seconds = None if nic.at_seconds is None else max(0.0, now_seconds - nic.at_seconds)
        yield BrokerRow(
            one.broker, way, _pressure(one, nic), nic, clients, age_seconds, _why(one, nic)
        )


def _pressure(one: WatchedBroker, nic: NicStatus) -> Pressure:
    """The NIC's state; if only its broker is over, OVER where it was over its limit just before."""
    swings = (
        one.pressure is Pressure.OVER
        and nic.known
        and not any(other.pressure is Pressure.OVER for other in one.nics.values())
    )
    return Pressure.OVER if swings and nic.hot_samples else nic.pressure


def _why(one: WatchedBroker, nic: NicStatus) -> str:
    if not nic.known:
        return nic.why
    hot = f"{nic.hot_samples} of {nic.samples} samples above" if nic.hot_samples else ""
    swings = (
        "was above a moment ago"
        if one.pressure is Pressure.OVER and nic.pressure is Pressure.WITHIN and not hot
        else ""
    )
    return hot or swings


def rate_rows(view: View) -> tuple[RateRow, ...]:
    """Every managed byte rate: those below contract first, then from L3 up, then by traffic."""
    flows, quotas = view.flows, view.observation.quotas or {}
    reports = [report for report in view.decision.members if report.counts]
    rows = [
        _rate_row(report, key, flows, quotas)
        for report in reports
        for key in DIRECTION_OF
        if _is_managed(report, key, flows)
    ]
    return tuple(sorted(rows, key=_order))


def _is_managed(report: MemberReport, key: QuotaKey, flows: Flows) -> bool:
    """A member without a contract in this direction is shown only while it sends."""
    return (
        key in report.quota
        or key in report.promise.values
        or bool(flows.of((report.entity, DIRECTION_OF[key])))
    )


def _rate_row(
    report: MemberReport, key: QuotaKey, flows: Flows, quotas: Mapping[Entity, StoredQuota]
) -> RateRow:
    found = tuple(flows.of((report.entity, DIRECTION_OF[key])).values())
    stored = quotas.get(report.entity)
    return RateRow(
        report,
        key,
        sends=sum(flow.bytes_per_second for flow in found)
        if found
        else _nothing_or_unknown(flows, DIRECTION_OF[key]),
        delay_seconds=_delay(found),
        in_force=enforced_rate(stored.values.get(key)) if stored is not None else None,
        contract=report.promise.values.get(key),
        is_read=stored is not None and stored.problem is None,
        entry=stored.ledger.entries.get(key)
        if stored is not None and stored.ledger is not None
        else None,
    )


def _nothing_or_unknown(flows: Flows, way: Direction) -> float | None:
    """A client without series: rate zero where brokers report others, unknown where they do not."""
    return 0.0 if any(direction is way for _, direction in flows.totals) else None


def _delay(flows: Iterable[ClientRate]) -> float | None:
    delays = [
        flow.throttle_milliseconds for flow in flows if flow.throttle_milliseconds is not None
    ]
    return max(delays) / 1000 if delays else None


def _order(row: RateRow) -> tuple[bool, int, float, str]:
    return (
        not row.is_below,
        _FIRST_LEVEL_LAST.index(row.report.level),
        -(row.sends or 0.0),
        row.report.entity.sort_key,
    )


def level_rows(view: View, rows: Sequence[RateRow]) -> tuple[LevelRow, ...]:
    """Every level that has members, L0 first."""
    levels = [level for level in Level if _has(rows, level)]
    return tuple(
        _level_row(level, [row for row in rows if row.report.level is level], view.said.get(level))
        for level in levels
    )


def _has(rows: Sequence[RateRow], level: Level) -> bool:
    return any(row.report.level is level for row in rows)


def _level_row(level: Level, rows: Sequence[RateRow], word: LevelWord | None) -> LevelRow:
    delays = [row.delay_seconds for row in rows if row.delay_seconds is not None]
    return LevelRow(
        level,
        word,
        tiers=len({row.report.tier_key for row in rows}),
        members=len({row.report.entity for row in rows}),
        below=len({row.report.entity for row in rows if row.is_below}),
        fetch=_total(row.sends for row in rows if row.key is QuotaKey.CONSUMER_BYTE_RATE),
        produce=_total(row.sends for row in rows if row.key is QuotaKey.PRODUCER_BYTE_RATE),
        delay_seconds=max(delays, default=None),
    )


def _total(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
