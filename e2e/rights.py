"""Which rights a role grants, and which the operator asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from e2e.release import NAMESPACE
from lab.kubernetes.kind import KindLab

Right = tuple[str, str, str]  # API group, resource, verb
_USER = f"system:serviceaccount:{NAMESPACE}:tidegate"


def calls_of_operator(kind: KindLab) -> list[Mapping[str, Any]]:
    """Its calls about objects, as the API server wrote them down."""
    calls = [json.loads(line) for line in kind.calls_path.read_text().splitlines()]
    return [call for call in calls if call["user"]["username"] == _USER and "objectRef" in call]


def granted(role: Mapping[str, Any]) -> Iterator[Right]:
    """The rights that a Role or ClusterRole grants."""
    for rule in role["rules"]:
        yield from product(rule["apiGroups"], rule["resources"], rule["verbs"])


def asked(call: Mapping[str, Any]) -> Right:
    """The right that a call needs."""
    on = call["objectRef"]
    parts = [on["resource"], *([on["subresource"]] if "subresource" in on else [])]
    return on.get("apiGroup", ""), "/".join(parts), call["verb"]


def was_refused(call: Mapping[str, Any]) -> bool:
    """Whether the operator had no right to make it."""
    return bool(call["responseStatus"].get("code") == 403)
