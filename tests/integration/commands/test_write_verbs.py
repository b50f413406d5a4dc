"""`tidegate pause`, `resume` and `override create` as processes on a real API server, with rights
that people have: what the server keeps, and that it refuses what may not be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.process import patience
from tests.unit.resources.documents import policy, tier

pytestmark = pytest.mark.integration

PAUSED = "tidegate.io/paused"


class Person:
    """Somebody with a kubeconfig and the command."""

    def __init__(self, api: KubeApi, namespace: str, kubeconfig: object) -> None:
        self.api, self.namespace, self.kubeconfig = api, namespace, kubeconfig

    def tidegate(self, *arguments: str, is_named: bool = True) -> tuple[int, str, str]:
        """Run it; in a namespace that `is_named`, or else in that of the kubeconfig's context."""
        place = ("-n", self.namespace) if is_named else ()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tidegate", "--kubeconfig", str(self.kubeconfig)),
                *(*arguments, *place),
            ],
            capture_output=True,
            text=True,
            timeout=patience(60),
        )
        return done.returncode, done.stdout, done.stderr

    def stored(self, kind: str) -> list[dict[str, Any]]:
        listed = self.api.kubectl("get", kind, "-n", self.namespace, "-o", "json")
        return list(json.loads(listed)["items"])


@pytest.fixture
def person(crds: KubeApi, namespace: str) -> Person:
    """On-call: may read everything, patch policies and create overrides, and no more."""
    for document in (policy(), tier()):
        document["metadata"]["namespace"] = namespace
        if "policyRef" in document["spec"]:
            document["spec"]["policyRef"] = {"name": "orders"}
        crds.kubectl("create", "-f", "-", input=json.dumps(document))
    kinds = ["brokerbandwidthpolicies", "businesstiers", "quotaoverrides"]
    rules = [
        {"apiGroups": ["tidegate.io"], "resources": kinds, "verbs": ["get", "list"]},
        {"apiGroups": ["tidegate.io"], "resources": kinds[:1], "verbs": ["patch"]},
        {"apiGroups": ["tidegate.io"], "resources": kinds[2:], "verbs": ["create"]},
    ]
    kubeconfig = service_account_kubeconfig(
        crds, "on-call", namespace=namespace, rules=rules, granted_in=[namespace]
    )
    return Person(crds, namespace, kubeconfig)


def test_a_pause_is_kept_by_the_server_until_it_is_ended(person: Person) -> None:
    code, out, err = person.tidegate("pause", "orders", "--dry-run=client", "-o", "yaml")
    assert code == 2, err
    assert PAUSED not in (person.stored("bbp")[0]["metadata"].get("annotations") or {})
    # what was printed can be applied as it is
    person.api.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=out)
    code, _, err = person.tidegate("pause", "orders")
    assert code == 0, err
    assert person.stored("bbp")[0]["metadata"]["annotations"][PAUSED] == "true"
    code, _, err = person.tidegate("resume", "orders")
    assert code == 0, err
    assert PAUSED not in (person.stored("bbp")[0]["metadata"].get("annotations") or {})
    assert person.tidegate("confirm-removal", "orders", "--yes")[0] == 1


def test_without_a_named_namespace_that_of_the_context_counts(person: Person) -> None:
    path = Path(str(person.kubeconfig))
    given = yaml.safe_load(path.read_text())
    context = given["contexts"][0]["context"]
    for namespace, code in ((None, 1), (person.namespace, 0)):
        given["contexts"][0]["context"] = {**context, "namespace": namespace or "default"}
        path.write_text(yaml.safe_dump(given))
        done, _, err = person.tidegate("pause", "orders", is_named=False)
        annotations = person.stored("bbp")[0]["metadata"].get("annotations") or {}
        assert (done, PAUSED in annotations) == (code, not code), err
        assert ('in the namespace "default"' in err) == bool(code)  # where this person may not look


def test_an_override_is_created_once_and_as_it_was_printed(person: Person) -> None:
    member = tier()["spec"]["members"][0]
    target = ["--user", member["user"]] if "user" in member else []
    target += ["--client-id", member["clientId"]] if "clientId" in member else []
    asked = ["override", "create", *target, "--exempt", "--for", "2h"]
    asked += ["--reason", "backfill", "--name", "night"]
    code, out, err = person.tidegate(*asked, "--dry-run=client", "-o", "yaml")
    assert code == 2, err
    assert person.stored("qo") == []
    person.api.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=out)
    code, _, err = person.tidegate(*asked)
    assert code == 0, err
    (made,) = person.stored("qo")
    printed = yaml.safe_load(out)["spec"]
    assert {**made["spec"], "expiresAt": ""} == {**printed, "expiresAt": ""}
    code, _, err = person.tidegate(*asked)
    assert code == 1
    assert "night" in err
