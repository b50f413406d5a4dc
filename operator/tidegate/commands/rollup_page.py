"""Output of rollup commands: progress bars, the top of a table, and the findings about a store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import progress as rich_progress

from tidegate.commands.output import Column, Page, Sheet
from tidegate.rollup.labels import NO_LABELS
from tidegate.rollup.samples import Progress, Step, unwatched
from tidegate.rollup.schemas import TableKind
from tidegate.rollup.show import Answer, key_columns, ranked_columns
from tidegate.rollup.tables.verify import Tally, Verdict
from tidegate_logic.words import rate_words, size_words

_MOST_FINDINGS = 20
_TITLES = {
    "client_id": "Client id",
    "p50": "p50",
    "p95": "p95",
    "p99": "p99",
    "nic_bytes": "NIC",
    "client_bytes": "Clients",
    "replication_bytes": "Replication",
    "unattributed_bytes": "Unattributed",
    "deferred_bytes": "Deferred",
    "throttled_seconds": "Throttled",
    "over_contract_seconds": "Over contract",
    "over_limit_seconds": "Over limit",
    "peak_rate": "Peak",
    "seconds_contract": "At contract",
}


@contextmanager
def shown(page: Page) -> Iterator[Progress]:
    """Progress bars on a terminal, below the sentences, while the block lasts; elsewhere none.

    Bars stay as they are at the end, so that a run that was cut short shows how far it came.
    """
    if page.screen is None:
        yield unwatched
        return
    columns = (
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.description}"),
    )
    with rich_progress.Progress(
        *columns, rich_progress.TimeElapsedColumn(), console=page.screen, redirect_stdout=False
    ) as bars:
        yield _Bars(bars)


class _Bars:
    """Progress bars. A bar appears with the first report of its step."""

    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[Step, rich_progress.TaskID] = {}

    def __call__(self, step: Step, done: int, of: int) -> None:
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step.value)
        self._bars.update(self._tasks[step], completed=done, total=of)


def show_top(answer: Answer, page: Page) -> None:
    """Print the rows, and the time that they cover."""
    page.sheet(_top_sheet(answer.kind, answer.rows))
    for direction, (rest, total) in answer.unattributed.items():
        page.say(
            f"{direction}: {size_words(rest)} are unattributed, {rest / total:.1%} of what brokers "
            f"counted of clients; they are in no row."
        )
    page.say(_time_of(answer))


def _time_of(answer: Answer) -> str:
    if not answer.windows:
        return f"No {answer.kind.name} rows are published for that time."
    first, last = answer.windows[0], answer.windows[-1]
    hours = (
        f"{answer.published_seconds / 3600:g} h published, {first} to {last} UTC, by {answer.by}"
    )
    return f"{hours}." if not answer.others else f"{hours}; {answer.others} more rows."


def _top_sheet(kind: TableKind, rows: Sequence[Mapping[str, object]]) -> Sheet:
    names = [
        name
        for name in (*key_columns(kind), *ranked_columns(kind.name))
        if any(row.get(name) not in (None, NO_LABELS) for row in rows)
    ]
    if any("mean_rate" in row for row in rows):
        names.insert(names.index("bytes") + 1, "mean_rate")
    if "coverage" in kind.schema.names and rows:
        names.append("coverage")
    columns = tuple(
        Column(_title(name, kind), right=name not in kind.key, fold=name in {"user", "client_id"})
        for name in names
    )
    return Sheet(columns, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _title(name: str, kind: TableKind) -> str:
    # percentiles of a tier are of all brokers together, and may be above any peak
    if name == "peak_rate" and kind.name.startswith("tier"):
        return "Peak, one broker"
    return _TITLES.get(
        name, name.removeprefix("seconds_").replace("_rate", "").replace("_", " ").capitalize()
    )


def _cell(name: str, value: object) -> str:
    if not isinstance(value, int | float) or name in {"broker", "throttle_episodes"}:
        return "" if value is None else str(value)
    return _unit(name)(value)


def _unit(name: str) -> Callable[[float], str]:
    if name.endswith("bytes"):
        return size_words
    if name.endswith("_seconds") or name.startswith("seconds_"):
        return lambda seconds: f"{seconds:,.0f} s"
    return (lambda share: f"{100 * share:.0f} %") if name == "coverage" else rate_words


def show_verdict(verdict: Verdict, page: Page) -> None:
    """Print the tables, then everything that is wrong, worst first."""
    page.sheet(_table_sheet(verdict.tables))
    for name, found in verdict.findings().items():
        if found:
            page.heading(f"{name.capitalize()} ({len(found)})")
        for one in found[:_MOST_FINDINGS]:
            page.say(
                f"{one.table} {one.window}: {one.message}"
                if one.window
                else f"{one.table}: {one.message}"
            )
        if len(found) > _MOST_FINDINGS:
            page.say(f"... and {len(found) - _MOST_FINDINGS} more; --output json has them all.")
    page.say()
    page.say(_conclusion(verdict))


def is_empty(verdict: Verdict) -> bool:
    """Whether there is nothing to verify, which is no proof of anything."""
    return verdict.is_whole and not any(tally.windows for tally in verdict.tables.values())


def _conclusion(verdict: Verdict) -> str:
    if is_empty(verdict):
        return "Nothing is published here, so nothing was verified. Check the address."
    if verdict.is_whole:
        return (
            "The store is whole: every file holds what was published, and all sums agree to "
            "the byte."
        )
    if verdict.is_sound:
        return (
            "What is published is sound. Gaps and outdated windows are filled by the next "
            "runs, or by `tidegate rollup backfill`."
        )
    return (
        "The store is damaged. Roll the named windows up again while Prometheus still has "
        "their samples; nothing else is affected."
    )


def _table_sheet(tables: Mapping[str, Tally]) -> Sheet:
    columns = (
        Column("Table"),
        *(Column(title, right=True) for title in ("Windows", "Files", "Rows", "Size")),
    )
    rows = [
        (
            name,
            str(tally.windows),
            str(tally.files),
            f"{tally.rows:,}",
            size_words(tally.size_bytes),
        )
        for name, tally in tables.items()
    ]
    return Sheet(columns, rows)
