"""A plan as people read it: what is held, what would change and why, what it costs, and one line that sums it up.

Rates are words; whoever needs every digit asks for `--output json`.
"""

from collections import Counter

from controller_logic.decision import Decision, MemberReport, MemberState
from controller_logic.model import Mode, Observation, WriteKind
from controller_logic.quotas.values import KEY_WORDS
from tidegate.commands.output import Page
from tidegate.commands.plan_rows import PlanRow, plan_rows, planned_writes
from tidegate.commands.quantity import short_words
from tidegate.commands.sheet import Column, Sheet
from tidegate.control.report.status import advice_remarks, override_remarks

COLUMNS = (
    Column("entity", fold=True),
    Column("key"),
    Column("now", right=True),
    Column("next", right=True),
    Column("target", right=True),
    Column("reason"),
    Column("leaders", right=True),
    Column("skew", right=True),
    Column("promised", right=True),
    Column("permitted", right=True),
    Column("mute", right=True),
    Column("who", fold=True),
)
_KIND_WORDS = {
    WriteKind.RECOVERY: "raised because leaders moved",
    WriteKind.LOWERING: "lowered",
    WriteKind.RAISE: "raised",
    WriteKind.FIRST: "set by Tidegate for the first time",
    WriteKind.GIVE_BACK: "given back",
    WriteKind.RECORD: "only recorded as ours",
}
_UNREMARKABLE = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})


def show_plan(page: Page, observation: Observation, decision: Decision, *, show_unchanged: bool) -> None:
    """The plan from top to bottom; `show_unchanged` adds the rows that would stay as they are."""
    _show_head(page, observation)
    for hold in decision.holds:
        page.warn(f"held ({hold.reason.value}): {hold.message}")
    rows = [row for row in plan_rows(observation, decision) if row.changes or show_unchanged]
    if rows:
        page.say()
    page.sheet(Sheet(COLUMNS, [_cells(row) for row in rows]))
    _show_remarks(page, decision)
    page.heading(summary_line(decision))


def _show_head(page: Page, observation: Observation) -> None:
    policy = observation.policy
    brokers = f", {len(observation.topology.brokers)} brokers" if observation.topology else ""
    page.say(f"Policy {policy.key}, mode {policy.mode.value}{brokers}. Nothing is written by this command.", "bold")
    if policy.mode is Mode.OBSERVE:
        page.say("The policy only observes: the operator writes nothing until mode is Enforce.")
    if policy.paused:
        page.warn("the policy is paused: the operator writes nothing until the annotation tidegate.io/paused is removed.")


def _cells(row: PlanRow) -> tuple[str, ...]:
    report = row.report
    return (
        str(row.entity),
        KEY_WORDS[row.key],
        short_words(row.key, row.in_force),
        short_words(row.key, row.next) if row.changes else "same",
        "" if row.target is None else short_words(row.key, row.target),
        row.write.reason.value if row.write else _state(report),
        "" if report is None or report.leaders is None else str(report.leaders),
        "" if report is None or report.leader_skew is None else f"{report.leader_skew:.2f}",
        _total(row, report.contract_total.get(row.key) if report else None),
        _total(row, report.permitted_total.get(row.key) if report else None),
        f"{row.write.predicted_mute_seconds:.0f} s" if row.write and row.write.predicted_mute_seconds and row.lowers else "",
        row.who,
    )


def _state(report: MemberReport | None) -> str:
    return report.reason.value if report else ""


def _total(row: PlanRow, bytes_per_second: int | None) -> str:
    return "" if bytes_per_second is None else short_words(row.key, bytes_per_second)


def _show_remarks(page: Page, decision: Decision) -> None:
    remarks = [
        f"{report.tier_key} / {report.member_name} ({report.state.value}): {report.message}"
        for report in decision.members
        if report.state not in _UNREMARKABLE
    ]
    remarks += [f"{note.reason.value}: {note.message}" for note in decision.notes]
    remarks += override_remarks(decision.overridden)
    remarks += advice_remarks(decision.advice)
    if remarks:
        page.heading("Worth knowing")
    for remark in remarks:
        page.say(f"- {remark}")


def summary_line(decision: Decision) -> str:
    """One sentence: how many entities would be written and how, how many are right already, what waits."""
    kinds = Counter(write.kind for write in planned_writes(decision))
    changed = ", ".join(f"{kinds[kind]} {words}" for kind, words in _KIND_WORDS.items() if kinds[kind])
    would = f"Would write {kinds.total()} of {decision.managed} managed entities: {changed}"
    parts = [
        would if changed else "Nothing would be written now",
        f"{decision.in_sync} of {decision.managed} {'then ' if changed else ''}at their target",
    ]
    if decision.contended:
        parts.append(f"{decision.contended} left alone because another writer keeps changing them")
    if decision.deferred_writes:
        parts.append(f"{decision.deferred_writes} more wait for the write budget")
    if decision.next_pass_in_seconds is not None:
        parts.append(f"the next step is due in {decision.next_pass_in_seconds:.0f} s")
    return "; ".join(parts) + "."
