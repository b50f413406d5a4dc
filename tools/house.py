"""Measures the house: sizes and imports of modules, files that a value passes, times, memory, and
words that only we use.

`make house` prints every figure with its bound and ends with 1 when a bound is missed. What is read
from the sources takes seconds; what runs the product (a decision, a rollup on Spark, the operator)
takes two minutes and is left out with `--static`.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO, StringIO
from pathlib import Path
from statistics import median
from typing import Any

from tools.import_graph import ImportGraph, Module, circles, floors, import_graph

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("operator/tidegate", "controller_logic/tidegate_logic")
CORE = "tidegate_logic"
AROUND = ("demo", "lab", "bench", "image")

# Version 0.1, which the bound on lines compares with. Its code was wrapped at 140 columns, so it is
# formatted at today's width first; its comments and docstrings stay as wide as they were. The count
# is kept for clones that do not hold the commit; at 140 columns it was 55,275 without tools/.
BEFORE = "66027df"
COLUMNS = 100
_LINE_FOLDERS = ("operator", "controller_logic", *AROUND, "tools")
LINES_BEFORE: Mapping[str, int] = {
    "operator": 36_343,
    "controller_logic": 9_537,
    "demo": 5_373,
    "lab": 6_356,
    "bench": 6_407,
    "image": 2_439,
    "tools": 201,
}
_SOURCE_SUFFIXES = {
    ".py",
    ".js",
    ".css",
    ".html",
    ".template",
    ".jinja",
    ".j2",
    ".sh",
    ".go",
    ".properties",
}

_SMALL_LINES = 60
_REASON = re.compile(r"[^.]*\b(?:module|file|process) of its own\b[^.]*\.", re.IGNORECASE)

WORDS = (
    *(
        "card",
        "cards",
        "told",
        "tells",
        "telling",
        "nobody",
        "mend",
        "mends",
        "mended",
        "mending",
        "beneath",
        "lent",
    ),
    *(
        "ground",
        "grounds",
        "sight",
        "sights",
        "tide",
        "tides",
        "teeth",
        "tooth",
        "estate",
        "estates",
    ),
)
# Names that the code had for things for which the field has a word; as whole identifiers.
NAMES = (
    *(
        "Ground",
        "Grounds",
        "Standing",
        "Beneath",
        "CommonGround",
        "Held",
        "HeldDown",
        "Helpless",
        "Scene",
        "Wish",
        "Kept",
    ),
    *(
        "Advised",
        "Rehearsal",
        "Actor",
        "Seen",
        "NotDone",
        "Farewell",
        "Around",
        "Surroundings",
        "Asked",
        "EntitySight",
    ),
    *(
        "ReportDesk",
        "AuditDesk",
        "_Shelf",
        "Telling",
        "Oddity",
        "Rung",
        "Ladder",
        "NeedsMending",
        "Sighting",
        "_Law",
    ),
    *(
        "has_arrived",
        "look_again",
        "see_cluster",
        "older_rival",
        "tooth_seconds",
        "regret_seconds",
        "said_in",
        "shortly",
    ),
)
_PROSE_PLACES = (
    *(*PRODUCT, *AROUND, "docs", "tests", "e2e", "tools", "charts", "crds", "deploy", "examples"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "mkdocs.yml"),
)
_PROSE_SUFFIXES = {
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".html",
    ".template",
    ".jinja",
    ".j2",
    ".js",
    ".tpl",
    ".toml",
    "",
}
_OWN_FILES = ("tools/house.py", "tests/unit/tools/test_house.py")  # they have to name the words


@dataclass(frozen=True, slots=True)
class Quotation:
    """Words that are somebody else's: this text may stand in these files (a path, or a
    folder's).
    """

    path: str
    text: str
    reason: str


# None so far. One looks like this:
# Quotation("docs/image.md", "`nobody`", "the name of the Unix account that may do nothing")
QUOTATIONS: tuple[Quotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `value` None = it could not be measured, which is a miss; `bound` None
    = for information.
    """

    name: str
    value: float | None
    bound: float | None = None
    unit: str = ""
    at_least: bool = False
    note: str = ""
    details: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        if self.bound is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> tuple[str, ...]:
        value = "?" if self.value is None else f"{self.value:,g}"
        bound = "" if self.bound is None else f"{'>=' if self.at_least else '<='} {self.bound:,g}"
        verdict = "" if self.bound is None else "kept" if self.kept else "MISSED"
        return self.name, f"{value} {self.unit}".strip(), bound, verdict, self.note


