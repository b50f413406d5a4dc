"""What `kubectl get` shows of objects of several kinds: the columns of the CRDs, in kubectl's form.

A test puts the same objects to a real API server and compares what the real kubectl prints.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonpath

from tidegate.resources.kinds import GROUP, KINDS, Column, Kind

_GAP = 3


def kubectl_get(objects: Iterable[Mapping[str, Any]], *, age: str) -> str:
    """The tables of all kinds in the order of `KINDS`, all objects of this age."""
    tables = [
        _table(kind, found, age)
        for kind in KINDS
        if (found := [one for one in objects if one["kind"] == kind.kind])
    ]
    return "\n".join(tables)


def _table(kind: Kind, objects: Sequence[Mapping[str, Any]], age: str) -> str:
    columns = [column for column in kind.columns if not column.priority]
    heads = ["NAME", *(column.name.upper() for column in columns)]
    rows = [
        [
            f"{kind.kind.lower()}.{GROUP}/{one['metadata']['name']}",
            *(age if column.type == "date" else _cell(column, one) for column in columns),
        ]
        for one in sorted(objects, key=lambda one: str(one["metadata"]["name"]))
    ]
    widths = [max(map(len, cells)) + _GAP for cells in zip(heads, *rows, strict=True)]
    return "".join(
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in (heads, *rows)
    )


def _cell(column: Column, shown: Mapping[str, Any]) -> str:
    found = jsonpath.findall(f"${column.json_path}", json.loads(json.dumps(shown)))
    return str(found[0]) if found else ""
