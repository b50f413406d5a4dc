"""Generate the committed files that are made from the code, or check that they are what the code
would write.

The pages come from the same models, commands and reasons that the program uses, so that they cannot
differ from it. A file that is right already is not touched.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from string import Template
from typing import Any

import typer
import yaml

from tidegate.cli import EPILOGUE, app
from tidegate.commands.examples import EXAMPLES
from tidegate.commands.help_page import type_words
from tidegate.commands.simulation_file import read_simulation
from tidegate.commands.simulation_plot import simulation_svg
from tidegate.resources.crd import Schema, crd_document, object_schema
from tidegate.resources.kinds import API_VERSION, CATEGORY, GROUP, KINDS, Kind
from tidegate.resources.rates import PATTERN
from tidegate.simulation.outcome import outcome_of
from tidegate.simulation.play import play
from tidegate_logic.reasons import STALLED, Reason
from tools.dashboards import dashboard_json, declared
from tools.write_or_check import write_or_check

# docs/resources.md: fields, types, bounds, meaning and rules, from the schema that the API server
# enforces.

_HEADS = Path(__file__).with_name("page_heads")
_UNSET = re.compile(r" ?\bUnset(?: means(?: that)?|:) (.+?)\.(?= |$)")


def _head(name: str, **known: str) -> str:
    """What a page begins with, with what is `$known` filled in."""
    return Template((_HEADS / f"{name}.md").read_text(encoding="utf-8")).substitute(known)


def reference_page(kinds: Iterable[Kind]) -> str:
    """The whole page."""
    head = _head("resources", api_version=API_VERSION, category=CATEGORY)
    return "\n".join([head, *(line for kind in kinds for line in _kind(kind))]).rstrip() + "\n"


def _kind(kind: Kind) -> Iterator[str]:
    schema = object_schema(kind)
    yield f"## {kind.kind} (`{kind.short_name}`)\n\n{kind.summary}\n"
    yield "### spec\n\n| field | type | if unset | meaning |\n|---|---|---|---|"
    for name, node, needed in _fields(schema["properties"]["spec"], ""):
        unset, meaning = _unset_and_meaning(node["description"])
        yield (
            f"| `{name}` | {_type(node)} | {'**required**' if needed else _cell(unset)} | "
            f"{_cell(meaning)} |"
        )
    yield "\n### status\n\n| field | type | meaning |\n|---|---|---|"
    yield from (
        f"| `{name}` | {_type(node)} | {_cell(node['description'])} |"
        for name, node, _ in _fields(schema["properties"]["status"], "")
    )
    yield ""
    yield "### Must hold\n\n| where | rule |\n|---|---|"
    yield from _rules(schema)
    yield f"\n### Columns of `kubectl get {kind.short_name}`\n\n| column | meaning |\n|---|---|"
    yield from (
        f"| {c.name}{' (`-o wide`)' if c.priority else ''} | {c.description} |"
        for c in kind.columns
    )
    yield ""


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field with its whole name, its schema and whether it is required; a field before what
    is in it.
    """
    for name, node in schema.get("properties", {}).items():
        below = f"{path}.{name}".removeprefix(".")
        yield below, node, name in schema.get("required", [])
        yield from _fields(node.get("items", node), f"{below}[]" if "items" in node else below)


