"""One line of a plan for each entity and quota key, gathered from what was observed and what was decided.

Nothing is computed here: the value in force comes out of the observation, every other number out of the decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.decision import Decision, MemberReport, MemberState
from controller_logic.model import Entity, Observation, QuotaKey, QuotaWrite, WriteKind
from controller_logic.quotas.values import enforced_rate
from tidegate.commands.output import ExitCode
from tidegate.commands.quantity import KEY_ORDER


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One quota key of one entity, before and after.

    `in_force` and `next` are exact texts (None = no quota, unlimited); they are equal where nothing would be written.
    `write` is what would be sent, `report` what the decision says of the member; either may be missing, but never both.
    """

    entity: Entity
    key: QuotaKey
    in_force: str | None
    next: str | None
    write: QuotaWrite | None
    report: MemberReport | None

    @property
    def changes(self) -> bool:
        return self.in_force != self.next

    @property
    def lowers(self) -> bool:
        """Whether a limit that is in force becomes a smaller one, so that clients may be muted."""
        before, after = enforced_rate(self.in_force), enforced_rate(self.next)
        return before is not None and after is not None and after < before

    @property
    def target(self) -> int | None:
        """Where the key should end, as decided; None where nothing of ours is to stay."""
        return self.report.target.get(self.key) if self.report else None

    @property
    def who(self) -> str:
        """Which promise it is for: `tier / member`, the policy's defaults, or nobody any more."""
        if self.report:
            return f"{self.report.tier_key} / {self.report.member_name}"
        given_back = self.write is not None and self.write.kind is WriteKind.GIVE_BACK
        return "no longer managed" if given_back else "policy defaults"


def planned_writes(decision: Decision) -> tuple[QuotaWrite, ...]:
    """What would be written: the decision's writes, or in Observe mode those that Enforce would send."""
    return decision.writes or decision.would_write


def plan_rows(observation: Observation, decision: Decision) -> tuple[PlanRow, ...]:
    """Every key that is managed or would be written, users before their clients, fetch before produce.

    A member that is left alone because an earlier one has its entity shows no row of its own; its message says so.
    """
    writes = {write.entity: write for write in planned_writes(decision)}
    reports = {report.entity: report for report in decision.members if report.state is not MemberState.OVERLAPPING}
    entities = sorted({*writes, *reports}, key=lambda entity: entity.sort_key)
    return tuple(
        _row(observation, entity, key, write=writes.get(entity), report=reports.get(entity))
        for entity in entities
        for key in _keys(writes.get(entity), reports.get(entity))
    )


def _keys(write: QuotaWrite | None, report: MemberReport | None) -> list[QuotaKey]:
    written: Mapping[QuotaKey, object] = write.values if write else {}
    reported = {*report.quota, *report.target} if report else set()
    return sorted({*written, *reported}, key=KEY_ORDER.__getitem__)


def _row(observation: Observation, entity: Entity, key: QuotaKey, *, write: QuotaWrite | None, report: MemberReport | None) -> PlanRow:
    stored = (observation.quotas or {}).get(entity)
    in_force = stored.values.get(key) if stored else None
    following = write.values[key] if write and key in write.values else in_force
    return PlanRow(entity=entity, key=key, in_force=in_force, next=following, write=write, report=report)


def plan_exit_code(decision: Decision) -> ExitCode:
    """2 when anything would be written now or later, 1 when a hold leaves that unknown, else 0."""
    stepping = any(report.state is MemberState.STEPPING for report in decision.members)
    if planned_writes(decision) or decision.deferred_writes or stepping:
        return ExitCode.WOULD_CHANGE
    return ExitCode.ERROR if decision.holds else ExitCode.OK
