"""The documents: examples in them work as written, and the site has all that its pages link to."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tidegate.cli import app
from tidegate.resources import API_VERSION, GROUP
from tidegate.resources.kinds import KINDS, parse_object, parse_simulation
from tidegate.resources.simulation import SIMULATION_KIND

# --- examples and links ---------------------------------------------------------------------------
# Examples in the documents work as written: commands with their options, objects as they would be
# applied, links.


CHECKOUT = Path(__file__).parents[2]
PAGES = [
    *sorted(CHECKOUT.glob("*.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
GOLDENS = sorted((CHECKOUT / "tests" / "goldens").glob("*.txt"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def command_names(group: Any, before: str = "") -> Iterator[str]:
    """Every command of the program as it is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from command_names(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_the_first_example_looks_before_it_acts() -> None:
    spec = yaml.safe_load((CHECKOUT / "examples" / "00-policy.yaml").read_text())["spec"]
    assert spec["mode"] == "Observe"
    assert set(spec["kafka"]) == {"bootstrapServers"}  # no ZooKeeper
    assert spec["metrics"]["preset"] == "NodeExporter"
    assert spec["brokers"]["egress"]["limit"] == "100M"


_NAMES = "|".join(command_names(typer.main.get_command(app)))
_COMMAND = re.compile(rf"(?:^|/|&& |\| |`)tidegate ((?:{_NAMES})\b[^`\n]*)", re.MULTILINE)
_LINE = re.compile(r"(?:^|bin/|&& |\| )tidegate ([^`\n]*)", re.MULTILINE)
_SHELL = {"|", ">", "&&", "||", ";"}  # what follows is no word of the command any more
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def written_commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # has commands as they were
            continue
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for match in _COMMAND.finditer(text):
            words = shlex.split(match[1], comments=True)
            yield page.name, list(takewhile(lambda word: word not in _SHELL, words))


def written_lines() -> Iterator[tuple[str, list[str]]]:
    """Command lines to type: those of shell blocks, where a backslash at the end goes on."""
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if language not in ("", "sh") or page.name == "CHANGELOG.md":
                continue
            for match in _LINE.finditer(text.replace("\\\n", " ")):
                words = shlex.split(match[1], comments=True)
                yield page.name, list(takewhile(lambda word: word not in _SHELL, words))


def shown_outputs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "output":
                yield page.name, text


def written_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for document in yaml.safe_load_all(text) if language == "yaml" else ():
                yield f"{page.name}-{document['metadata']['name']}", document


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=f"{page}: {' '.join(words)}") for page, words in written_commands()],
)
def test_a_command_has_the_options_it_is_shown_with(words: list[str]) -> None:
    command, rest = found_command(words)
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    named = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
    assert named <= options


