"""One namespace in which a scenario declares, edits and deletes objects, and waits for what they
come to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from e2e.cluster import Cluster
from e2e.declared import Document
from lab.process import CommandFailed, wait_until

_TIMEOUT_SECONDS = 60.0


class Scenario:
    """One namespace. Objects are named as kubectl names them: `bbp/orders`, `bt/gold`,
    `qo/more`.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def declare(self, *documents: Document) -> None:
        """Apply them as Argo CD does: server-side, as a manager of their own."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        self.kubectl("apply", "--server-side", "--field-manager=git", "-f", "-", input=content)

    def credentials(self, name: str, keys: Mapping[str, str]) -> None:
        """Make a Secret that policies of this namespace may name."""
        literals = (f"--from-literal={key}={value}" for key, value in keys.items())
        self.kubectl("create", "secret", "generic", name, *literals)
        self.kubectl("label", "secret", name, "tidegate.io/credentials=true")

    def refusal(self, document: Document) -> str:
        """What the API server says when it refuses the object; AssertionError when it takes it."""
        try:
            self.kubectl(
                "apply",
                "--server-side",
                "--field-manager=git",
                "-f",
                "-",
                input=json.dumps(document),
            )
        except CommandFailed as refused:
            return refused.stderr
        raise AssertionError(f"{document['kind']} {document['metadata']['name']} was accepted")

    def edit(self, name: str, spec: Mapping[str, Any]) -> None:
        """Merge into the object's spec."""
        self.kubectl("patch", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self, *names: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        """Delete them and wait until they are gone."""
        self.kubectl(
            "delete",
            *names,
            f"--timeout={timeout_seconds:g}s",
            timeout_seconds=timeout_seconds + 10,
        )

    def delete_namespace(self, *, timeout_seconds: float = 90.0) -> None:
        """Delete the namespace with all that is in it, and wait until it is gone."""
        deadline = f"--timeout={timeout_seconds:g}s"
        self._cluster.kubectl(
            "delete",
            "namespace",
            self.namespace,
            "--ignore-not-found",
            deadline,
            timeout_seconds=timeout_seconds + 10,
        )

    def waits_for(
        self,
        name: str,
        condition: str,
        status: str = "True",
        *,
        reason: str | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> Mapping[str, str]:
        """Return once the object's condition has this status, and reason if one is given, for its
        newest generation; the condition.
        """
        seen = partial(
            self._condition,
            name,
            {"type": condition, "status": status, **({"reason": reason} if reason else {})},
        )
        return wait_until(
            seen,
            f"{condition}={status} of {name}",
            timeout_seconds=timeout_seconds,
            poll_seconds=0.3,
        )

    def read(self, name: str) -> Mapping[str, Any]:
        """The whole object."""
        return dict(json.loads(self.kubectl("get", name, "-o", "json")))

    def events(self) -> str:
        """The events of the namespace, reason and message a line."""
        columns = "-o=custom-columns=REASON:.reason,MESSAGE:.note"
        return self.kubectl("get", "events.events.k8s.io", columns)

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> str:
        """kubectl in this namespace."""
        return self._cluster.kubectl(
            *arguments,
            f"--namespace={self.namespace}",
            input=input,
            timeout_seconds=timeout_seconds,
        )

    def _condition(self, name: str, wanted: Mapping[str, str]) -> Mapping[str, str]:
        found = self.read(name)
        conditions = (found.get("status") or {}).get("conditions") or ()
        of_newest = (
            entry
            for entry in conditions
            if entry.get("observedGeneration") == found["metadata"]["generation"]
        )
        return next((entry for entry in of_newest if wanted.items() <= entry.items()), {})
