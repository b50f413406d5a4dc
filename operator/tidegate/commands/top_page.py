"""`tidegate top` for people: three tables that fit a terminal of 100 columns, and why anybody is held, in sentences."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from controller_logic.decision import MemberState
from controller_logic.model import Observation
from controller_logic.quotas.values import KEY_WORDS, rate_words
from controller_logic.throttle.pressure import Pressure
from tidegate.commands.output import Page
from tidegate.commands.quantity import ago_words
from tidegate.commands.sheet import Column, Sheet
from tidegate.commands.sight import Sight
from tidegate.commands.top_rows import BrokerRow, LevelRow, RateRow, broker_rows, level_rows, rate_rows

_UNKNOWN = "unknown"
_LONGEST_NAME, _LONGEST_WHY, _LONGEST_CAUSE = 18, 22, 30
_EXPLAINED = 5
_QUIET = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})


def show_sight(page: Page, sight: Sight, *, most_members: int) -> None:
    """The whole look. `most_members` rates are shown, 0 = all of them."""
    page.say(_headline(sight), "bold")
    for warning in _warnings(sight):
        page.warn(warning)
    rates = rate_rows(sight)
    page.say()
    page.sheet(_broker_sheet(broker_rows(sight)))
    page.say()
    page.sheet(_level_sheet(level_rows(sight, rates)))
    shown = rates[:most_members] if most_members else rates
    page.say()
    page.sheet(_rate_sheet(shown, sight.observation))
    if len(shown) < len(rates):
        page.say(f"and {len(rates) - len(shown)} more (--members 0 shows all)")
    for sentence in _reasons(shown):
        page.say(sentence)


def _headline(sight: Sight) -> str:
    observation, watched = sight.observation, sight.watched
    moment = datetime.fromtimestamp(observation.now_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    over = f"{sum(one.pressure is Pressure.OVER for one in watched)} of {len(watched)} brokers over" if watched is not None else ""
    mode = "paused" if observation.policy.paused else f"mode {observation.policy.mode.value}"
    return "  ".join(part for part in (moment, observation.policy.key, f"cluster {sight.cluster_id or _UNKNOWN}", mode, over) if part)


def _warnings(sight: Sight) -> Iterator[str]:
    """Why anything below is missing comes first."""
    yield from (f"{hold.reason.value}: {hold.message}" for hold in sight.decision.holds)
    if not sight.is_measured:
        yield "The policy names no metrics, so nothing is known of load."
    readings = sight.readings
    yield from (f"{problem.reason.value}: {problem.message}" for problem in (readings.problems if readings is not None else ()))
    yield from sight.warnings


def _broker_sheet(rows: Sequence[BrokerRow]) -> Sheet:
    columns = (
        *(Column("Broker", right=True), Column("Way")),
        *(Column(title, right=True) for title in ("Carries", "Share", "Clients", "Age")),
        *(Column("State"), Column("Why", fold=True)),
    )
    return Sheet(columns, [_broker_cells(row) for row in rows])


def _broker_cells(row: BrokerRow) -> Sequence[str]:
    card = row.card
    carries, limit = (card.bytes_per_second, card.limit) if card is not None else (None, None)
    share = f"{100 * carries / limit:.0f} %" if carries is not None and limit else ""
    return (
        str(row.broker),
        row.direction.value if row.direction is not None else "",
        f"{_number(carries)} of {rate_words(limit)}" if limit is not None else "no limit",
        share,
        _rate(row.clients) if card is not None else "",
        "" if row.age_seconds is None else f"{row.age_seconds:.0f} s",
        row.pressure.value,
        _cut(row.why, _LONGEST_WHY),
    )


def _level_sheet(rows: Sequence[LevelRow]) -> Sheet:
    titles = ("Members", "Below", "Fetch", "Produce", "Delayed")
    columns = (Column("Level"), *(Column(title, right=True) for title in titles), Column("State"), Column("Because", fold=True))
    return Sheet(columns, [_level_cells(row) for row in rows])


def _level_cells(row: LevelRow) -> Sequence[str]:
    word = ("", "") if row.word is None else (row.word.state, _cut(row.word.because, _LONGEST_CAUSE))
    return (row.level.value, str(row.members), str(row.below), _rate(row.fetch), _rate(row.produce), _delay(row.delay_seconds), *word)


def _rate_sheet(rows: Sequence[RateRow], observation: Observation) -> Sheet:
    columns = (
        *(Column("Level"), Column("Member"), Column("Way")),
        *(Column(title, right=True) for title in ("Sends", "Quota of contract", "Delayed")),
        Column("Why", fold=True),
    )
    return Sheet(columns, [_rate_cells(row, observation.now_seconds) for row in rows])


def _rate_cells(row: RateRow, now_seconds: float) -> Sequence[str]:
    return (
        row.report.level.value,
        _cut(row.report.member_name, _LONGEST_NAME),
        KEY_WORDS[row.key],
        _rate(row.sends),
        _quota(row),
        _delay(row.delay_seconds),
        _cut(_why(row, now_seconds), _LONGEST_WHY),
    )


def _quota(row: RateRow) -> str:
    if not row.is_read:
        return _UNKNOWN
    if row.contract is None:
        return "unlimited" if row.in_force is None else rate_words(row.in_force)
    return rate_words(row.contract) if row.in_force == row.contract else f"{_quota_number(row)} of {rate_words(row.contract)}"


def _quota_number(row: RateRow) -> str:
    return "unlimited" if row.in_force is None else _number(row.in_force)


def _why(row: RateRow, now_seconds: float) -> str:
    """Only for those that are not simply at their contract."""
    if row.is_below and row.entry is not None:
        return f"{row.entry.reason.value} {ago_words(now_seconds - row.entry.written_at_seconds)}"
    return "" if row.report.state in _QUIET else row.report.state.value


def _reasons(rows: Sequence[RateRow]) -> Iterator[str]:
    """The first few members that are not at their contract, each once."""
    held = {row.report.entity: row.report for row in rows if row.report.state not in _QUIET}
    for report in list(held.values())[:_EXPLAINED]:
        yield f"{report.member_name} ({report.entity}): {report.message}"


def _number(bytes_per_second: float | None) -> str:
    """In MB/s, without the unit."""
    return _UNKNOWN if bytes_per_second is None else f"{bytes_per_second / 1e6:.1f}"


def _rate(bytes_per_second: float | None) -> str:
    return _UNKNOWN if bytes_per_second is None else f"{_number(bytes_per_second)} MB/s"


def _delay(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{seconds:.1f} s"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