# --- what is read from the sources ----------------------------------------------------------------


def product_graph(root: Path) -> ImportGraph:
    """Of the product, its core included."""
    return import_graph(*(((root / place).parent, root / place) for place in PRODUCT))


def percentile(values: Iterable[int], percent: float) -> int:
    """The smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def size_figures(graph: ImportGraph) -> Iterator[Figure]:
    """Files and lines of the product's modules."""
    lines = [module.lines for module in graph.modules.values()]
    yield Figure("product modules", len(lines), 180, "files", note="without empty __init__.py")
    yield Figure("product modules, median", median(lines), 150, "lines", at_least=True)
    yield Figure("product modules, 90th percentile", percentile(lines, 90), 500, "lines")
    small = small_modules(graph)
    yield Figure(
        f"product modules under {_SMALL_LINES} lines with one importer",
        len(small),
        10,
        "modules",
        details=tuple(
            f"{module.name} ({module.lines}): {reason_of(module) or 'no reason in its docstring'}"
            for module in small
        ),
    )
    unexplained = sum(reason_of(module) is None for module in small)
    yield Figure(
        "  of which without a reason in the docstring",
        unexplained,
        0,
        "modules",
        note='a sentence with "a module of its own"',
    )


def small_modules(graph: ImportGraph) -> list[Module]:
    """Short modules that only one other needs."""
    short = (module for module in graph.modules.values() if module.lines < _SMALL_LINES)
    return sorted(
        (module for module in short if len(graph.importers(module.name)) == 1),
        key=lambda module: module.name,
    )


def reason_of(module: Module) -> str | None:
    """The sentence of the docstring that says why this is a module of its own."""
    found = _REASON.search(" ".join(module.docstring.split()))
    return found[0].strip() if found else None


def import_figures(product: ImportGraph, around: ImportGraph) -> Iterator[Figure]:
    """Depth and circles."""
    core = product.below(CORE)
    yield Figure("core files", len(core.modules), 35, "files")
    yield Figure(
        "core import floors",
        floors(core.imports),
        9,
        "floors",
        note="longest chain, imports for type checkers included",
    )
    yield _circle_figure("circles of imports in the product", circles(product.imports))
    yield _circle_figure(
        "circles of imports in demo, lab, bench and image", circles(around.imports)
    )
    folders: dict[str, set[str]] = {folder: set() for folder in AROUND}
    for name, imported in around.imports.items():
        home = name.split(".")[0]
        folders[home] |= {other.split(".")[0] for other in imported} - {home}
    yield _circle_figure("circles between these folders (demo and bench)", circles(folders))


def _circle_figure(name: str, found: list[list[str]]) -> Figure:
    return Figure(
        name, len(found), 0, "circles", details=tuple(" <-> ".join(sorted(one)) for one in found)
    )


def source_lines(root: Path) -> dict[str, int]:
    """Lines of code by folder: Python, templates, scripts and the lab's Go; no data, no locks."""
    counts: dict[str, int] = {}
    for folder in _LINE_FOLDERS:
        files = [
            path
            for path in (root / folder).rglob("*")
            if path.is_file() and path.suffix in _SOURCE_SUFFIXES
        ]
        counts[folder] = sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for path in files
            if "__pycache__" not in path.parts
        )
    return counts


