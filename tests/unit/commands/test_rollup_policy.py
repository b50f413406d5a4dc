"""The policy of a rollup on a laptop: what files say, and what a status in them adds."""

from __future__ import annotations

import io
import json
from pathlib import Path

from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import policy_of, terms_of

AROUND = CommandContext(out=io.StringIO(), err=io.StringIO(), now_seconds=lambda: 0.0)


def write(folder: Path, *, status: dict[str, object] | None) -> str:
    """A policy with one member whose contract depends on leaders, as `kubectl get -o yaml` prints it."""

    def manifest(kind: str, name: str, **more: object) -> dict[str, object]:
        return {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "streaming"}, **more}

    rates = {"perPartition": {"fetch": "1M"}}
    member = {"name": "etl", "user": "etl", "topics": ["orders"], "contract": rates}
    kafka = {"bootstrapServers": "kafka-1:9092", "quotaStore": "ZooKeeper", "zookeeper": {"connect": "zk-1:2181"}}
    policy = manifest("BrokerBandwidthPolicy", "shop", spec={"mode": "Enforce", "kafka": kafka})
    spec = {"policyRef": {"name": "shop"}, "level": "L3", "members": [member], "throttledRates": {"perPartition": {"fetch": "100k"}}}
    tier = manifest("BusinessTier", "bulk", spec=spec, **({} if status is None else {"status": status}))
    file = folder / "shop.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, tier]}))
    return str(file)


def test_without_files_there_is_no_policy() -> None:
    assert policy_of(AROUND, None) is None
    assert terms_of(None) is None


def test_a_contract_that_depends_on_leaders_is_known_from_a_status(tmp_path: Path) -> None:
    published: dict[str, object] = {"members": [{"name": "etl", "state": "Contract", "quota": {"fetch": 3_000_000}}]}
    known: tuple[tuple[dict[str, object] | None, dict[str, float]], ...] = ((published, {"fetch": 3_000_000.0}), (None, {}))
    for status, rates in known:
        terms = terms_of(policy_of(AROUND, [write(tmp_path, status=status)]))
        assert terms is not None
        [etl] = terms.members
        assert (terms.key, etl.client, terms.promised(etl, brokers=3)) == ("streaming/shop", ("etl", ""), rates)
