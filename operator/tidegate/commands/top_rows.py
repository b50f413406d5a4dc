"""Rows of `tidegate top`: brokers against their limits, levels, members and why they have a quota.

Rates are bytes per second, measured ones as floats; None is unknown, never zero. Rows join the
observation and the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, metrics_of, opened_cluster
from tidegate.commands.options import AccessOptions
from tidegate.errors import TidegateError
from tidegate.view.load import ClientNow, LevelWords, Load, NicNow, level_words
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    DIRECTION_OF,
    KEY_OF,
    Direction,
    LedgerEntry,
    Level,
    Observation,
    QuotaKey,
    ReadingProblem,
    Readings,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.throttle.nic_status import Pressure

if TYPE_CHECKING:
    from tidegate.observe.metrics_watch import Reader
    from tidegate.observe.observation import KafkaCluster

# One policy's cluster and its load, read but not written, observed and judged as by the operator.
#
# Only the last pressure of each broker is kept from view to view, at first as the operator has it,
# so that a load around its limit does not flicker. The decision is made without the load: what to
# throttle depends on the memory of the running operator, which a command does not have.


@dataclass(frozen=True, slots=True)
class View:
    """One view of a policy's cluster. `is_measured` = the policy has metrics.

    Without them, or without known brokers, readings are None. `cluster_id` None = no answer.
    `said` are the levels in the operator's status.
    """

    observation: Observation
    decision: Decision
    cluster_id: str | None
    is_measured: bool
    load: Load
    said: Mapping[Level, LevelWords]
    warnings: tuple[str, ...]

    @property
    def readings(self) -> Readings | None:
        return self.observation.readings

    @property
    def is_whole(self) -> bool:
        """Whether all was read that the policy names: tiers, brokers, quotas and loads."""
        seen = self.observation
        is_read = None not in (seen.tiers, seen.topology, seen.quotas)
        return is_read and (not self.is_measured or bool(self.readings and self.readings.nic))


class Viewer:
    """Reads one view of a policy's cluster after another. Nothing is written."""

    def __init__(
        self, around: CommandContext, cluster: KafkaCluster, reader: Reader | None
    ) -> None:
        from tidegate.observe.broker_settings import BrokerSettings
        from tidegate.observe.observation import Observer

        self._around = around
        self._cluster = cluster
        self._reader = reader
        self._observer = Observer(
            BrokerSettings(settle_seconds=0.0, beside=False), attrgetter("for_command")
        )
        self._pressures: Mapping[int, Pressure] = {}

    def read(self, source: PolicySource) -> View:
        """Read one view. An unreachable server makes a hold or a problem of readings, no error."""
        from tidegate.control.ledger_watch import look_of

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
        load = Load(observation, source.status, self._pressures)
        self._pressures = {one.broker: one.pressure for one in load.watched or ()}
        cluster_id = seen.facts.cluster_id if seen.facts is not None else None
        warnings = (*source.remarks(), *(warning.message for warning in (*seen.warnings, *unread)))
        return View(
            observation,
            decision,
            cluster_id,
            self._reader is not None,
            load,
            level_words(source.status),
            warnings,
        )

    def _read(self, observation: Observation) -> Readings | None:
        if self._reader is None or observation.topology is None:
            return None
        try:
            return self._reader.read(observation.topology.brokers)
        except TidegateError as error:
            problem = ReadingProblem(error.reason, error.for_command)
            return Readings(observation.now_seconds, 0.0, problems=(problem,))


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
class RateRow:
    """One byte rate of one member. `entry` is its entry in the ledger.

    `in_force` is the quota in Kafka now, per broker as `contract` is; None = unlimited, or not
    known where not `is_read`.
    """

    report: MemberReport
    key: QuotaKey
    client: ClientNow
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

    `words` None = not in the operator's status.
    """

    level: Level
    words: LevelWords | None
    tiers: int
    members: int
    below: int
    fetch: float | None
    produce: float | None
    delayed_seconds: float | None


def broker_rows(view: View) -> list[NicNow]:
    """A row for each limited direction of each live broker; one row for a broker without limits."""
    by_broker: dict[int, list[NicNow]] = {one.broker: [] for one in view.load.watched or ()}
    for nic in view.load.nics(view.observation.tiers or ()) if by_broker else ():
        by_broker[nic.broker].append(nic)
    unlimited = "it has no limit"
    return [
        row
        for broker, nics in by_broker.items()
        for row in nics or [NicNow(broker, Direction.EGRESS, Pressure.WITHIN, why=unlimited)]
    ]


def rate_rows(view: View) -> list[RateRow]:
    """Every managed byte rate: those below contract first, then from L3 up, then by traffic."""
    rows = [
        _rate_row(view, report, key)
        for report in view.decision.members
        if report.counts
        for key in DIRECTION_OF
        if _is_managed(view, report, key)
    ]
    return sorted(rows, key=_order)


def _is_managed(view: View, report: MemberReport, key: QuotaKey) -> bool:
    """A member without a contract in this direction is shown only while it sends."""
    return (
        key in report.quota
        or key in report.promise.values
        or bool(view.load.flows.of((report.entity, DIRECTION_OF[key])))
    )


def _rate_row(view: View, report: MemberReport, key: QuotaKey) -> RateRow:
    stored = (view.observation.quotas or {}).get(report.entity)
    ledger = stored.ledger if stored is not None else None
    return RateRow(
        report,
        key,
        view.load.client((report.entity, DIRECTION_OF[key])),
        in_force=enforced_rate(stored.values.get(key)) if stored is not None else None,
        contract=report.promise.values.get(key),
        is_read=stored is not None and stored.problem is None,
        entry=ledger.entries.get(key) if ledger is not None else None,
    )


def _order(row: RateRow) -> tuple[bool, int, float, str]:
    return (
        not row.is_below,
        _FIRST_LEVEL_LAST.index(row.report.level),
        -(row.client.sends or 0.0),
        row.report.entity.sort_key,
    )


def level_rows(view: View, rows: Sequence[RateRow]) -> list[LevelRow]:
    """Every level that has members, L0 first."""
    by_level = {level: [row for row in rows if row.report.level is level] for level in Level}
    return [
        LevelRow(
            level,
            view.said.get(level),
            tiers=len({row.report.tier_key for row in mine}),
            members=len({row.report.entity for row in mine}),
            below=len({row.report.entity for row in mine if row.is_below}),
            fetch=_total(mine, QuotaKey.CONSUMER_BYTE_RATE),
            produce=_total(mine, QuotaKey.PRODUCER_BYTE_RATE),
            delayed_seconds=max(_known(row.client.delayed_seconds for row in mine), default=None),
        )
        for level, mine in by_level.items()
        if mine
    ]


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One direction of one budget, in bytes/s. `depth` is how many parents it has.

    `measured` counts what members of the budgets below it send, too; None = not known. `permitted`
    (None = it has no members) and `members` are of its own members, of whom it gives `limited` less
    than their contract.
    """

    key: str
    parent: str | None
    depth: int
    direction: Direction
    total: int
    permitted: int | None
    measured: float | None
    limited: int
    members: int