def found_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and the words after its name."""
    found: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(found, "commands"):
        if found.name == "report" and rest[0] not in found.commands:
            rest.insert(0, "write")  # `tidegate report --store ...` writes one
        found = found.commands[rest.pop(0)]
    return found, rest


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=f"{page}: {' '.join(words)}") for page, words in written_lines()],
)
def test_a_command_line_to_type_is_complete(words: list[str]) -> None:
    """Every argument has a place, every option its value, and none is missing."""
    command, rest = found_command(words)
    command.make_context("tidegate", rest)


@pytest.mark.parametrize(
    "document", [pytest.param(document, id=name) for name, document in written_objects()]
)
def test_an_object_that_is_shown_would_be_accepted(document: dict[str, Any]) -> None:
    if document["kind"] == SIMULATION_KIND:
        parse_simulation(document)
        return
    assert document["apiVersion"] == API_VERSION
    parse_object(document, strict=True)
    kind = next(kind for kind in KINDS if kind.kind == document["kind"])
    path = CHECKOUT / "crds" / f"{GROUP}_{kind.plural}.yaml"
    crd = yaml.load(path.read_text(), yaml.CSafeLoader)
    (version,) = crd["spec"]["versions"]
    schema = without_other_fields(version["schema"]["openAPIV3Schema"])
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []


def without_other_fields(schema: Any) -> Any:
    """The schema, where a field that it does not have is an error: the API server would drop it."""
    if isinstance(schema, list):
        return [without_other_fields(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: without_other_fields(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    return closed


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"{page}: {text[:30]}") for page, text in shown_outputs()]
)
def test_output_that_is_shown_is_what_a_command_prints(text: str) -> None:
    assert any(text in golden.read_text(encoding="utf-8") for golden in GOLDENS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_read_in_minutes() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert len(_BLOCK.sub("", text).split()) <= 700
    assert len(text.splitlines()) <= 120


def test_the_first_page_names_every_command() -> None:
    index = (CHECKOUT / "docs" / "index.md").read_text(encoding="utf-8")
    names = {name.split()[0] for name in command_names(typer.main.get_command(app))}
    assert {name for name in names if f"`{name}" not in index} == set()


def test_the_documents_show_commands_and_objects_at_all() -> None:
    assert len(list(written_commands())) >= 10
    assert len(list(written_lines())) >= 50
    assert len(list(written_objects())) >= 4
    assert {page for page, _ in shown_outputs()} >= {"README.md", "troubleshooting.md"}


# --- the site -------------------------------------------------------------------------------------
# The site of docs/ has all that its pages link to, and loads nothing from elsewhere.
#
# That every link leads somewhere is shown by `make docs`, which builds the whole site and takes any
# warning for an error.


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """The hooks as mkdocs loads them: by their path."""
    spec = importlib.util.spec_from_file_location(
        "documentation_site", CHECKOUT / "tools" / "documentation_site.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def config() -> MkDocsConfig:
    return load_config(str(CHECKOUT / "mkdocs.yml"))


def page(config: MkDocsConfig, path: str) -> Page:
    return Page(
        None, File(path, config.docs_dir, config.site_dir, use_directory_urls=False), config
    )


@pytest.mark.parametrize(
    ("at", "written", "shown", "brought"),
    [
        (
            "operations.md",
            "[the rights](../examples/rights/operator.yaml)",
            "[the rights](examples/rights/operator.yaml)",
            True,
        ),
        (
            "adr/0001-x.md",
            "[CRDs](../../examples/00-policy.yaml)",
            "[CRDs](../examples/00-policy.yaml)",
            True,
        ),
        ("user-guide.md", "[examples/](../examples/)", "examples/", False),
        ("index.md", "[how](../CONTRIBUTING.md#start)", "how", False),
        (
            "adr/0001-x.md",
            "[limits](../known-limits.md#a)",
            "[limits](../known-limits.md#a)",
            False,
        ),
        ("index.md", "[gone](../examples/gone.yaml)", "[gone](../examples/gone.yaml)", False),
        ("index.md", "[out](../../etc/passwd)", "[out](../../etc/passwd)", False),
    ],
)
def test_a_link_out_of_the_pages_leads_to_a_copy_or_is_plain_text(
    hooks: ModuleType, config: MkDocsConfig, at: str, written: str, shown: str, brought: bool
) -> None:
    files = Files([])
    assert (
        hooks.on_page_markdown(f"See {written}.", page=page(config, at), config=config, files=files)
        == f"See {shown}."
    )
    assert bool(len(files)) is brought


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://cdn.test/a.js"></script>',
        "<link rel=stylesheet href=//fonts.test/css>",
        '<img alt="x" src="http://counter.test/1.gif">',
    ],
)
def test_a_page_that_would_load_something_from_elsewhere_is_refused(
    hooks: ModuleType, config: MkDocsConfig, loads: str
) -> None:
    with pytest.raises(PluginError, match=r"index\.md would load .*\.test"):
        hooks.on_post_page(f"<html>{loads}</html>", page=page(config, "index.md"), config=config)


@pytest.mark.parametrize(
    "is_fine",
    [
        '<script src="assets/a.js">',
        '<a href="https://kafka.test/">',
        '<link rel="canonical" href="https://x.test/">',
    ],
)
def test_a_page_may_link_elsewhere(hooks: ModuleType, config: MkDocsConfig, is_fine: str) -> None:
    assert hooks.on_post_page(is_fine, page=page(config, "index.md"), config=config) == is_fine


def test_every_decision_is_in_the_navigation(config: MkDocsConfig) -> None:
    shown = str(config.plugins.on_config(config).nav)
    assert [
        path.name
        for path in (CHECKOUT / "docs" / "adr").glob("*.md")
        if f"adr/{path.name}" not in shown
    ] == []
