"""Holds the tree to its budgets: lines of each package, circles of imports, words that readers
would have to translate, words of the documents, and, unless `--static`, three costs of the running
product.

The budgets are `tools/budgets.toml`. A package that outgrows its own fails `make check`; the
commit that needs the room raises the budget and says why.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.import_graph import ImportGraph, Module, circle_in, import_graph

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = Path("tools/budgets.toml")
PRODUCT = ("operator/tidegate", "controller_logic/tidegate_logic")
AROUND = ("demo", "lab", "bench", "image")
_CODE = {".py", ".js", ".css", ".html", ".template", ".jinja", ".j2", ".sh", ".go", ".properties"}
_SMALL_LINES = 60
_ASIDE = re.compile("/measurements/")  # output that was measured once
_COMMENT = re.compile(r"(?m)(?:^|\s)# (.*)$")
_MARKUP = re.compile(r"\{[{%#].*?[}%#]\}|<[^>]*>", re.DOTALL)
_FIELD = re.compile("[a-z_]+")
_BY_PROGRAM = re.compile("<!-- Generated from |`make bench` writes this page")
_WORD = re.compile(r"\S*\w\S*")
_UNREAD = re.compile(  # front matter, code blocks, generated parts
    r"\A---\n.*?^---$|^ *(`{3,}).*?^ *\1`*$|<!-- (\w+): begin \(generated.*?<!-- \2: end -->",
    re.MULTILINE | re.DOTALL,
)
_REASON = re.compile(r"[^.]*\b(?:module|file|process) of its own\b[^.]*\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; `value` None = it could not be measured, which is a miss."""

    name: str
    value: float | None
    bound: float
    unit: str
    details: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        return self.value is not None and self.value <= self.bound

    def __str__(self) -> str:
        value = "?" if self.value is None else f"{self.value:,g}"
        said = f"{self.name:56}{value:>9} {self.unit:8}<= {self.bound:,g}"
        more = [f"    {text}" for text in self.details[:20]] if not self.kept else []
        return "\n".join([said if self.kept else f"{said}  MISSED", *more])


# --- what is read from the sources ----------------------------------------------------------------


def product_graph(root: Path) -> ImportGraph:
    """Of the product, its core included."""
    return import_graph(*(((root / place).parent, root / place) for place in PRODUCT))


def size_figures(root: Path, budgets: Mapping[str, int]) -> Iterator[Figure]:
    """Lines of each folder or file that has a budget, without those that have one inside it."""
    counts = {place: _lines(root / place) for place in budgets}
    for place, bound in budgets.items():
        inside = sum(counts[other] for other in budgets if other.startswith(f"{place}/"))
        yield Figure(place, counts[place] - inside, bound, "lines")


def _lines(place: Path) -> int:
    files = [place] if place.is_file() else place.rglob("*")
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in files
        if path.is_file() and path.suffix in _CODE and "__pycache__" not in path.parts
    )


def import_figures(product: ImportGraph, around: ImportGraph) -> Iterator[Figure]:
    """Circles, and small modules that only one other imports and that do not say why."""
    for name, graph in (("the product", product), ("demo, lab, bench and image", around)):
        circle = circle_in(graph.imports)
        details = (" <-> ".join(circle),)
        yield Figure(f"circles of imports in {name}", int(bool(circle)), 0, "", details)
    unexplained = tuple(
        f"{module.name} ({module.lines} lines): put it into its importer, or give the reason why "
        "it is a module of its own"
        for module in product.modules.values()
        if module.lines < _SMALL_LINES
        and len(product.importers(module.name)) == 1
        and reason_of(module) is None
    )
    yield Figure("small modules without a reason", len(unexplained), 0, "", unexplained)


def reason_of(module: Module) -> str | None:
    """The sentence of the docstring that says why this is a module of its own."""
    found = _REASON.search(" ".join(module.docstring.split()))
    return found[0].strip() if found else None


def word_figure(texts: Iterable[tuple[str, str]], words: Mapping[str, str], most: int) -> Figure:
    """How often `words` are in `texts`, which are names and what people read; each has its plain
    word beside it.
    """
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    found = Counter(
        (name, match.lower())
        for name, text in texts
        for match in pattern.findall(" ".join(text.split()))
    )
    details = tuple(
        f"{name}: {word} ({count}), plainly: {words[word]}"
        for (name, word), count in found.most_common()
    )
    return Figure("words that readers have to translate", found.total(), most, "times", details)


