"""What an API server of the lab writes down of the calls made to it: its audit policy. A test reads which rights were made use of."""

from __future__ import annotations


def calls_policy() -> dict[str, object]:
    """Every finished call of a ServiceAccount outside kube-system, without its content."""
    quiet = {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]}
    told = {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived", "ResponseStarted"]}
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [quiet, told]}
