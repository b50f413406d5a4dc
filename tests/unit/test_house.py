"""Rules of the repository: no name hides the standard library, the core touches nothing outside,
and what `make audit` fails for.
"""

import ast
import operator
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted((ROOT / "controller_logic").rglob("*.py"))
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


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_touches_no_clock_no_network_no_file_and_no_chance(path: Path) -> None:
    modules = imported_modules(path)
    assert modules <= sys.stdlib_module_names | {"controller_logic"}
    assert not modules & IMPURE


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


# --- `make audit` ---------------------------------------------------------------------------------
# `make audit` fails for an unsound package, passes when the advisory source cannot be reached, and
# reports all else.


AUDIT = Path(__file__).parents[2] / "tools" / "audit"
OFFLINE = (
    "error: error sending request for url (https://advisories.test/v1/querybatch)\\n  "
    "cause: dns error"
)
BUSY = (
    "error: HTTP status server error (503 Service Unavailable) for url "
    "(https://advisories.test/v1/querybatch)"
)


def audited(folder: Path, *, says: str, code: int) -> subprocess.CompletedProcess[str]:
    """Run the audit with a uv that prints this on standard error and ends with this code."""
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\nprintf '%b\\n' '{says}' >&2\nexit {code}\n")
    uv.chmod(0o700)
    return subprocess.run([AUDIT, uv], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("says", [OFFLINE, BUSY], ids=["offline", "busy"])
def test_a_source_that_cannot_be_reached_is_no_failure_and_is_reported(
    tmp_path: Path, says: str
) -> None:
    done = audited(tmp_path, says=says, code=2)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Skipped: no public source of advisories can be reached")


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("Found no known vulnerabilities in 100 packages", 0),
        ("Found 1 known vulnerability in 100 packages", 1),
        ("error: The lockfile is missing", 2),
        ("error: unexpected argument for url (one that a vulnerability names)", 1),
    ],
)
def test_every_other_end_is_handed_on_with_its_words(tmp_path: Path, says: str, code: int) -> None:
    done = audited(tmp_path, says=says, code=code)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{says}\n")
