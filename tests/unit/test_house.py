"""Rules of the repository: no name hides the standard library, the core touches nothing outside."""

import ast
import operator
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted((ROOT / "controller_logic" / "tidegate_logic").rglob("*.py"))
PRODUCT = sorted((ROOT / "operator" / "tidegate").rglob("*.py"))
MODEL = sorted((ROOT / "operator" / "tidegate" / "simulation").glob("*.py"))
IMPURE = {
    "asyncio",
    "io",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


def test_the_operator_folder_never_hides_the_standard_library() -> None:
    """A package called operator on the path breaks Python itself at start-up."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert Path(operator.__file__).is_relative_to(Path(sys.modules["os"].__file__).parent)


@pytest.mark.parametrize(
    "place",
    ["pyproject.toml", "operator", "crds", "charts", "controller_logic", "tests", "e2e"],
)
def test_the_tree_has_the_top_level_that_the_project_was_asked_for(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize(
    "package", ["pyspark", "kopf", "kubernetes", "kazoo", "pydantic", "prometheus_api_client"]
)
def test_the_product_imports_the_packages_that_the_project_was_asked_for(package: str) -> None:
    assert any(package in imported_modules(path) for path in (*PRODUCT, *CORE))


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(_package(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(_package(node.module))
    return found


def _package(module: str) -> str:
    """Of ours the first two names, of others the first."""
    names = module.split(".")
    return ".".join(names[: 2 if names[0] == "tidegate" else 1])


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_touches_no_clock_no_network_no_file_and_no_chance(path: Path) -> None:
    modules = imported_modules(path)
    assert modules <= sys.stdlib_module_names | {"tidegate_logic"}
    assert not modules & IMPURE


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_the_modelled_cluster_touches_nothing_outside_either(path: Path) -> None:
    modules = imported_modules(path)
    assert modules <= sys.stdlib_module_names | {
        "tidegate_logic",
        "tidegate.simulation",
    }
    assert not modules & IMPURE


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
