"""Workflows do nothing that make does not do, and run nothing that can change under them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
INSTALL = "apt-get update && apt-get install -y --no-install-recommends "
MAKE = re.compile(r"make ([a-z-]+)((?: [A-Z_]+=\w*)*)")


# pipes that are read once, and no process that keeps in its environment what they have
BY_PIPES = (
    "exec env -u SIGNING_KEY -u SIGNING_KEY_PASSWORD {} SIGNING_KEY_FILE=/dev/fd/3 "
    'SIGNING_KEY_PASSWORD_FILE=/dev/fd/4 3<<<"$SIGNING_KEY" 4<<<"$SIGNING_KEY_PASSWORD"'
)
TAKES_KEYS = re.compile(re.escape(BY_PIPES).replace(r"\{\}", f"({MAKE.pattern})"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_a_make_target_or_installs_what_make_needs(workflow: Path) -> None:
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    commands = [found[1] if (found := TAKES_KEYS.fullmatch(run)) else run for run in runs]
    made = [found for command in commands if (found := MAKE.fullmatch(command))]
    assert {found[1] for found in made} <= TARGETS
    assert made
    others = [command for command in commands if not MAKE.fullmatch(command)]
    assert all(re.fullmatch(re.escape(INSTALL) + r"[a-z0-9 .-]+", other) for other in others)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name) for name in used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_the_tree_and_nothing_else(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_keys_and_logins_are_secrets_of_the_release_alone() -> None:
    having = {path.stem for path in WORKFLOWS if "secrets." in path.read_text()}
    assert having == {"release"}
    named = re.findall(r"\$\{\{ (?:secrets|vars)\.(\w+) \}\}", WORKFLOWS[-1].read_text())
    assert set(named) == {"REGISTRY", "REGISTRY_LOGIN", "SIGNING_KEY", "SIGNING_KEY_PASSWORD"}


def test_a_key_reaches_make_by_pipes_and_not_by_the_environment() -> None:
    given = [step for path in WORKFLOWS for step in steps(path) if "SIGNING_KEY" in str(step)]
    assert given
    assert all(TAKES_KEYS.fullmatch(step["run"]) and step["shell"] == "bash" for step in given)


def test_the_job_with_the_key_builds_and_tests_nothing() -> None:
    jobs = yaml.safe_load(WORKFLOWS[-1].read_text())["jobs"]
    assert [name for name, job in jobs.items() if "secrets." in str(job)] == ["publish"]
    assert jobs["publish"]["needs"] == ["check", "build"]
    runs = [step["run"] for step in jobs["publish"]["steps"] if "run" in step]
    made = [
        found[1]
        for run in runs
        for found in re.finditer(rf"\b{MAKE.pattern}", run)
        if "apt-get" not in run
    ]
    assert made == ["setup", "release-publish"]
    assert "make setup EXTRAS=" in runs


def test_publishing_loads_no_package_but_the_operators_own() -> None:
    code = (
        "import sys, tools.release.__main__; print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    installed = metadata.packages_distributions()
    taken = {name for module in loaded for name in installed.get(module, ())}
    needs = {
        re.split(r"[^a-z-]", need.lower())[0]
        for need in metadata.requires("tidegate") or ()
        if "extra" not in need
    }
    assert {name.lower() for name in taken} - {"tidegate"} <= needs


def test_go_has_a_version() -> None:
    given = [
        step["with"]["go-version"]
        for path in WORKFLOWS
        for step in steps(path)
        if "setup-go" in step.get("uses", "")
    ]
    assert given
    assert all(re.fullmatch(r"1\.\d+\.\d+", version) for version in given)


@pytest.mark.parametrize(
    "form",
    [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"],
    ids=lambda path: path.stem,
)
def test_a_form_asks_for_something_and_names_each_question_once(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(content)
    names = [item["id"] for item in content["body"] if "id" in item]
    assert len(names) == len(set(names)) > 0
    assert any(item.get("validations", {}).get("required") for item in content["body"])
