"""`charts/tidegate/README.md`: what the chart does, and a table of its values made from the comments in `values.yaml`.

A key is described by the comment right above it. One whose parts are described is a group; every other is a row. A row without a
comment is refused, so that no value goes undescribed. What a value means is said in `values.yaml`, what it may be in its schema.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.generate import write_or_check

CHART = Path("charts/tidegate")
PAGE = CHART / "README.md"
VALUES = CHART / "values.yaml"
ALERTS = CHART / "alerts" / "tidegate.yaml"
HEAD = CHART / "README.head.md"
_NOTE = "<!-- Generated from README.head.md, values.yaml and alerts/tidegate.yaml by `make generate`; do not edit by hand. -->\n"


@dataclass(frozen=True)
class Value:
    """One key of the values with its path, its comment in one line and its default as JSON; a group has no default."""

    path: str
    comment: str
    default: str | None


class Undescribed(ValueError):
    """A value that no comment describes."""


def described_values(text: str) -> tuple[Value, ...]:
    """Every group and every value of a values file, in its order. Raises Undescribed for a value without a comment."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return () if root is None else tuple(_described(root, text.splitlines(), path=""))


def readme(*, head: str, values: str, alerts: str) -> str:
    """The whole page out of the three files' texts."""
    return head.replace("\n", f"\n\n{_NOTE}", 1) + _alert_table(alerts) + _value_table(described_values(values))


def _described(node: yaml.Node, lines: list[str], *, path: str) -> Iterator[Value]:
    """The values below a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, below in node.value:
        full_path = f"{path}.{key.value}" if path else str(key.value)
        comment = _comment_above(lines, key.start_mark)
        parts = [] if below.start_mark.line == key.start_mark.line else list(_parts(below, lines, full_path))
        if parts:
            yield Value(full_path, comment, None)
            yield from parts
        elif comment:
            yield Value(full_path, comment, json.dumps(yaml.safe_load(yaml.serialize(below)), ensure_ascii=False))
        else:
            raise Undescribed(f"{full_path} has no comment: say above it in values.yaml what it is for")


def _parts(node: yaml.Node, lines: list[str], path: str) -> Iterator[Value]:
    """The values below a group, or none when nothing below it is described: it is then one value."""
    if isinstance(node, yaml.MappingNode) and any(_comment_above(lines, key.start_mark) for key, _ in node.value):
        yield from _described(node, lines, path=path)


def _comment_above(lines: list[str], mark: yaml.Mark) -> str:
    """The lines of comment right above a key and as far in as it, joined; empty when there are none."""
    start = " " * mark.column + "#"
    first = mark.line
    while first > 0 and lines[first - 1].startswith(start):
        first -= 1
    return " ".join(line.strip().removeprefix("#").strip() for line in lines[first : mark.line])


def _alert_table(alerts: str) -> str:
    rules = (rule for group in yaml.safe_load(alerts)["groups"] for rule in group["rules"])
    return "\n## Alerts\n\n| Alert | Severity | After | Says |\n|---|---|---|---|\n" + "".join(map(_alert_row, rules))


def _alert_row(rule: Mapping[str, Any]) -> str:
    says = _cell(_plain(rule["annotations"]["summary"]))
    return f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {says} |\n"


def _plain(summary: str) -> str:
    """An alert's summary with the names of its labels in place of Prometheus's templates."""
    return summary.replace("{{ $labels.", "<").replace(" }}", ">").replace("<", "*").replace(">", "*")


def _value_table(values: tuple[Value, ...]) -> str:
    rows = (f"| `{value.path}` | {_default(value)} | {_cell(value.comment)} |\n" for value in values)
    return "\n## Values\n\n| Value | Default | Meaning |\n|---|---|---|\n" + "".join(rows)


def _default(value: Value) -> str:
    return "" if value.default is None else f"`{_cell(value.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


if __name__ == "__main__":
    texts = {name: path.read_text(encoding="utf-8") for name, path in (("head", HEAD), ("values", VALUES), ("alerts", ALERTS))}
    sys.exit(write_or_check({PAGE: readme(**texts)}, command="python -m tidegate.chart_readme"))
