"""What the user declares in experiments 2 and 3: `throttling.yaml` with this run's addresses and source of the load filled in."""

import json
from pathlib import Path
from typing import Any

import yaml

from lab.kafka import KafkaLab
from lab.prometheus import PrometheusLab

RESOURCES = Path(__file__).parent.parent / "throttling.yaml"


def declared_resources(kafka: KafkaLab, prometheus: PrometheusLab) -> str:
    """The file as YAML documents for `kubectl apply -f -`."""
    documents = [document for document in yaml.safe_load_all(RESOURCES.read_text(encoding="utf-8")) if document]
    for document in documents:
        if document["kind"] == "BrokerBandwidthPolicy":
            _fill_in(document["spec"], kafka, prometheus)
    return yaml.safe_dump_all(documents, sort_keys=False)


def limit_patch(egress_limit: int) -> str:
    """The merge patch that sets the limit of every broker, in bytes per second."""
    return json.dumps({"spec": {"brokers": {"egressLimit": f"{egress_limit // 1_000_000}M"}}})


def _fill_in(spec: dict[str, Any], kafka: KafkaLab, prometheus: PrometheusLab) -> None:
    spec["kafka"]["bootstrapServers"] = kafka.bootstrap_servers
    spec["kafka"]["zookeeper"]["connect"] = kafka.zookeeper_connect
    spec["metrics"]["prometheus"]["url"] = prometheus.url
    if kafka.network is None:
        spec["metrics"]["preset"] = "JmxExporter"