def lines_before(root: Path) -> Mapping[str, int]:
    """The same of the commit before at today's width: from git where it has it, else as counted."""
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", BEFORE], capture_output=True, check=False
    )
    if archive.returncode:
        return LINES_BEFORE
    with tempfile.TemporaryDirectory(prefix="tidegate-house-") as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        ruff = [sys.executable, "-m", "ruff", "format", "--quiet", f"--line-length={COLUMNS}"]
        subprocess.run([*ruff, folder], check=True)
        return source_lines(Path(folder))


def line_figures(now: Mapping[str, int], before: Mapping[str, int]) -> Iterator[Figure]:
    """Product and what is around it, against the commit before."""
    counted = [folder for folder in now if folder != "tools"]
    total, total_before = (sum(counts[folder] for folder in counted) for counts in (now, before))
    details = tuple(
        f"{folder}: {before[folder]:,} -> {now[folder]:,} ({now[folder] - before[folder]:+,})"
        for folder in now
    )
    note = (
        f"{total - total_before:+,} since {BEFORE} at {COLUMNS} columns; tools/ "
        f"({now['tools'] - before['tools']:+,}) is not counted"
    )
    yield Figure(
        "lines of product, demo, lab, bench and image",
        total,
        total_before - 1,
        "lines",
        note=note,
        details=details,
    )