def document_figures(root: Path, bounds: Mapping[str, int]) -> Iterator[Figure]:
    """Words of the pages that people write: what users read, and the decisions."""
    pages = ("README.md", "docs/*.md", "docs/tutorials/*.md")
    for bound, places in (("words", pages), ("adr_words", ("docs/adr/[0-9]*.md",))):
        read = (path for place in places for path in root.glob(place))
        counts = Counter({str(path.relative_to(root)): words_to_read(path) for path in read})
        details = tuple(f"{page}: {count:,}" for page, count in counts.most_common())
        yield Figure(f"documentation: {bound}", counts.total(), bounds[bound], "", details)


def words_to_read(path: Path) -> int:
    """What has a letter or a digit, without front matter, code blocks and what programs write."""
    text = path.read_text(encoding="utf-8")
    return 0 if _BY_PROGRAM.search(text[:500]) else len(_WORD.findall(_UNREAD.sub(" ", text)))


def texts_for_people(root: Path) -> Iterator[tuple[str, str]]:
    """Documents, manifests and charts whole, of Python comments and texts, of pages what stands
    between their tags.
    """
    pages = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs")
    places = (*pages, "crds", "charts", "deploy", "examples")
    for path in (found for place in places for found in _files(root / place)):
        name = path.relative_to(root).as_posix()
        if path.suffix in {".md", ".yaml", ".txt", ".tpl", ".json"} and not _ASIDE.search(name):
            yield name, path.read_text(encoding="utf-8")
    code = (*PRODUCT, *AROUND, "tools", "tests", "e2e")
    for path in (found for place in code for found in _files(root / place)):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            yield name, texts_of(path.read_text(encoding="utf-8"))
        elif path.suffix == ".html":
            yield name, _MARKUP.sub(" ", path.read_text(encoding="utf-8"))


def _files(place: Path) -> Iterable[Path]:
    return (
        [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    )


def texts_of(source: str) -> str:
    """A Python source's comments and texts, docstrings too, but for names of fields."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    read = (text for text in texts if isinstance(text, str) and not _FIELD.fullmatch(text))
    return "\n".join([*_COMMENT.findall(source), *read])


# --- what runs the product ------------------------------------------------------------------------


def run_figures(bounds: Mapping[str, float]) -> Iterator[Figure]:
    """Costs of the running product; one that cannot be measured says why and is a miss."""
    yield _measured(
        "decide(): 50 brokers, 20,000 partitions, 5000 entities",
        ("tests.house.decide_time", "milliseconds"),
        bounds["decide_milliseconds"],
        "ms",
    )
    yield _measured(
        "operator at rest, no policy",
        ("tests.house.operator_at_rest", "resident_megabytes"),
        bounds["rest_megabytes"],
        "MB",
    )
    yield help_figure([sys.executable, "-m", "tidegate", "--help"], bounds["help_seconds"])


def _measured(name: str, source: tuple[str, str], bound: float, unit: str) -> Figure:
    module, key = source
    ended = subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=_environment(),
        timeout=600,
        check=False,
    )
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["it failed without a word"])[-1]
        return Figure(name, None, bound, unit, (why[:300],))
    known: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return Figure(name, known[key], bound, unit)


def _environment() -> dict[str, str]:
    """Ours, but compiled code may be kept: otherwise every process would compile all its libraries,
    and that would be measured.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def help_figure(argv: list[str], bound: float, rounds: int = 5) -> Figure:
    """User and system time of a command; one run before lets Python keep what it compiles."""
    name = "tidegate --help, processor"
    try:
        seconds = [_processor_seconds(argv) for _ in range(rounds + 1)][1:]
    except RuntimeError as error:
        return Figure(name, None, bound, "s", (str(error),))
    return Figure(name, round(median(seconds), 3), bound, "s")


def _processor_seconds(argv: list[str]) -> float:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=_environment(), cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it is waited for already
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print all figures; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--static", action="store_true", help="only what is read from the sources")
    asked = parser.parse_args(arguments)
    budgets = tomllib.loads((root / BUDGETS).read_text(encoding="utf-8"))
    words = budgets["words"]
    around = import_graph(*((root, root / folder) for folder in AROUND))
    figures = [
        *size_figures(root, budgets["lines"]),
        *import_figures(product_graph(root), around),
        word_figure(texts_for_people(root), words["plainly"], words["most"]),
        *document_figures(root, budgets["documentation"]),
        *([] if asked.static else run_figures(budgets["costs"])),
    ]
    missed = [figure for figure in figures if not figure.kept]
    for figure in missed if asked.static else figures:
        print(figure)
    if missed:
        print(
            f"{len(missed)} of {len(figures)} bounds are missed. Make it smaller, or raise the "
            f"bound in {BUDGETS} in the same commit and say why."
        )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
