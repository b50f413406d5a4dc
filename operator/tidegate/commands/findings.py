"""Findings of `tidegate doctor`: what is so, what follows from it, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidegate.commands.output import Document, Page
from tidegate.errors import TidegateError, joined
from tidegate.prometheus.nics import FUTURE_SECONDS
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted

_WORDS_OF_A_REMINDER = 3  # such as "Correct it."
QUOTAS_STAY = "The operator changes no quota until then."


class State(StrEnum):
    """How a finding is to be taken. UNKNOWN = it was not examined."""

    PROBLEM = "problem"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


def summary_words(findings: Iterable[Finding]) -> str:
    """How many findings of each state there are, the worst first."""
    counts = Counter(one.state for one in findings)
    words = {
        State.PROBLEM: counted(counts[State.PROBLEM], "problem"),
        State.WARNING: counted(counts[State.WARNING], "warning"),
        State.UNKNOWN: f"{counts[State.UNKNOWN]} not examined",
        State.OK: f"{counts[State.OK]} ok",
    }
    return ", ".join(text for state, text in words.items() if counts[state])


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about `check`. `reason` None = nothing is wrong."""

    check: str
    state: State
    what: str
    so_what: str = ""
    to_do: str = ""
    reason: Reason | None = None


def ok(check: str, what: str) -> Finding:
    """Something is as it should be."""
    return Finding(check, State.OK, what)


def unknown(check: str, what: str, to_do: str = "") -> Finding:
    """Something was not examined."""
    return Finding(check, State.UNKNOWN, what, to_do=to_do)


def warning(check: str, reason: Reason, what: str, so_what: str, to_do: str) -> Finding:
    """Something that a person should know of; Tidegate works without it."""
    return Finding(check, State.WARNING, what, so_what, to_do, reason)


def problem(check: str, reason: Reason, what: str, so_what: str, to_do: str) -> Finding:
    """Something that keeps a part of Tidegate from working."""
    return Finding(check, State.PROBLEM, what, so_what, to_do, reason)


def failed(
    check: str, error: TidegateError, so_what: str, to_do: str, *, asked: str = ""
) -> Finding:
    """A problem by the error of someone that was asked; `asked` is a sentence on how.

    Where the error has advice of its own, that is what to do, and not said twice.
    """
    is_clear = len(error.advice.split()) > _WORDS_OF_A_REMINDER
    what = joined(error.what, asked)
    return problem(check, error.reason, what, so_what, error.advice if is_clear else to_do)


def clock_finding(
    whose: str, their_seconds: float | None, our_seconds: float, *, is_for_readings: bool
) -> Finding | None:
    """How far the other clock is from ours; None if that is not known."""
    if their_seconds is None:
        return None
    ahead_seconds = our_seconds - their_seconds
    if abs(ahead_seconds) <= FUTURE_SECONDS:
        return ok("clocks", f"This machine's clock agrees with that of {whose}.")
    way = "ahead of" if ahead_seconds > 0 else "behind"
    what = f"This machine's clock is {abs(ahead_seconds):.0f} s {way} that of {whose}."
    cure = "Set the clocks (NTP, chrony) of this machine and of that one."
    if is_for_readings:
        so_what = (
            "An operator with this clock considers readings too old or from the future, and does "
            "not throttle on them."
        )
        return problem("clocks", Reason.CLOCKS_DIFFER, what, so_what, cure)
    so_what = "Overrides begin and end at other times than people expect."
    return warning("clocks", Reason.CLOCKS_DIFFER, what, so_what, cure)


def finding_document(finding: Finding) -> Document:
    """The finding as plain data."""
    document: Mapping[str, object] = {
        "check": finding.check,
        "state": finding.state.value,
        "reason": None if finding.reason is None else finding.reason.value,
        "what": finding.what,
        "soWhat": finding.so_what,
        "toDo": finding.to_do,
    }
    return {name: value for name, value in document.items() if value not in (None, "")}


_STYLES = {
    State.PROBLEM: "bold red",
    State.WARNING: "yellow",
    State.UNKNOWN: "dim",
    State.OK: "",
}


def show_findings(page: Page, findings: Iterable[Finding]) -> None:
    """Print each, with what follows and what to do on lines of their own."""
    for one in findings:
        page.say(f"{one.state.value:<8} {one.check:<11} {one.what}", _STYLES[one.state])
        for word, text in (("so:", one.so_what), ("do:", one.to_do)):
            if text:
                page.say(f"{'':<20} {word} {text}")
