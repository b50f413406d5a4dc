"""The figures of `make house`, on small made-up trees."""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tools import house
from tools.house import Figure
from tools.import_graph import ImportGraph, import_graph
from tools.imports_table import PACKAGES, block, page_with, picture_of, reduced, rows_of

ROOT = Path(__file__).parents[3]
CORE = "controller_logic/tidegate_logic"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """These files, dedented."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text))
    return root


def product(root: Path, files: Mapping[str, str]) -> ImportGraph:
    return house.product_graph(
        tree(root, {f"{CORE}/__init__.py": "", "operator/tidegate/__init__.py": "", **files})
    )


def figures(found: object) -> dict[str, Figure]:
    return {figure.name: figure for figure in found}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "statement",
    [
        "import tidegate_logic.model",
        "import tidegate_logic.model as m",
        "from tidegate_logic import model",
        "from tidegate_logic.model import Policy",
        "from .model import Policy",
        "from . import model",
        "def late():\n    from tidegate_logic.model import Policy",
        "if TYPE_CHECKING:\n    from tidegate_logic.model import Policy",
    ],
)
def test_an_import_counts_wherever_and_however_it_is_written(
    tmp_path: Path, statement: str
) -> None:
    graph = product(tmp_path, {f"{CORE}/model.py": "x = 1", f"{CORE}/decide.py": statement})
    assert graph.imports["tidegate_logic.decide"] == {"tidegate_logic.model"}


def test_relative_imports_are_found_from_a_package_too(tmp_path: Path) -> None:
    files = {
        "operator/tidegate/kafka/__init__.py": "from .names import a",
        "operator/tidegate/kafka/names.py": "from ..errors import b",
    }
    graph = product(tmp_path, {**files, "operator/tidegate/errors.py": "b = 1"})
    assert graph.imports["tidegate.kafka"] == {"tidegate.kafka.names"}
    assert graph.imports["tidegate.kafka.names"] == {"tidegate.errors"}
    assert graph.importers("tidegate.errors") == ["tidegate.kafka.names"]


def test_a_package_without_code_is_no_module(tmp_path: Path) -> None:
    graph = product(
        tmp_path,
        {
            f"{CORE}/quotas/__init__.py": '"""What Kafka has."""',
            f"{CORE}/quotas/a.py": "a = 1",
        },
    )
    assert set(graph.modules) == {"tidegate_logic.quotas.a"}


def test_a_circle_is_found_however_long_and_through_imports_for_type_checkers(
    tmp_path: Path,
) -> None:
    files = {
        f"{CORE}/a.py": "from tidegate_logic.b import x",
        f"{CORE}/b.py": "from tidegate_logic.c import x",
        f"{CORE}/c.py": "if TYPE_CHECKING:\n    from tidegate_logic.a import x",
        f"{CORE}/d.py": "from tidegate_logic.a import x",
    }
    found = figures(house.import_figures(product(tmp_path, files), import_graph()))
    circle = found["circles of imports in the product"]
    assert (circle.value, circle.kept) == (1, False)
    assert circle.details == ("tidegate_logic.a <-> tidegate_logic.b <-> tidegate_logic.c",)


def test_a_short_module_with_one_importer_has_to_say_why_it_is_one(tmp_path: Path) -> None:
    files = {
        f"{CORE}/said.py": '"""A thing.\n\nA module of its own: Spark imports\nit by '
        'name. More.\n"""\nx = 1',
        f"{CORE}/unsaid.py": '"""A thing."""\nx = 1',
        f"{CORE}/long.py": "x = 1\n" * 60,
        f"{CORE}/shared.py": "x = 1",
        f"{CORE}/one.py": "from tidegate_logic import said, unsaid, long, shared\n"
        + "x = 1\n" * 60,
        f"{CORE}/two.py": "from tidegate_logic import shared",
    }
    found = figures(house.import_figures(product(tmp_path, files), import_graph()))
    (small,) = found["small modules without a reason"].details
    assert small.startswith("tidegate_logic.unsaid (2 lines): put it into its importer")


def test_a_package_may_have_as_many_lines_as_its_budget_and_the_inner_ones_are_not_counted_twice(
    tmp_path: Path,
) -> None:
    files = {"demo/a.py": "1\n2\n", "demo/page.html": "<p>\n", "demo/data.json": "1\n"}
    tree(tmp_path, {**files, "demo/inner/b.py": "1\n" * 5, "tools/c.py": "1\n"})
    found = figures(house.size_figures(tmp_path, {"demo": 3, "demo/inner": 4, "tools/c.py": 1}))
    assert {name: (figure.value, figure.kept) for name, figure in found.items()} == {
        "demo": (3, True),
        "demo/inner": (5, False),
        "tools/c.py": (1, True),
    }


