"""The ConfigMap through which rollup Jobs tell the operator what they found: read by one, added to by the others.

Several Jobs may add to it (a person fills a gap while one of the operator's runs), so a writer reads, adds and writes with compare-and-set.
What is in it is known to `controller_logic.rollup_result`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from controller_logic.model import Usage
from controller_logic.rollup_result import RESULT_KEY, RollupResult, decode, encode, result_name
from controller_logic.rollup_schedule import Window, merged
from tidegate.errors import Conflict
from tidegate.kube.api import JsonObject, Kubernetes
from tidegate.kube.rollup_jobs import labels, owner

_ATTEMPTS = 5


def read_result(kubernetes: Kubernetes, policy: Mapping[str, Any]) -> tuple[RollupResult | None, str | None]:
    """What the Jobs of `policy` wrote down, or why it is not used; neither where nothing is written yet. Raises what the read raises."""
    metadata = policy["metadata"]
    return _result_in(kubernetes.read_config_map(metadata["namespace"], result_name(metadata["name"])), policy)


def record_result(
    kubernetes: Kubernetes,
    policy: Mapping[str, Any],
    *,
    published: Iterable[Window],
    empty: Iterable[Window] = (),
    usage: Usage | None,
    now_ms: int,
    valid_until_ms: int,
) -> RollupResult:
    """Add windows, and figures where they are newer than those that stand there; what cannot be read is written over.

    `policy` is the whole object: the ConfigMap goes with it. Raises Conflict when others were faster again and again, else what
    `Kubernetes.write_config_map` raises.
    """
    added = RollupResult(policy["metadata"]["uid"], now_ms, valid_until_ms, tuple(published), usage, tuple(empty))
    for attempts_left in reversed(range(_ATTEMPTS)):
        namespace, name = policy["metadata"]["namespace"], result_name(policy["metadata"]["name"])
        present = kubernetes.read_config_map(namespace, name)
        result = _with(_result_in(present, policy)[0], added)
        try:
            kubernetes.write_config_map(namespace, _body(policy, result, present))
        except Conflict:
            if not attempts_left:
                raise
        else:
            return result
    raise AssertionError("the last attempt either returns or raises")


def _result_in(found: JsonObject | None, policy: Mapping[str, Any]) -> tuple[RollupResult | None, str | None]:
    if found is None:
        return None, None
    try:
        result = decode((found.get("data") or {}).get(RESULT_KEY, ""))
    except ValueError as error:
        return None, str(error)
    if result.policy_uid != policy["metadata"]["uid"]:
        return None, "it was written for another policy of the same name"
    return result, None


def _with(before: RollupResult | None, added: RollupResult) -> RollupResult:
    if before is None:
        return added
    figures = before
    if added.usage is not None and (before.usage is None or added.usage.until_seconds >= before.usage.until_seconds):
        figures = added
    return replace(
        figures,
        published=merged([*before.published, *added.published]),
        empty=merged([*before.empty, *added.empty]),
    )


def _body(policy: Mapping[str, Any], result: RollupResult, present: JsonObject | None) -> JsonObject:
    name = policy["metadata"]["name"]
    metadata: JsonObject = {"name": result_name(name), "labels": labels(name), "ownerReferences": [owner(policy)]}
    if present is not None:
        metadata["resourceVersion"] = present["metadata"]["resourceVersion"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RESULT_KEY: encode(result)}}
