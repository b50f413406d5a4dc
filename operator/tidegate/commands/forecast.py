"""`tidegate forecast`: which brokers will be over their limits when, and a calendar for it."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import policy_of, terms_of
from tidegate.commands.output import Column, OutputFormat, Page, Sheet, publish
from tidegate.commands.rollup import PolicyFiles, Store, store_address
from tidegate.commands.rollup_job import require_extra
from tidegate.errors import InvalidResource
from tidegate_logic.model import CalendarEntry
from tidegate_logic.recurrence import DAYS
from tidegate_logic.words import rate_of_words, rate_words, rfc3339

if TYPE_CHECKING:
    from tidegate_logic.forecast import Peak

_WEEK_MS, _HOUR_MS = 7 * 86_400_000, 3_600_000
_NAMED = 5  # members who would be throttled; the others are counted


@options.command
def forecast(
    around: CommandContext,
    *,
    store: Store,
    file: PolicyFiles = None,
    weeks: Annotated[
        int, typer.Option("--weeks", min=3, max=52, help="How many past weeks to learn from.")
    ] = 8,
    days: Annotated[
        int, typer.Option("--days", min=1, max=28, help="How many days to forecast.")
    ] = 7,
    time_zone: Annotated[
        str,
        typer.Option("--time-zone", metavar="ZONE", help="Time zone that the load keeps to."),
    ] = "UTC",
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Forecast brokers over their limits, and propose a calendar.

    Compares each hour of the week with the same hour of earlier weeks, by usage tables: a broker is
    expected over its limit where the median is. With the policy and its tiers (-f), says who would
    be throttled, and proposes entries for spec.escalation.calendar. Nothing is applied.
    """
    require_extra()
    from zoneinfo import ZoneInfo

    from tidegate.rollup.load_history import load_history, senders
    from tidegate.rollup.tables.store import UsageStore
    from tidegate_logic.forecast import Forecast

    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, OSError, ValueError):
        raise InvalidResource(
            f"--time-zone {time_zone} is not in the time zone database. Give a name such as "
            "Europe/Berlin."
        ) from None
    now_ms = around.now_ms()
    end_ms = now_ms - now_ms % _HOUR_MS
    start_ms = end_ms - weeks * _WEEK_MS
    tables, source = UsageStore.at(store_address(store)), policy_of(around, file)
    terms = terms_of(source)
    history = load_history(tables, start_ms, end_ms)
    brokers = {broker for broker, _ in history}
    sent = {} if terms is None else senders(tables, terms, start_ms, end_ms, zone, brokers=brokers)
    cut_to = 97 if source is None else source.declared.policy.cut_to_percent
    found = Forecast(history, sent, time_zone, cut_to_percent=cut_to)
    answer = _Answer(
        found.peaks(now_ms / 1000, 24 * days),
        found.calendar() if terms is not None else (),
        len(brokers),
        days,
        has_policy=terms is not None,
    )
    publish(around.out, output, answer.document(), show=partial(_show, answer))


@dataclass(frozen=True, slots=True)
class _Answer:
    peaks: "tuple[Peak, ...]"
    entries: tuple[CalendarEntry, ...]
    brokers: int
    days: int
    has_policy: bool

    def document(self) -> dict[str, Any]:
        """`calendar` is what spec.escalation.calendar takes; without entries it is left out."""
        calendar = {"entries": [entry_document(one) for one in self.entries]}
        return {
            "peaks": [_peak_document(one) for one in self.peaks],
            **({"calendar": calendar} if self.entries else {}),
        }


def _peak_document(one: "Peak") -> dict[str, Any]:
    return {
        "broker": one.broker,
        "direction": one.direction.value,
        "from": rfc3339(one.begin_seconds),
        "to": rfc3339(one.end_seconds),
        "usualBytesPerSecond": round(one.usual),
        "highBytesPerSecond": round(one.high),
        "limitBytesPerSecond": one.limit,
        "weeks": one.weeks,
        "throttled": [str(entity) for entity in one.throttled],
    }


def entry_document(one: CalendarEntry) -> dict[str, Any]:
    """An entry as a policy has it."""
    when = one.recurrence
    return {
        "days": [DAYS[day] for day in sorted(when.days)],
        "from": _clock(when.begin_minutes),
        "to": _clock(when.end_minutes),
        "timeZone": when.zone,
        "levels": {level.value: f"{100 * share:.0f}%" for level, share in one.shares.items()},
    }


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _show(answer: _Answer, page: Page) -> None:
    span = f"within {answer.days} days"
    if not answer.brokers:
        page.say("The usage tables have no hour of any broker in these weeks.")
        return
    if not answer.peaks:
        page.say(f"No broker is expected over its limit {span}.")
        return
    columns = (
        *(Column("From"), Column("To"), Column("Broker", right=True), Column("Direction")),
        *(Column("Usual", right=True), Column("p95", right=True), Column("Weeks", right=True)),
        Column("Throttled", fold=True),
    )
    page.sheet(Sheet(columns, [_row(one) for one in answer.peaks]))
    if answer.entries:
        page.say("Proposed for spec.escalation.calendar of the policy; `-o yaml` prints it:")
        for entry in answer.entries:
            page.say(f"  {_entry_words(entry)}")
    elif not answer.has_policy:
        page.say(
            "Give the policy and its tiers with -f for who would be throttled, and a calendar."
        )
    else:
        page.say(
            "No calendar is proposed: no member of L1 to L3 with a known contract sends there then."
        )


def _row(one: "Peak") -> tuple[str, ...]:
    names = [str(entity) for entity in one.throttled[:_NAMED]]
    more = len(one.throttled) - len(names)
    return (
        *(rfc3339(one.begin_seconds), rfc3339(one.end_seconds), str(one.broker)),
        *(one.direction.value, rate_of_words(one.usual, one.limit), rate_words(one.high)),
        *(str(one.weeks), ", ".join([*names, *([f"{more} more"] if more else [])])),
    )


def _entry_words(one: CalendarEntry) -> str:
    said = entry_document(one)
    levels = ", ".join(f"{level} {share}" for level, share in said["levels"].items())
    return f"{' '.join(said['days'])} {said['from']} to {said['to']} {said['timeZone']}: {levels}"
