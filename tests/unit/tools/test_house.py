"""The figures of `make house`, on small made-up trees."""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.house.trace import relative, traced
from tests.house.walks import WALKS
from tools import house
from tools.architecture_picture import PACKAGES, block, page_with, picture_of, reduced, rows_of, svg
from tools.house import Figure, Quotation
from tools.import_graph import ImportGraph, circles, floors, import_graph

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
    assert found["core files"].value == 4


def test_two_folders_that_import_each_other_are_a_circle_even_where_no_modules_are(
    tmp_path: Path,
) -> None:
    files = {
        "demo/play.py": "from bench.machine import x",
        "demo/board.py": "x = 1",
        "bench/machine.py": "x = 1",
        "bench/page.py": "from demo.board import x",
    }
    tree(tmp_path, files)
    around = import_graph((tmp_path, tmp_path / "demo"), (tmp_path, tmp_path / "bench"))
    found = figures(house.import_figures(product(tmp_path, {}), around))
    assert found["circles of imports in demo, lab, bench and image"].kept
    assert found["circles between these folders (demo and bench)"].details == ("bench <-> demo",)


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({}, 0),
        ({"a": ""}, 1),
        ({"a": "b", "b": "c", "c": "", "d": "c"}, 3),
        ({"a": "bc", "b": "c", "c": "b", "d": "a"}, 4),  # a circle counts whole
    ],
)
def test_floors_are_the_longest_chain(imports: Mapping[str, str], expected: int) -> None:
    assert floors(imports) == expected


def test_circles_are_sets_that_reach_each_other() -> None:
    assert [
        sorted(one) for one in circles({"a": "b", "b": "a", "c": "a", "d": "e", "e": "f", "f": "d"})
    ] == [["d", "e", "f"], ["a", "b"]]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5], 90, 5), (range(1, 11), 90, 9), (range(1, 101), 90, 90), ([3, 1, 2], 50, 2)],
)
def test_a_percentile_is_one_of_the_values(
    values: list[int], percent: float, expected: int
) -> None:
    assert house.percentile(values, percent) == expected


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
    found = figures(house.size_figures(product(tmp_path, files)))
    small = found["product modules under 60 lines with one importer"]
    assert small.details == (
        "tidegate_logic.said (6): A module of its own: Spark imports it by name.",
        "tidegate_logic.unsaid (2): no reason in its docstring",
    )
    assert found["  of which without a reason in the docstring"].value == 1
    assert (found["product modules"].value, found["product modules, median"].value) == (6, 4)


def test_lines_are_compared_with_the_commit_before(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "demo/a.py": "1\n2\n",
            "demo/page.html": "<p>\n",
            "demo/data.json": "1\n",
            "tools/b.py": "1\n",
        },
    )
    now = house.source_lines(tmp_path)
    assert (now["demo"], now["tools"], now["lab"]) == (3, 1, 0)
    (figure,) = house.line_figures(now, {**now, "demo": 4, "tools": 0})
    assert (figure.value, figure.kept) == (3, True)
    assert "-1 since" in figure.note
    (same,) = house.line_figures(now, now)
    assert not same.kept


def test_the_lines_kept_for_shallow_clones_are_those_of_the_commit(tmp_path: Path) -> None:
    assert house.lines_before(tmp_path) == house.LINES_BEFORE  # no repository at all
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository here")
    assert house.lines_before(ROOT) == house.LINES_BEFORE


def test_lines_before_and_now_are_counted_at_the_width_of_the_formatter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["ruff"]["line-length"] == house.COLUMNS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A card. CARDS, NicCard, nic_card_mb, cardinality", {"card": 3, "cards": 1}),
        ("background foreground groundless insight tidegate Tidegate TIDEGATE_HOME", {}),
        ("nobody is told", {"nobody": 1, "told": 1}),
        ("CommonGround tide_gate", {"ground": 1, "tide": 1}),
    ],
)
def test_words_count_whole_and_as_parts_of_identifiers(
    text: str, expected: Mapping[str, int]
) -> None:
    assert house.words_in("docs/a.md", text, ()) == expected


def test_the_path_counts_and_a_quotation_does_not() -> None:
    quoted = (Quotation("image", "USER nobody", "the account's name"),)
    assert house.words_in("image/Dockerfile", "USER nobody\n# nobody", quoted) == {"nobody": 1}
    assert house.words_in("images/Dockerfile", "USER nobody", quoted) == {"nobody": 1}
    assert house.words_in("tests/tide/estate.py", "", ()) == {"tide": 1, "estate": 1}


def test_old_names_count_as_whole_identifiers_and_not_in_prose() -> None:
    source = (
        '"""Held."""\nclass Held(HeldDown):  # Held\n    text, withheld, held = "Held", '
        "Withheld, m.Held\n"
    )
    assert house.names_in(source) == {"Held": 2, "HeldDown": 1}


