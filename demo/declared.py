"""What the user declares in the demo: the files of `examples/`, with this run's addresses and contract filled in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from demo.script import USER
from lab.kafka import KafkaLab

EXAMPLES = Path(__file__).parent.parent / "examples"
# What experiment 1 needs of them; the others show what else can be declared.
_FILES = ("00-namespace.yaml", "00-policy.yaml", "10-tiers.yaml")
POLICY = "demo"
NAMESPACE = "streaming"


def declared_resources(kafka: KafkaLab, contract_bytes_per_second: int) -> str:
    """The examples as YAML documents for `kubectl apply -f -`; only addresses and alice's contract differ from the files."""
    documents = [document for name in _FILES for document in _documents(EXAMPLES / name)]
    for document in documents:
        if document["kind"] == "BrokerBandwidthPolicy":
            document["spec"]["kafka"]["bootstrapServers"] = kafka.bootstrap_servers
            document["spec"]["kafka"]["zookeeper"]["connect"] = kafka.zookeeper_connect
        if document["kind"] == "BusinessTier":
            _fill_in_contract(document, contract_bytes_per_second)
    return yaml.safe_dump_all(documents, sort_keys=False)


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    return (document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document)


def _fill_in_contract(tier: dict[str, Any], contract_bytes_per_second: int) -> None:
    for member in tier["spec"]["members"]:
        if member.get("user") == USER:
            member["contract"]["perPartition"]["produce"] = str(contract_bytes_per_second)
