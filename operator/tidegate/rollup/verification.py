"""`tidegate rollup verify`: whether a store is whole, from every file anew and not from what manifests say of it.

It reads a day at a time and changes nothing. Broken is what cannot be right; a gap is a time that was never published between others that
are, and what was made from older rows is outdated: both are mended by the next runs and are no damage.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tidegate.commands.output import Column, Document, ExitCode, Page, Sheet
from tidegate.rollup.schemas import TABLES, TableKind
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.inspection import Finding, Inspection, inspect_day
from tidegate.rollup.tables.lineage import is_current, outdated_among
from tidegate.rollup.tables.manifest import Manifest
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import RULES, disagreements
from tidegate.rollup.tables.windows import Window, windows_between

_MOST_SHOWN = 20
_MOST_GAPS = 10_000  # of windows that are looked for between the first and the last


@dataclass(slots=True)
class Tally:
    """What was read of one table."""

    windows: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0

    def add(self, inspection: Inspection) -> None:
        self.windows += len(inspection.windows)
        self.files += inspection.files
        self.rows += inspection.rows
        self.size_bytes += inspection.size_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was read, and what is wrong with it."""

    tables: Mapping[str, Tally]
    broken: list[Finding] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    outdated: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every row that is published can be believed."""
        return not self.broken

    @property
    def is_whole(self) -> bool:
        """Whether, beyond that, no time is missing and nothing waits to be made anew."""
        return not (self.broken or self.gaps or self.outdated)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.is_sound else ExitCode.ERROR

    def document(self) -> Document:
        return {
            "sound": self.is_sound,
            "whole": self.is_whole,
            "tables": {name: _told(tally) for name, tally in self.tables.items()},
            **{name: [asdict(one) for one in found] for name, found in self._found().items()},
        }

    def show(self, page: Page) -> None:
        """The tables, then everything that is wrong, worst first."""
        page.sheet(_sheet(self.tables))
        for name, found in self._found().items():
            if found:
                page.heading(f"{name.capitalize()} ({len(found)})")
            for one in found[:_MOST_SHOWN]:
                page.say(f"{one.table} {one.window}: {one.message}" if one.window else f"{one.table}: {one.message}")
            if len(found) > _MOST_SHOWN:
                page.say(f"... and {len(found) - _MOST_SHOWN} more; --output json has them all.")
        page.say()
        page.say(self._conclusion())

    def _found(self) -> Mapping[str, list[Finding]]:
        return {"broken": self.broken, "gaps": self.gaps, "outdated": self.outdated}

    def _conclusion(self) -> str:
        if self.is_whole and not any(tally.files for tally in self.tables.values()):
            return "Nothing is published here. Is the address right?"
        if self.is_whole:
            return "The store is whole: every file holds what was published, and all sums agree to the byte."
        if self.is_sound:
            return "What is published is sound. Gaps and outdated windows are filled by the next runs, or by `tidegate rollup backfill`."
        return "The store is damaged. Roll the named windows up again while Prometheus still has their samples; nothing else is affected."


def verify(store: UsageStore, *, progress: Callable[[str], None] | None = None) -> Verdict:
    """Read everything. `progress` is told each day before it is read.

    Raises OtherVersion where the tables are of another version, RetryLater where the storage does not answer.
    """
    verdict = Verdict({name: Tally() for name in TABLES})
    manifests = {name: found for name in TABLES if (found := _manifests(store, name, verdict)) is not None}
    by_day = {name: _by_day(found) for name, found in manifests.items()}
    for day in sorted({day for days in by_day.values() for day in days}):
        if progress is not None:
            progress(day.name)
        _verify_day(store, verdict, {name: days.get(day, []) for name, days in by_day.items()})
    for name, found in manifests.items():
        verdict.gaps.extend(_gaps(TABLES[name], sorted(one.window for one in found if is_current(one))))
        finer = sorted({rule.finer for rule in RULES if rule.coarser == name} & manifests.keys())
        verdict.outdated.extend(_outdated(name, found, finer, sources=[one for source in finer for one in manifests[source]]))
    return verdict


def _verify_day(store: UsageStore, verdict: Verdict, manifests: Mapping[str, Sequence[Manifest]]) -> None:
    inspections = {name: inspect_day(store, TABLES[name], found) for name, found in manifests.items()}
    for name, inspection in inspections.items():
        verdict.tables[name].add(inspection)
        verdict.broken.extend(inspection.findings)
    verdict.broken.extend(disagreements(inspections))


def _manifests(store: UsageStore, table: str, verdict: Verdict) -> list[Manifest] | None:
    """None, and a finding, where a manifest of the table cannot be read."""
    try:
        return store.manifests(table)
    except UsageDamaged as error:
        verdict.broken.append(Finding(table, "", error.message))
        return None


def _by_day(manifests: Iterable[Manifest]) -> dict[Window, list[Manifest]]:
    days: dict[Window, list[Manifest]] = {}
    for one in manifests:
        days.setdefault(one.window.day, []).append(one)
    return days


def _gaps(kind: TableKind, found: Sequence[Window]) -> list[Finding]:
    """Windows that nobody published between the first and the last that somebody did."""
    if not found:
        return []
    between = list(windows_between(kind, found[0].start_ms, found[-1].end_ms))[-_MOST_GAPS:]
    return [Finding(kind.name, window.name, "was never published.") for window in sorted(set(between) - set(found))]


def _outdated(table: str, targets: Sequence[Manifest], finer: Sequence[str], *, sources: Sequence[Manifest]) -> list[Finding]:
    """What was made from rows that were published anew since."""
    message = f"was made before {' or '.join(finer)} was published as it is now."
    return [Finding(table, window.name, message) for window in outdated_among(targets, sources)]


def _told(tally: Tally) -> Document:
    return {"windows": tally.windows, "files": tally.files, "rows": tally.rows, "sizeBytes": tally.size_bytes}


def _sheet(tables: Mapping[str, Tally]) -> Sheet:
    columns = (Column("Table"), *(Column(title, right=True) for title in ("Windows", "Files", "Rows", "Size")))
    rows = [
        (name, str(tally.windows), str(tally.files), f"{tally.rows:,}", f"{tally.size_bytes / 1e6:.1f} MB")
        for name, tally in tables.items()
    ]
    return Sheet(columns, rows)