def prose_files(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of everything that people read: code, documents, charts."""
    for place in _PROSE_PLACES:
        start = root / place
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            name = path.relative_to(root).as_posix()
            if (
                path.is_file()
                and path.suffix in _PROSE_SUFFIXES
                and "__pycache__" not in path.parts
                and name not in _OWN_FILES
            ):
                with suppress(UnicodeDecodeError):
                    yield name, path.read_text(encoding="utf-8")


def words_in(name: str, text: str, quotations: Iterable[Quotation] = QUOTATIONS) -> Counter[str]:
    """How often each of our words is in a file's text and its path. Identifiers count by their
    parts: `nic_card`, `CardState`.
    """
    for quotation in quotations:
        if name == quotation.path or name.startswith(f"{quotation.path}/"):
            text = text.replace(quotation.text, "")
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", f"{name}\n{text}")
    wanted = frozenset(WORDS)
    return Counter(word for part in parts if (word := part.lower()) in wanted)


def names_in(source: str) -> Counter[str]:
    """How often each of the old names is an identifier of a Python source; prose does not count."""
    wanted = frozenset(NAMES)
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    return Counter(
        token.string for token in tokens if token.type == tokenize.NAME and token.string in wanted
    )


def word_figures(files: Iterable[tuple[str, str]]) -> Iterator[Figure]:
    """Words that only we use, and names that go."""
    words: Counter[str] = Counter()
    names: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for name, text in files:
        found = words_in(name, text)
        words += found
        places[name] += found.total()
        if name.endswith(".py"):
            names += names_in(text)
    details = (_counted(words), "most in: " + _counted(Counter(dict(places.most_common(12)))))
    yield Figure(
        "words that only we use, in code and docs",
        words.total(),
        0,
        "times",
        details=details if words else (),
    )
    yield Figure(
        "names that go, in code",
        names.total(),
        0,
        "times",
        details=(_counted(names),) if names else (),
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)


# --- what runs the product ------------------------------------------------------------------------


def measured(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON that a module of tests/house prints. Raises RuntimeError with its last words."""
    argv = [sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=_environment(),
            timeout=600,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError("it took more than ten minutes") from None
    if ended.returncode:
        raise RuntimeError(
            (ended.stderr.strip().splitlines() or ["it failed without a word"])[-1][:300]
        )
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def _environment() -> dict[str, str]:
    """Ours, but compiled code may be kept: otherwise every process would compile all its libraries,
    and that would be measured.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_figures() -> Iterator[Figure]:
    """Everything that needs the product to run; a measurement that fails gives a figure without a
    value.
    """
    walk, why = _try("tests.house.walks", "cut")
    entered = tuple(walk.get("entered", ()))
    yield Figure(
        "files entered by one cut in decide()",
        walk.get("files"),
        28,
        "files",
        note=why,
        details=entered,
    )
    note = why or f"calls from one core file into another, of {walk['calls']} calls"
    yield Figure(
        "changes of file of one cut in decide()", walk.get("changes"), 180, "changes", note=note
    )
    walk, why = _try("tests.house.walks", "quota-to-znode")
    note = why or f"{walk['changes']} changes of file; ZooKeeper is a double"
    yield Figure(
        "files entered by a quota, CR to znode",
        walk.get("files"),
        40,
        "files",
        note=note,
        details=tuple(walk.get("entered", ())),
    )
    walk, why = _try("tests.house.walks", "sample-to-cell")
    note = why or f"in {walk['processes']} processes, Spark's workers among them"
    entered = tuple(walk.get("entered", ()))
    yield Figure(
        "files entered by a sample, to a report cell",
        walk.get("files"),
        40,
        "files",
        note=note,
        details=entered,
    )
    decided, why = _try("tests.house.walks", "decide-time")
    note = (
        why
        or f"median of {decided['rounds']}, best {decided['best']} ms, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    yield Figure(
        "decide(), 50 brokers, 20,000 partitions, 5000 entities",
        decided.get("milliseconds"),
        50,
        "ms",
        note=note,
    )
    yield help_figure([sys.executable, "-m", "tidegate", "--help"])
    rest, why = _try("tests.house.operator_at_rest")
    yield Figure(
        "operator at rest, no policy",
        rest.get("resident_megabytes"),
        110,
        "MB",
        note=why or "resident memory of its process",
    )


def _try(module: str, *arguments: str) -> tuple[dict[str, Any], str]:
    try:
        return measured(module, *arguments), ""
    except (RuntimeError, ValueError, IndexError) as error:
        return {}, f"not measured: {error}"


def help_figure(argv: list[str], rounds: int = 5) -> Figure:
    """User and system time of a command; one run before lets Python keep what it compiles."""
    name, bound = "tidegate --help, processor", 0.25
    try:
        seconds = [_processor_seconds(argv) for _ in range(rounds + 1)][1:]
    except RuntimeError as error:
        return Figure(name, None, bound, "s", note=f"not measured: {error}")
    return Figure(name, round(median(seconds), 3), bound, "s", note=f"median of {rounds}")


def _processor_seconds(argv: list[str]) -> float:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=_environment(), cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it is waited for already
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


# --- the table ------------------------------------------------------------------------------------


def source_figures(root: Path = ROOT) -> Iterator[Figure]:
    """Everything that is read from the sources."""
    product = product_graph(root)
    around = import_graph(*((root, root / folder) for folder in AROUND))
    yield from size_figures(product)
    yield from import_figures(product, around)
    yield from line_figures(source_lines(root), lines_before(root))
    yield from word_figures(prose_files(root))


def table(figures: list[Figure], *, details: bool) -> str:
    """Aligned columns; below each figure what it is made of, where that is asked for or explains a
    miss.
    """
    rows = [("figure", "today", "bound", "", ""), *(figure.row() for figure in figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    lines = []
    for row, figure in zip(rows, [None, *figures], strict=True):
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, row[4]]).rstrip())
        if figure is not None and figure.details and (details or not figure.kept):
            shown = figure.details if details else figure.details[:20]
            lines += [f"    {text}" for text in shown]
            lines += (
                [f"    ... {len(figure.details) - len(shown)} more (--details)"]
                if len(figure.details) > len(shown)
                else []
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print all figures; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.house", description="Measure the house against its bounds."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--static", action="store_true", help="only what is read from the sources")
    parser.add_argument(
        "--details", action="store_true", help="list everything that figures are made of"
    )
    asked = parser.parse_args(arguments)
    figures = [*source_figures(), *([] if asked.static else run_figures())]
    if asked.json:
        print(json.dumps([asdict(figure) | {"kept": figure.kept} for figure in figures], indent=2))
    else:
        print(table(figures, details=asked.details))
        missed = sum(not figure.kept for figure in figures)
        print(f"\n{missed} of {sum(figure.bound is not None for figure in figures)} bounds missed.")
    return int(not all(figure.kept for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
