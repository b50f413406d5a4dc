"""Statuses of BandwidthBudgets after a pass.

Rates that members use change all the time, and each status is a write to Kubernetes. So a measured
rate of the previous status stays while the new one is within 10 % of the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidegate.control.report.conditions import Truth, Verdict, ready
from tidegate.kube.api import JsonObject
from tidegate.observe.declared import Declared, object_key
from tidegate.resources.budget import (
    BudgetMemberStatus,
    BudgetStatus,
    BudgetStatusSummary,
)
from tidegate.resources.status import MAX_SHOWN_MEMBERS, LimitedBy, TotalRates
from tidegate_logic.contracts.budgets import BudgetedMember, BudgetReport
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.decision import Decision
from tidegate_logic.model import KEY_OF, Direction, Entity, Member, Mode
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted, rate_of_words

if TYPE_CHECKING:  # a command has words of this module, and waits for its imports
    from tidegate.control.reconcile import PassResult

STEADY = 0.10  # of the total: a smaller change of a measured rate does not change the status
_NAMES = {Direction.EGRESS: "fetch", Direction.INGRESS: "produce"}
_DIVIDED = frozenset({Reason.BUDGET_DIVIDED, Reason.BUDGET_WAITS})

BudgetVerdict = tuple[JsonObject, BudgetStatus, tuple[Verdict, ...]]


def budget_reports(
    result: PassResult, declared: Declared, budgets: Iterable[JsonObject]
) -> list[BudgetVerdict]:
    """A status for each budget that was read before the pass, broken ones included."""
    decision, policy = result.decision, declared.policy
    broken = {one.key: one.message for one in declared.broken_budgets}
    members = {one.entity: one for one in decision.members if one.counts}
    reports: list[BudgetVerdict] = []
    for raw in budgets:
        key = object_key(raw)
        found = decision.budgets.get(key)
        if key in broken:
            reports.append(unread_budget(raw, Reason.INVALID_SPEC, broken[key]))
        elif policy.deleting:
            text = f"policy {policy.key} is being deleted, and every quota is restored"
            reports.append(unread_budget(raw, Reason.GIVEN_BACK, text))
        elif decision.holds or found is None:
            reason, text = Reason.STARTING, "The first pass over its policy has not ended yet"
            if decision.holds:
                reason, text = decision.holds[0].reason, decision.holds[0].message
            reports.append((raw, BudgetStatus(), (ready(Truth.UNKNOWN, reason, text),)))
        else:
            status = _status(found, members, previous=raw.get("status") or {})
            reports.append((raw, status, (_ready(found, policy.mode),)))
    return reports


def unread_budget(raw: JsonObject, reason: Reason, message: str) -> BudgetVerdict:
    """The status of a budget without effect: it or its policy cannot be read or found."""
    return raw, BudgetStatus(members=None), (ready(Truth.FALSE, reason, message),)


def starting_budget(raw: JsonObject) -> BudgetVerdict:
    """The status of an object that was just created, before any pass has ended."""
    message = "Seen; the first pass over its policy has not ended yet"
    return raw, BudgetStatus(), (ready(Truth.UNKNOWN, Reason.STARTING, message),)


def budget_words(report: BudgetReport) -> str:
    """`budget streaming/search: fetch 40 of 120 MB/s, ...`, for commands; without a stop."""
    totals = {way: report.budget.totals.get(KEY_OF[way]) for way in KEY_OF}
    rates = ", ".join(
        f"{_NAMES[way]} {rate_of_words(report.measured.get(way), total)}"
        for way, total in totals.items()
        if total is not None
    )
    words = f"budget {report.budget.key}: {rates}"
    return f"{words} ({report.reason.value}: {report.message})" if report.message else words


def _ready(report: BudgetReport, mode: Mode) -> Verdict:
    if report.reason not in _DIVIDED:
        truth = Truth.UNKNOWN if report.reason is Reason.BUDGET_UNMEASURED else Truth.FALSE
        kept = "; what each member may have stays as it is" if truth is Truth.UNKNOWN else ""
        return ready(truth, report.reason, f"{report.message}{kept}")
    if report.reason is Reason.BUDGET_WAITS:
        return ready(Truth.TRUE, report.reason, report.message)
    short = sum(bool(one.short) for one in report.members)
    text = (
        f"{short} of {counted(len(report.members), 'member')} limited by the budget, the others "
        "by their contracts"
    )
    if mode is Mode.OBSERVE:
        return ready(Truth.TRUE, Reason.OBSERVING, f"mode is Observe, nothing is written; {text}")
    return ready(Truth.TRUE, report.reason, text)


def _status(
    report: BudgetReport, reports: Mapping[Entity, MemberReport], *, previous: Mapping[str, Any]
) -> BudgetStatus:
    totals = report.budget.totals
    before = {(one.get("tier"), one.get("member")): one for one in previous.get("members") or ()}
    measured = _steady(report, report.measured, previous.get("measured"))
    shown = report.members[:MAX_SHOWN_MEMBERS]
    permitted: dict[str, int] = {}
    for one in report.members:
        for way, rate in _permitted(reports.get(one.member.entity)).items():
            permitted[way] = permitted.get(way, 0) + rate
    return BudgetStatus(
        measured=_rates(measured),
        permitted=_rates(permitted),
        members=tuple(
            _member(
                report,
                one,
                reports.get(one.member.entity),
                before.get((one.tier.key, one.member.name), {}),
            )
            for one in shown
        )
        or None,
        children=report.children[:MAX_SHOWN_MEMBERS] or None,
        summary=BudgetStatusSummary(
            members=len(report.members),
            **{
                name: rate_of_words(measured.get(name), totals[KEY_OF[way]])
                for way, name in _NAMES.items()
                if KEY_OF[way] in totals
            },
        ),
    )


def _member(
    budget: BudgetReport,
    member: BudgetedMember,
    report: MemberReport | None,
    previous: Mapping[str, Any],
) -> BudgetMemberStatus:
    return BudgetMemberStatus(
        tier=member.tier.key,
        member=member.member.name,
        level=member.tier.level.value,
        measured=_rates(_steady(budget, member.measured, previous.get("measured"))),
        allowed=_rates({_NAMES[way]: limit for way, limit in member.limits.items()}),
        permitted=_rates(_permitted(report)),
        limited_by=limited_by(member.member, report, is_short=bool(member.short)),
    )


def short_of(decision: Decision) -> frozenset[Entity]:
    """Those whose budget allows less than their contract."""
    reports = decision.budgets.values()
    return frozenset(one.member.entity for report in reports for one in report.members if one.short)


def limited_by(member: Member, report: MemberReport | None, *, is_short: bool) -> LimitedBy | None:
    """What sets the member's quota, the strongest first; None = nothing limits it."""
    if report is not None and report.state is MemberState.THROTTLED:
        return "Calendar" if report.reason is Reason.CALENDAR else "BrokerLimit"
    if member.override is not None:
        return "Override"
    if report is not None and report.member.protected:
        return "ShareGroup"
    if is_short:
        return "Budget"
    contract = member.contract
    return None if contract is None or contract.is_empty else "Contract"


def _steady(
    report: BudgetReport, measured: Mapping[Direction, float], before: Mapping[str, Any] | None
) -> dict[str, int]:
    steady: dict[str, int] = {}
    for way, rate in measured.items():
        name, total = _NAMES[way], report.budget.totals.get(KEY_OF[way])
        if total is None:
            continue
        was = (before or {}).get(name)
        is_near = isinstance(was, int) and abs(rate - was) <= STEADY * total
        steady[name] = was if isinstance(was, int) and is_near else round(rate)
    return steady


def _permitted(report: MemberReport | None) -> dict[str, int]:
    permitted = {} if report is None else report.permitted_total
    return {
        name: permitted[KEY_OF[way]] for way, name in _NAMES.items() if KEY_OF[way] in permitted
    }


def _rates(rates: Mapping[str, int]) -> TotalRates | None:
    return TotalRates(**rates) if rates else None