def _unset_and_meaning(description: str) -> tuple[str, str]:
    """The part of a description about a field that is left out (empty where there is none), and the
    rest of it.
    """
    unset = _UNSET.search(description)
    return (
        ("", description)
        if unset is None
        else (unset[1], description.replace(unset[0], "").strip())
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(node: Schema) -> str:
    if _is_rate(node):
        return "byte rate"
    if "items" in node:
        return f"list of {_type(node['items'])}, {_bounds(node, 'minItems', 'maxItems')}"
    if "enum" in node:
        return " \\| ".join(str(value) for value in node["enum"])
    if node["type"] == "integer":
        return f"integer, {_bounds(node, 'minimum', 'maximum')}"
    if node["type"] == "string":
        return node.get("format") or f"text, {_bounds(node, 'minLength', 'maxLength')} characters"
    return str(node["type"])


def _is_rate(node: Schema) -> bool:
    return node.get("pattern") == PATTERN


def _bounds(node: Schema, lowest: str, highest: str) -> str:
    return f"{node.get(lowest, 0)} to {node[highest]}"


def _rules(schema: Schema) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for path, rule in _rules_below(schema, ""):
        row = (path, rule["message"])
        if row not in seen:
            seen.add(row)
            yield f"| `{path or '(object)'}` | {_cell(rule['message'])} |"


def _rules_below(node: Schema, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from (
        (path, rule) for rule in node.get("x-kubernetes-validations", []) if not _is_rate(node)
    )
    for name, below in node.get("properties", {}).items():
        yield from _rules_below(below, f"{path}.{name}".removeprefix("."))
    if "items" in node:
        yield from _rules_below(node["items"], f"{path}[]")


# The CRDs as templates of the Helm chart, made from the same document as the files in `crds/`.
#
# Helm installs a chart's own `crds/` folder once and never upgrades it; templates are upgraded,
# and the resource policy keeps them on
# uninstall. What is in the values, and what they mean, is the chart's business.


CHART = "charts/tidegate"

_TEMPLATE_HEADER = (
    "{{- /* Generated from operator/tidegate/resources; do not edit: change the "
    "models and run `make generate`. */}}\n"
)
_METADATA = """\
  labels:
    {{- include "tidegate.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def chart_path(kind: Kind) -> str:
    """Where the template of a kind is, relative to the checkout."""
    return f"{CHART}/templates/crds/{GROUP}_{kind.plural}.yaml"


def chart_template(crd_yaml: str) -> str:
    """The template that renders to the CRD `crd_yaml` with the release's labels, or to nothing when
    `crds.enabled` is false.

    Raises ValueError when the text has no name to put the labels after. Braces that Helm would read
    are quoted for it.
    """
    body = "".join(line for line in crd_yaml.splitlines(keepends=True) if not line.startswith("#"))
    head, name, rest = body.partition("metadata:\n")
    named, separator, spec = rest.partition("spec:\n")
    if not name or not separator or not named.startswith("  name: "):
        raise ValueError("this is no CRD with a name and a spec")
    quoted = spec.replace("{{", '{{ "{{" }}')
    return (
        f"{_TEMPLATE_HEADER}{{{{- if .Values.crds.enabled "
        f"}}}}\n{head}{name}{named}{_METADATA}{separator}{quoted}{{{{- end }}}}\n"
    )


# docs/reasons.md: the table of every reason, from the enum in controller_logic/tidegate_logic/reasons.py.


REASONS_PAGE = Path("docs/reasons.md")


def reasons_page() -> str:
    """The whole page: one row a reason, in the order of the enum. A `|` in a meaning is escaped, so
    that no row breaks.
    """
    rows = (
        f"| `{reason.value}` | {_cell(reason.meaning)} | {'yes' if reason in STALLED else ''} |\n"
        for reason in Reason
    )
    return _head("reasons") + "".join(rows)


# `charts/tidegate/README.md`: what the chart does, and a table of its values made from the
# comments in `values.yaml`.
#
# A key is described by the comment right above it. A key whose parts are described is a group;
# every other key is a row. A row without a comment is refused. The allowed values are in the schema
# of the values.


CHART_DIRECTORY = Path("charts/tidegate")
CHART_README = CHART_DIRECTORY / "README.md"
VALUES = CHART_DIRECTORY / "values.yaml"
CHART_README_HEAD = CHART_DIRECTORY / "README.head.md"
_NOTE = (
    "<!-- Generated from README.head.md and values.yaml by `make generate`; do not edit by "
    "hand. -->\n"
)


@dataclass(frozen=True)
class Value:
    """One key of the values with its path, its comment in one line and its default as JSON; a group
    has none, and neither has a value that is empty by default.
    """

    path: str
    comment: str
    default: str | None


class Undescribed(ValueError):
    """A value that no comment describes."""


def described_values(text: str) -> tuple[Value, ...]:
    """Every group and every value of a values file, in its order. Raises Undescribed for a value
    without a comment.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return () if root is None else tuple(_described(root, text.splitlines(), path=""))


def readme(*, head: str, values: str) -> str:
    """The whole page out of the two files' texts."""
    return head.replace("\n", f"\n\n{_NOTE}", 1) + _value_table(described_values(values))


def _described(node: yaml.Node, lines: list[str], *, path: str) -> Iterator[Value]:
    """The values below a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, below in node.value:
        full_path = f"{path}.{key.value}" if path else str(key.value)
        comment = _comment_above(lines, key.start_mark)
        parts = (
            []
            if below.start_mark.line == key.start_mark.line
            else list(_parts(below, lines, full_path))
        )
        if parts:
            yield Value(full_path, comment, None)
            yield from parts
        elif comment:
            yield Value(
                full_path,
                comment,
                _compact(yaml.safe_load(yaml.serialize(below))),
            )
        else:
            raise Undescribed(
                f"{full_path} has no comment: say above it in values.yaml what it is for"
            )


def _compact(default: Any) -> str:
    """As JSON; empty for what is empty, which says nothing."""
    if default in ("", [], {}):
        return ""
    return json.dumps(default, ensure_ascii=False, separators=(",", ":"))


def _parts(node: yaml.Node, lines: list[str], path: str) -> Iterator[Value]:
    """The values below a group, or none when nothing below it is described: it is then one
    value.
    """
    if isinstance(node, yaml.MappingNode) and any(
        _comment_above(lines, key.start_mark) for key, _ in node.value
    ):
        yield from _described(node, lines, path=path)


def _comment_above(lines: list[str], mark: yaml.Mark) -> str:
    """The lines of comment right above a key and as far in as it, joined; empty when there are
    none.
    """
    start = " " * mark.column + "#"
    first = mark.line
    while first > 0 and lines[first - 1].startswith(start):
        first -= 1
    return " ".join(line.strip().removeprefix("#").strip() for line in lines[first : mark.line])


def _value_table(values: tuple[Value, ...]) -> str:
    rows = (f"|`{value.path}`|{_default(value)}|{_cell(value.comment)}|\n" for value in values)
    return "\n## Values\n\n| Value | Default | Meaning |\n|---|---|---|\n" + "".join(rows)


def _default(value: Value) -> str:
    return f"`{_cell(value.default)}`" if value.default else ""


# docs/cli.md: every command with its options, from the declarations in operator/tidegate/commands.


CLI_PAGE = Path("docs/cli.md")


def cli_page() -> str:
    """The whole page, commands in the order in which `tidegate --help` lists them."""
    parts = [_head("cli", epilogue=EPILOGUE)]
    for name, command in _commands(typer.main.get_command(app)):
        parts.append(
            f"\n## tidegate {name}\n\n{_prose(command.help)}\n\n```sh\n{EXAMPLES[name]}\n```\n\n"
            "| Option | Meaning |\n|---|---|\n"
        )
        parts.extend(_option_row(option) for option in command.params if not option.hidden)
    return "".join(parts)


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its name after `tidegate`; a group gives its commands."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _prose(text: str | None) -> str:
    """A docstring as Markdown: paragraphs on one line each, as the terminal's help has them."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _option_row(option: Any) -> str:
    names = (
        ", ".join(f"`{name}`" for name in option.opts)
        if option.param_type_name == "option"
        else f"`{option.metavar}`"
    )
    takes = (
        ""
        if option.param_type_name == "argument" or option.is_flag
        else f" `{option.metavar or _choices(option)}`"
    )
    return f"| {_cell(names + takes)} | {_cell(' '.join(_meaning(option)))} |\n"


def _choices(option: Any) -> str:
    default = option.default
    return (
        "|".join(member.value for member in type(default))
        if isinstance(default, Enum)
        else type_words(option.bare_type())
    )


def _meaning(option: Any) -> Iterator[str]:
    yield option.help or ""
    if option.required:
        yield "Required."
    elif (
        option.param_type_name == "option"
        and not option.is_flag
        and option.default not in (None, "")
    ):
        default = option.default.value if isinstance(option.default, Enum) else option.default
        yield f"Default: `{default}`."
    if option.envvar:
        yield f"Environment: `{option.envvar}`."


# docs/simulated-evening.svg: the plot of examples/simulate/, as `tidegate simulate` draws it.


SIMULATED_PICTURE = Path("docs/simulated-evening.svg")
SIMULATED = Path("examples/simulate/evening-backfill.yaml")
# the wheel has it, too: `tidegate console --play` plays it
PLAYED = Path("operator/tidegate/commands/evening-backfill.yaml")


def simulated_picture() -> str:
    """The whole file, from the example and today's decisions."""
    given = read_simulation([str(SIMULATED)], policy=None, standard_input=sys.stdin)
    played = play(given.scenario)
    return simulation_svg(given.name, played, outcome_of(played))


# Makes `crds/*.yaml`, the chart's templates of them and `docs/resources.md` from the models; with
# --check it only compares.
#
# Run as `python -m tools.generate [--check]` from the root of a checkout.


_HEADER = (
    "# Generated from operator/tidegate/resources; do not edit: change the models and run "
    "`make generate`.\n"
)


class _WrittenOut(yaml.SafeDumper):
    """YAML without anchors: a person who reads a field sees its rules there, and so does every tool
    that knows no anchors.
    """

    def ignore_aliases(self, _: Any) -> bool:
        return True


def crd_yaml(kind: Kind) -> str:
    """The CRD of a kind as the text of its file in `crds/`."""
    return _HEADER + yaml.dump(
        crd_document(kind), Dumper=_WrittenOut, sort_keys=False, width=120, allow_unicode=True
    )


def generated_files() -> Mapping[Path, str]:
    """Every generated file, relative to the checkout, with its text."""
    texts = {kind: crd_yaml(kind) for kind in KINDS}
    crds = {Path("crds") / f"{GROUP}_{kind.plural}.yaml": text for kind, text in texts.items()}
    templates = {Path(chart_path(kind)): chart_template(text) for kind, text in texts.items()}
    return {**crds, **templates, Path("docs/resources.md"): reference_page(KINDS)}


def main() -> int:
    """Write or check every generated file, as the command line asks."""
    texts = {
        name: path.read_text(encoding="utf-8")
        for name, path in (("head", CHART_README_HEAD), ("values", VALUES))
    }
    pages = {
        REASONS_PAGE: reasons_page(),
        CLI_PAGE: cli_page(),
        CHART_README: readme(**texts),
        SIMULATED_PICTURE: simulated_picture(),
        PLAYED: SIMULATED.read_text(encoding="utf-8"),
        **{
            CHART_DIRECTORY / "dashboards" / f"{name}.json": dashboard_json(name)
            for name in declared()
        },
    }
    return write_or_check({**generated_files(), **pages}, command="python -m tools.generate")


if __name__ == "__main__":
    sys.exit(main())
