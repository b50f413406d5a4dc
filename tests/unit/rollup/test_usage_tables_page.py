"""The page of the usage tables names every table and column that there is, and no other; its Python
can be compiled.
"""

import re
from pathlib import Path

import pytest

from tidegate.rollup.entities import ENTITIES
from tidegate.rollup.schemas import TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "usage-tables.md").read_text(encoding="utf-8")
COLUMNS = {name for kind in TABLES.values() for name in kind.schema.names} | set(ENTITIES.names)
_FIRST_CELLS = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)


def test_every_column_is_described() -> None:
    assert {name for name in COLUMNS if f"`{name}`" not in PAGE} == set()


def test_every_table_is_described() -> None:
    assert {name for name in TABLES if f"`{name}`" not in PAGE} == set()


def test_no_column_or_table_is_made_up() -> None:
    described = {name for cell in _FIRST_CELLS for name in re.findall(r"`([a-z0-9_]+)`", cell)}
    assert described - COLUMNS - set(TABLES) == set()


@pytest.mark.parametrize("kind", TABLES.values(), ids=lambda kind: kind.name)
def test_the_key_of_every_table_is_in_the_order_of_its_files(kind: object) -> None:
    key = ", ".join(TABLES[kind.name].key)  # type: ignore[attr-defined]
    assert f"| {key} |" in PAGE


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_code_that_is_shown_compiles(code: str) -> None:
    compile(code, "usage-tables.md", "exec")
