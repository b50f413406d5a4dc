"""examples/metrics/: each is loaded by a real Prometheus over real brokers and their JMX exporters,
and gives every series that control needs.

The Prometheus Operator's monitors are translated as it does: their relabelling works on labels of
Kubernetes' service discovery, which the targets get here by hand.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import process
from lab.cache import RunDirectory
from lab.kafka import KafkaLab
from lab.network import free_port
from lab.packages import PROMETHEUS, unpacked
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget
from tidegate.prometheus.probe import Found, Probe
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, Preset, PrometheusServer

pytestmark = pytest.mark.integration

CHECKOUT = Path(__file__).parents[3]
EXAMPLES = CHECKOUT / "examples" / "metrics"
BROKERS = frozenset({1, 2, 3})
ALL = {"egress", "ingress", "fetch_rate", "produce_rate", "fetch_throttle", "produce_throttle"}
PLAIN = "prometheus.yaml"
# The monitors: where their endpoints are, the matchers of a policy, and the labels with a broker's id.
MONITORS: dict[str, tuple[Callable[[Any], list[Any]], dict[str, str], tuple[str, ...]]] = {
    "podmonitor-strimzi.yaml": (
        lambda spec: spec["podMetricsEndpoints"],
        {"namespace": "kafka", "cluster": "orders"},
        ("broker", "pod"),
    ),
    "servicemonitor.yaml": (
        lambda spec: spec["endpoints"],
        {"cluster": "orders"},
        ("broker",),
    ),
}


def example(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def node_exporter() -> Iterator[str]:
    """The address of a real node_exporter; it stands in for that of every broker's machine."""
    port = free_port("127.0.0.1")
    with RunDirectory() as run:
        argv = [
            str(unpacked(PROMETHEUS) / "usr/bin/prometheus-node-exporter"),
            f"--web.listen-address=127.0.0.1:{port}",
            "--collector.disable-defaults",
            "--collector.netdev",
        ]
        exporter = process.start("node-exporter", argv, log_path=run.path / "node.log")

        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "node_exporter", timeout_seconds=30, processes=[exporter])
        yield f"127.0.0.1:{port}"
        exporter.stop()


def found(
    prometheus: PrometheusLab,
    preset: Preset,
    matchers: Mapping[str, str],
    label: str | None = None,
) -> dict[str, Found]:
    """What the preset's queries find, once no NIC is missing any more."""
    settings = MetricsSettings(
        PrometheusServer(prometheus.url),
        preset,
        brokers=None if label is None else BrokerLabel(label),
        matchers=matchers,
        stale_after_seconds=30,
    )
    probe = Probe(settings)

    def whole() -> dict[str, Found] | None:
        answers = {one.name: one for one in probe.look(BROKERS)}
        return answers if all(one.brokers == BROKERS for one in answers.values()) else None

    answers = wait_until(whole, "every series of each broker", timeout_seconds=60, poll_seconds=1)
    probe.close()
    assert answers is not None
    return answers


@pytest.fixture(scope="module")
def servers(kafka: KafkaLab, topic: str, node_exporter: str) -> Iterator[dict[str, PrometheusLab]]:
    """A Prometheus for each example, by its name. All start at once: each needs two scrapes, which
    the examples have five seconds apart.
    """
    made = {PLAIN: plain(kafka, node_exporter)}
    for name, (endpoints, _, _) in MONITORS.items():
        monitor = example(name)
        (endpoint,) = endpoints(monitor["spec"])
        configuration = {"scrape_configs": [scrape_config(monitor, endpoint, kafka)]}
        targets = [ScrapeTarget("kafka", address) for address in kafka.jmx_targets.values()]
        made[name] = PrometheusLab(targets, configuration=configuration)
    with ExitStack() as stack:
        with ThreadPoolExecutor(len(made)) as pool:
            starts = [pool.submit(server.__enter__) for server in made.values()]
        for server, start in zip(made.values(), starts, strict=True):
            if start.exception() is None:
                stack.push(server)
        for start in starts:
            start.result()
        yield made


def plain(kafka: KafkaLab, node_exporter: str) -> PrometheusLab:
    text = (EXAMPLES / PLAIN).read_text(encoding="utf-8")
    for broker, address in kafka.jmx_targets.items():
        text = text.replace(f"kafka-{broker}.example:9404", address)
    text = re.sub(r"kafka-[0-9]\.example:9100", node_exporter, text)
    assert ".example" not in text
    targets = [ScrapeTarget("kafka", address) for address in kafka.jmx_targets.values()]
    targets += [ScrapeTarget("node", node_exporter)] * len(targets)
    return PrometheusLab(targets, configuration=yaml.safe_load(text))


def test_the_plain_configuration_gives_every_series(servers: dict[str, PrometheusLab]) -> None:
    promtool = unpacked(PROMETHEUS) / "usr/bin/promtool"
    subprocess.run([promtool, "check", "config", EXAMPLES / PLAIN], check=True)
    answers = found(servers[PLAIN], Preset.NODE_EXPORTER, {"cluster": "orders"})
    assert answers.keys() == ALL
    found(servers[PLAIN], Preset.JMX_EXPORTER, {"cluster": "orders"})


def scrape_config(
    monitor: Mapping[str, Any], endpoint: Mapping[str, Any], kafka: KafkaLab
) -> dict[str, Any]:
    """The scrape_config that the Prometheus Operator makes, with targets instead of discovery."""

    def snake(name: str) -> str:
        return re.sub("[A-Z]", lambda sign: f"_{sign[0].lower()}", name)

    discovered = {
        "__meta_kubernetes_namespace": "kafka",
        "__meta_kubernetes_pod_label_strimzi_io_cluster": "orders",
    }
    return {
        "job_name": f"{monitor['kind']}/{monitor['metadata']['name']}",
        "metrics_path": endpoint["path"],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "relabel_configs": [
            {snake(name): value for name, value in one.items()} for one in endpoint["relabelings"]
        ],
        "static_configs": [
            {
                "targets": [address],
                "labels": {
                    **discovered,
                    "__meta_kubernetes_pod_name": f"orders-kafka-{broker}",
                },
            }
            for broker, address in kafka.jmx_targets.items()
        ],
    }


@pytest.mark.parametrize("name", MONITORS, ids=["pods", "services"])
def test_the_monitors_relabelling_names_every_broker(
    servers: dict[str, PrometheusLab], name: str
) -> None:
    _, matchers, labels = MONITORS[name]
    for label in labels:
        answers = found(servers[name], Preset.JMX_EXPORTER, matchers, label)
        assert answers.keys() == ALL


def test_the_rules_are_those_that_the_brokers_of_these_tests_run_with() -> None:
    rules = example("jmx-exporter-rules.yaml")
    lab = CHECKOUT / "lab" / "kafka_files" / "jmx_rules.yml"
    assert rules == yaml.safe_load(lab.read_text(encoding="utf-8"))
    config_map, kafka = yaml.safe_load_all(
        (EXAMPLES / "strimzi-metrics-config.yaml").read_text(encoding="utf-8")
    )
    reference = kafka["spec"]["kafka"]["metricsConfig"]["valueFrom"]["configMapKeyRef"]
    assert reference["name"] == config_map["metadata"]["name"]
    assert yaml.safe_load(config_map["data"][reference["key"]]) == rules
