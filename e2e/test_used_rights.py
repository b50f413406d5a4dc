"""After all other scenarios: was every right that the chart grants made use of? What was never used
should not be granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.release import NAMESPACE, Release
from lab.kubernetes.kind import KindLab

_USER = f"system:serviceaccount:{NAMESPACE}:tidegate"
# An object is read back when somebody else's write came between, by the same code for each kind:
# which kinds that hits is chance.
_READ_BACK = {
    ("tidegate.io", kind, "get")
    for kind in ("brokerbandwidthpolicies", "businesstiers", "quotaoverrides")
}
# Read only for policies whose tiers may live in other namespaces.
_FOR_OTHER_NAMESPACES = {("", "namespaces", "get")}
# Rights in namespaces with rollups; an upgrade that ends those takes the rights away a moment
# before the Pods that made use of them.
_FOR_ROLLUPS = {
    ("", "configmaps", "get"),
    ("", "persistentvolumeclaims", "get"),
    *(("batch", "jobs", verb) for verb in ("list", "create", "delete")),
}


@pytest.mark.usefixtures("scene")
def test_every_granted_right_was_needed(kubernetes: Cluster, release: Release) -> None:
    if not isinstance(kubernetes, KindLab):
        pytest.skip("only the API servers of the lab write down who asked for what")
    calls = [json.loads(line) for line in kubernetes.calls_path.read_text().splitlines()]
    mine = [call for call in calls if call["user"]["username"] == _USER]
    roles = [
        json.loads(kubernetes.kubectl("get", *role, "-o", "json"))
        for role in (
            ("clusterrole", "tidegate"),
            ("role", "tidegate-leases", f"--namespace={NAMESPACE}"),
        )
    ]

    granted = {right for role in roles for right in _granted(role)}
    used = {_asked(call) for call in mine if "objectRef" in call}
    assert release.restarts() == 0
    assert used & _READ_BACK
    assert granted - used - _READ_BACK - _FOR_OTHER_NAMESPACES == set()
    # Granted and refused all the same: in a namespace that is going, and by an API server that was
    # just killed and knows no role yet.
    refused = {
        _asked(call)
        for call in mine
        if call["responseStatus"].get("code") == 403 and "objectRef" in call
    }
    assert refused - granted - _FOR_ROLLUPS == set()


def _granted(role: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for rule in role["rules"]:
        yield from product(rule["apiGroups"], rule["resources"], rule["verbs"])


def _asked(call: dict[str, Any]) -> tuple[str, str, str]:
    on = call["objectRef"]
    parts = [on["resource"], *([on["subresource"]] if "subresource" in on else [])]
    return on.get("apiGroup", ""), "/".join(parts), call["verb"]