def test_a_budget_is_there_for_every_package_of_the_product() -> None:
    budgets = tomllib.loads((ROOT / house.BUDGETS).read_text())["lines"]
    packages = {path.parent for path in (ROOT / "operator" / "tidegate").glob("*/*.py")}
    assert {path.relative_to(ROOT).as_posix() for path in packages} <= budgets.keys()
    assert all((ROOT / place).exists() for place in budgets)


def test_words_count_whole_in_any_case_and_across_lines() -> None:
    texts = [("a.md", "Quoth: the quota was yea\n  big. Quoth, unquoth."), ("b.md", "requoth")]
    figure = house.word_figure(texts, {"quoth": "said", "yea big": "large"}, 3)
    assert (figure.value, figure.kept) == (3, True)
    assert not house.word_figure(texts, {"quoth": "said", "yea big": "large"}, 2).kept
    assert figure.details == (
        "a.md: quoth (2), plainly: said",
        "a.md: yea big (1), plainly: large",
    )


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("# One title\n\nOf four words.\n", 5),
        ("---\ntitle: Not read\n---\nRead.\n", 1),
        ("Before.\n\n```sh\ntidegate plan\n```\n\nBetween `the blocks`.\n\n```\nx\n```\n", 4),
        ("````text\n```\ninner\n```\n````\nAfter.\n", 1),
        ("1. Type:\n   ```sh\n   x=`date`\n   ```\n   Wait.\n", 3),
        ("| A | table · of |\n|---|---|\n", 3),
        ("One.\n<!-- rows: begin (generated by `make`) -->\nx y\n<!-- rows: end -->\nTwo.\n", 2),
        ("# Page\n\n<!-- Generated from models by `make generate` -->\nWords.\n", 0),
        ("# Speed\n\n`make bench` writes this page. Figures.\n", 0),
    ],
)
def test_words_to_read_leave_out_code_and_what_programs_write(
    tmp_path: Path, page: str, words: int
) -> None:
    (tmp_path / "page.md").write_text(page)
    assert house.words_to_read(tmp_path / "page.md") == words


def test_documents_and_decisions_have_a_bound_each(tmp_path: Path) -> None:
    files = {"README.md": "One two.", "docs/a.md": "Three.", "docs/tutorials/b.md": "Four five."}
    tree(tmp_path, {**files, "docs/adr/0001-x.md": "Six.", "docs/adr/README.md": "Not counted."})
    found = figures(house.document_figures(tmp_path, {"words": 4, "adr_words": 1}))
    read, decided = found["documentation: words"], found["documentation: adr_words"]
    assert (read.value, read.kept, decided.value, decided.kept) == (5, False, 1, True)
    assert set(read.details) == {"README.md: 2", "docs/tutorials/b.md: 2", "docs/a.md: 1"}


def test_texts_of_a_source_are_its_comments_and_every_text_but_names_of_fields() -> None:
    source = (
        '"""Head."""\n# Yea\n#   big\ndef f():  # aside\n    return f"seen {1} times" + "Plain"\n'
    )
    source += 'FIELD = "quoth_seconds"\n'
    found = house.texts_of(source).split("\n")
    assert sorted(found) == ["  big", " times", "Head.", "Plain", "Yea", "aside", "seen "]
    assert house.word_figure([("a.py", "\n".join(found))], {"yea big": "large"}, 0).value == 1


def test_documents_decisions_and_code_are_read_and_measurements_are_not() -> None:
    texts = dict(house.texts_for_people(ROOT))
    names = set(texts)
    assert {"README.md", "docs/operations.md", "charts/tidegate/values.yaml"} <= names
    assert {"operator/tidegate/cli.py", "tests/unit/hands.py", "lab/process.py"} <= names
    assert "docs/adr/0033-simulated-days.md" in names
    page = texts["operator/tidegate/report/templates/page.html"]
    assert "Less certain members" in page
    assert not re.search(r"[<>{}]", page)
    assert not [name for name in names if "/measurements/" in name]


@pytest.mark.parametrize(
    ("figure", "kept"),
    [
        (Figure("a", 10, 10, ""), True),
        (Figure("a", 11, 10, ""), False),
        (Figure("a", None, 10, ""), False),
    ],
)
def test_a_figure_that_could_not_be_measured_is_a_miss(figure: Figure, kept: bool) -> None:
    assert figure.kept is kept


