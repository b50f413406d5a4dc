"""Examples in the documents work as written: commands with their options, objects as they would be applied, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tidegate.cli import app
from tidegate.resources import API_VERSION
from tidegate.resources.kinds import parse_object

CHECKOUT = Path(__file__).parents[2]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|/|&& |`)tidegate ((?:run|plan|explain|top|audit|restore|version)\b[^`\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def written_commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for match in _COMMAND.finditer(page.read_text(encoding="utf-8")):
            yield page.name, shlex.split(match[1], comments=True)


def written_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for document in yaml.safe_load_all(text) if language == "yaml" else ():
                yield f"{page.name}-{document['metadata']['name']}", document


@pytest.mark.parametrize("words", [pytest.param(words, id=f"{page}: {' '.join(words)}") for page, words in written_commands()])
def test_a_command_has_the_options_it_is_shown_with(words: list[str]) -> None:
    group: Any = typer.main.get_command(app)
    options = {name for parameter in group.commands[words[0]].params for name in parameter.opts} | {"--help"}
    assert {word for word in words[1:] if word.startswith("-")} <= options


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in written_objects()])
def test_an_object_that_is_shown_would_be_accepted(document: dict[str, Any]) -> None:
    assert document["apiVersion"] == API_VERSION
    parse_object(document, strict=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_documents_show_commands_and_objects_at_all() -> None:
    assert len(list(written_commands())) >= 10
    assert len(list(written_objects())) >= 4
