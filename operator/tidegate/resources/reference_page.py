"""Renders the reference of the custom resources for people: fields, types, bounds, meaning and rules, as Markdown.

Made from the same schema that the API server enforces, so that the page cannot promise something else.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.resources.crd import object_schema
from tidegate.resources.kinds import API_VERSION, CATEGORY, Kind
from tidegate.resources.structural_schema import Schema

_INTRODUCTION = f"""<!-- Generated from operator/tidegate/resources; do not edit: change the models and run `make generate`. -->
# The custom resources

Group and version `{API_VERSION}`, all namespaced, category `{CATEGORY}`. References stay inside the namespace. The spec is yours:
the operator never writes it, not even defaults; "if unset" names what it acts on where a field is left out. The status is the operator's.

The CRDs need Kubernetes 1.34 or later: earlier API servers estimate the cost of comparing byte rates as if each could be a text
of three megabytes, and refuse the CRD.

A **byte rate** is a whole number of bytes per second from 1024 to 9007199254740991, written as an integer or as a text with one
suffix: `52428800`, `50Mi`, `50M`, `1250M`, `3Gi`. `k M G T` are powers of 1000, `Ki Mi Gi Ti` powers of 1024.

What an object says wrong by itself is refused when it is applied, with the sentence listed under "must hold". What needs another
object (a missing policy or topic, the same user and client id in two tiers or twice in one) becomes a condition instead.
"""

_UNSET = re.compile(r" ?\bUnset(?: means(?: that)?|:) (.+?)\.(?= |$)")


def reference_page(kinds: Iterable[Kind]) -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *(line for kind in kinds for line in _kind(kind))]).rstrip() + "\n"


def _kind(kind: Kind) -> Iterator[str]:
    schema = object_schema(kind)
    yield f"## {kind.kind} (`{kind.short_name}`)\n\n{kind.summary}\n"
    yield "### spec\n\n| field | type | if unset | meaning |\n|---|---|---|---|"
    for name, node, needed in _fields(schema["properties"]["spec"], ""):
        unset, meaning = _unset_and_meaning(node["description"])
        yield f"| `{name}` | {_type(node)} | {'**required**' if needed else _cell(unset)} | {_cell(meaning)} |"
    yield "\n### status\n\n| field | type | meaning |\n|---|---|---|"
    yield from (
        f"| `{name}` | {_type(node)} | {_cell(node['description'])} |" for name, node, _ in _fields(schema["properties"]["status"], "")
    )
    yield ""
    yield "### Must hold\n\n| where | rule |\n|---|---|"
    yield from _rules(schema)
    yield f"\n### Columns of `kubectl get {kind.short_name}`\n\n| column | meaning |\n|---|---|"
    yield from (f"| {c.name}{' (`-o wide`)' if c.priority else ''} | {c.description} |" for c in kind.columns)
    yield ""


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field with its whole name, its schema and whether it is required; a field before what is in it."""
    for name, node in schema.get("properties", {}).items():
        below = f"{path}.{name}".removeprefix(".")
        yield below, node, name in schema.get("required", [])
        yield from _fields(node.get("items", node), f"{below}[]" if "items" in node else below)


def _unset_and_meaning(description: str) -> tuple[str, str]:
    """What a description says of the field when it is left out (empty where it says nothing), and the rest of it."""
    unset = _UNSET.search(description)
    return ("", description) if unset is None else (unset[1], description.replace(unset[0], "").strip())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
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
    is_rate = node.get("x-kubernetes-int-or-string", False)
    yield from ((path, rule) for rule in node.get("x-kubernetes-validations", []) if not is_rate)
    for name, below in node.get("properties", {}).items():
        yield from _rules_below(below, f"{path}.{name}".removeprefix("."))
    if "items" in node:
        yield from _rules_below(node["items"], f"{path}[]")