def test_the_exit_code_is_one_while_a_bound_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = '[words]\nmost = 0\n[words.plainly]\n"quoth" = "said"\n'
    words += "[documentation]\nwords = 1\nadr_words = 0\n"
    tree(tmp_path, {"tools/budgets.toml": f'[lines]\n"demo" = 1\n{words}', "demo/a.py": "1\n"})
    tree(tmp_path, {f"{CORE}/__init__.py": "", "operator/tidegate/__init__.py": ""})
    assert house.main(["--static"], tmp_path) == 0
    assert capsys.readouterr().out == ""
    tree(tmp_path, {"demo/b.py": "1\n", "README.md": "Quoth he."})
    assert house.main(["--static"], tmp_path) == 1
    printed = capsys.readouterr().out
    assert "README.md: quoth (1), plainly: said" in printed
    assert "README.md: 2" in printed
    assert "3 of 7 bounds are missed" in printed


def test_the_check_runs_the_guard() -> None:
    assert "tools.house --static" in (ROOT / "Makefile").read_text().partition("\ncheck:")[2]


def test_a_command_is_measured_by_its_own_processor_time_and_a_failing_one_is_a_miss() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    figure = house.help_figure([sys.executable, "-c", busy], 0.25, rounds=1)
    assert figure.value is not None
    assert 0.3 <= figure.value < 1
    assert not figure.kept
    failing = house.help_figure([sys.executable, "-c", "raise SystemExit(3)"], 0.25, rounds=1)
    assert (failing.value, failing.kept) == (None, False)
    assert "code 3" in failing.details[0]


def test_a_measurement_that_fails_is_a_figure_without_a_value() -> None:
    figure = house._measured("rest", ("tests.house.no_such_module", "x"), 1, "MB")
    assert (figure.value, figure.kept) == (None, False)
    assert "No module named" in figure.details[0]


PICTURED = {
    f"{CORE}/decide.py": "from tidegate_logic.quotas.plan import x\nfrom "
    "tidegate_logic.model import y",
    f"{CORE}/model.py": "y = 1",
    f"{CORE}/quotas/__init__.py": '"""What Kafka has. And more."""',
    f"{CORE}/quotas/plan.py": "from tidegate_logic.contracts.desired import x",
    f"{CORE}/contracts/desired.py": "from tidegate_logic.model import y",
    "operator/tidegate/cli.py": "from tidegate.commands.run import run",
    "operator/tidegate/main.py": "from tidegate.control.loop import x",
    "operator/tidegate/commands/run.py": "from tidegate import main",
    "operator/tidegate/control/loop.py": "from tidegate_logic.decide import x",
}


def test_the_table_has_a_row_a_folder_and_two_for_modules_beside_folders(tmp_path: Path) -> None:
    picture = picture_of(product(tmp_path, PICTURED), PACKAGES, tmp_path)
    assert {name: sorted(below) for name, below in picture.imports.items()} == {
        "tidegate_logic entry": [
            "tidegate_logic base",
            "tidegate_logic.quotas",
        ],
        "tidegate_logic base": [],
        "tidegate_logic.quotas": ["tidegate_logic.contracts"],
        "tidegate_logic.contracts": ["tidegate_logic base"],
        "tidegate entry": ["tidegate.commands"],
        "tidegate main": ["tidegate.control"],
        "tidegate.commands": ["tidegate main"],
        "tidegate.control": ["tidegate_logic entry"],
    }
    assert rows_of(picture.imports)[0] == ["tidegate entry"]
    assert rows_of(picture.imports)[-1] == ["tidegate_logic base"]
    assert reduced(picture.imports)["tidegate_logic entry"] == ["tidegate_logic.quotas"]
    assert picture.boxes["tidegate_logic.quotas"].meaning == "What Kafka has"
    start = "| `controller_logic/tidegate_logic/quotas/` | 1 | What Kafka has | "
    assert f"{start}`tidegate_logic.contracts` |" in block(picture)
    assert "| `tidegate_logic` (entry) |" in block(picture)


def test_the_page_keeps_what_is_around_the_table(tmp_path: Path) -> None:
    picture = picture_of(product(tmp_path, PICTURED), PACKAGES, tmp_path)
    page = page_with(f"before\n{block(picture)}\nafter\n", picture)
    assert page == f"before\n{block(picture)}\nafter\n"
    with pytest.raises(ValueError, match="no place"):
        page_with("before after", picture)


def test_what_follows_from_the_rest_is_left_out() -> None:
    assert reduced({"a": "bc", "b": "c", "c": ""}) == {"a": ["b"], "b": ["c"], "c": []}