def test_what_has_to_name_the_words_is_not_counted() -> None:
    files = {name for name, _ in house.prose_files(ROOT)}
    assert {"README.md", "docs/architecture.md", "tests/unit/test_house.py"} <= files
    assert not files & set(house._OWN_FILES)
    assert all((ROOT / name).exists() for name in house._OWN_FILES)


@pytest.mark.parametrize(
    ("figure", "kept"),
    [
        (Figure("a", 10, 10), True),
        (Figure("a", 11, 10), False),
        (Figure("a", 10, 10, at_least=True), True),
        (Figure("a", 9, 10, at_least=True), False),
        (Figure("a", None, 10), False),
        (Figure("a", 1), True),
    ],
)
def test_a_figure_that_could_not_be_measured_is_a_miss(figure: Figure, kept: bool) -> None:
    assert figure.kept is kept


def test_the_exit_code_is_one_while_a_bound_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        house,
        "source_figures",
        lambda: [Figure("good", 1, 2, "files"), Figure("bad", 3, 2, "files", details=("why",))],
    )
    assert house.main(["--static"]) == 1
    printed = capsys.readouterr().out
    assert "MISSED" in printed
    assert "    why" in printed
    assert "1 of 2 bounds missed." in printed
    monkeypatch.setattr(house, "source_figures", lambda: [Figure("good", 1, 2, "files")])
    assert house.main(["--static", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["kept"] is True


def test_a_command_is_measured_by_its_own_processor_time_and_a_failing_one_is_a_miss() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    figure = house.help_figure([sys.executable, "-c", busy], rounds=1)
    assert figure.value is not None
    assert 0.3 <= figure.value < 1
    assert not figure.kept
    failing = house.help_figure([sys.executable, "-c", "raise SystemExit(3)"], rounds=1)
    assert (failing.value, failing.kept) == (None, False)
    assert "code 3" in failing.note


def test_a_measurement_that_fails_is_a_figure_without_a_value() -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        house.measured("tests.house.walks", "no-such-trip")


def test_a_trace_counts_files_calls_and_changes_of_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ask` (a) calls `answer` (b) twice, which calls itself once a time; what an import runs does
    not count.
    """
    tree(
        tmp_path,
        {
            "house_traced_a.py": "def ask():\n    import house_traced_b\n    return "
            "house_traced_b.answer(1) + house_traced_b.answer(1)\n",
            "house_traced_b.py": "def answer(n):\n    return answer(n - 1) if n else "
            "1\nanswer(5)\n",
        },
    )
    monkeypatch.syspath_prepend(tmp_path)
    import house_traced_a  # type: ignore[import-not-found]

    trace = traced(house_traced_a.ask, (tmp_path,))
    assert {Path(name).name: count for name, count in trace.calls.items()} == {
        "house_traced_a.py": 1,
        "house_traced_b.py": 4,
    }
    assert trace.changes == 2


@pytest.mark.parametrize("name", ["cut", "quota-to-znode"])
def test_the_trips_reach_their_end_and_name_files_of_the_product(name: str) -> None:
    walk = WALKS[name]()
    entered = walk["entered"]
    assert isinstance(entered, list)
    assert len(entered) == walk["files"]
    assert f"{CORE}/decide.py" in entered
    assert all((ROOT / file).exists() for file in entered)
    assert relative([str(ROOT / entered[0])]) == [entered[0]]


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


def test_the_picture_has_a_box_a_folder_and_two_for_modules_beside_folders(tmp_path: Path) -> None:
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
    drawn = svg(picture)
    assert drawn.count("<rect") == 1 + len(picture.boxes)
    assert drawn.count('<path d="M') == 1 + sum(
        map(len, reduced(picture.imports).values())
    )  # and the tip of the arrows
    assert "| `controller_logic/tidegate_logic/quotas/` | 1 | What Kafka has |" in block(picture)


def test_the_page_keeps_what_is_around_the_picture(tmp_path: Path) -> None:
    picture = picture_of(product(tmp_path, PICTURED), PACKAGES, tmp_path)
    page = page_with(f"before\n{block(picture)}\nafter\n", picture)
    assert page == f"before\n{block(picture)}\nafter\n"
    with pytest.raises(ValueError, match="no place"):
        page_with("before after", picture)


def test_in_a_circle_every_arrow_stays() -> None:
    assert reduced({"a": "b", "b": "ac", "c": ""}) == {"a": ["b"], "b": ["a", "c"], "c": []}
    assert reduced({"a": "bc", "b": "c", "c": ""}) == {"a": ["b"], "b": ["c"], "c": []}