def budget_rows(view: View) -> list[BudgetRow]:
    """Every direction that a budget limits, each budget below its parent."""
    found, rows = view.decision.budgets, []
    children = {key: report.children for key, report in found.items()}
    below = {child for group in children.values() for child in group}
    allows = {one.entity: one.permitted_total for one in view.decision.members if one.counts}

    def measured(key: str, direction: Direction) -> float | None:
        parts = [
            view.load.client((one.member.entity, direction)).sends for one in found[key].members
        ]
        parts += [measured(child, direction) for child in children[key]]
        known = _known(parts)
        return sum(known) if len(known) == len(parts) else None

    def add(key: str, depth: int) -> None:
        report = found[key]
        for direction, quota_key in KEY_OF.items():
            if quota_key not in report.budget.totals:
                continue
            permitted = sum(
                allows.get(one.member.entity, {}).get(quota_key, 0) for one in report.members
            )
            rows.append(
                BudgetRow(
                    key,
                    report.budget.parent if depth else None,
                    depth,
                    direction,
                    report.budget.totals[quota_key],
                    permitted if report.members else None,
                    measured(key, direction),
                    sum(direction in one.short for one in report.members),
                    len(report.members),
                )
            )
        for child in children[key]:
            add(child, depth + 1)

    for key in found:
        if key not in below:
            add(key, 0)
    return rows


def _total(rows: Sequence[RateRow], key: QuotaKey) -> float | None:
    known = _known(row.client.sends for row in rows if row.key is key)
    return sum(known) if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
