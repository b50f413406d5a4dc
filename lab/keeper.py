"""The process that keeps a standing lab up: `python -m lab.keeper <name> <wanted as JSON>`.

See `lab.standing`. It opens the parts as any test would, records where they answer, and waits;
SIGTERM closes them in order.
"""

import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.errors import LabError, say
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.kind import KindLab
from lab.process import ProcessIdentity
from lab.prometheus import monitoring
from lab.standing import StandingLab, Wanted, cluster_tools, directory_of, kafka_tools, write_tools
from lab.zookeeper import ZooKeeperLab


def main(name: str, wanted_json: str) -> int:
    """Keep the lab until SIGTERM; 1 when a part does not start."""
    signal.signal(signal.SIGTERM, _leave)
    lab = StandingLab(name, ProcessIdentity.own(), Wanted.of(json.loads(wanted_json)), addresses={})
    lab.write()
    try:
        with ExitStack() as stack:
            addresses = open_parts(lab.wanted, stack, tools=directory_of(name) / "bin")
            StandingLab(name, lab.keeper, lab.wanted, addresses=addresses).write()
            while True:
                signal.pause()
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1


def open_parts(wanted: Wanted, stack: ExitStack, *, tools: Path) -> dict[str, dict[str, Any]]:
    """Open the wanted parts on `stack`, Kafka first; part -> what its clients need to know.

    Commands for them are put into `tools`.
    """
    addresses: dict[str, dict[str, Any]] = {"shell": {}}
    settings: dict[str, Any] = {
        "brokers": wanted.brokers,
        "namespaces": wanted.namespaces,
        "users": wanted.users,
        "server_properties": wanted.server_properties,
    }
    if {"kafka", "prometheus", "kind"} & set(wanted.parts):
        say("kafka", f"starting ZooKeeper and {wanted.brokers} brokers")
        kafka = stack.enter_context(KafkaLab(**settings))
        addresses["kafka"] = {
            **_broker_addresses(kafka, wanted),
            "zookeeper_connect": kafka.zookeeper_connect,
        }
        addresses["shell"] |= {
            "KAFKA": kafka.bootstrap_servers,
            "ZOOKEEPER": kafka.zookeeper_connect,
        }
        write_tools(tools, kafka_tools(tools.parent))
        if "prometheus" in wanted.parts:
            say("prometheus", "starting")
            prometheus = stack.enter_context(
                monitoring(kafka, scrape_interval_seconds=wanted.scrape_interval_seconds)
            )
            addresses["prometheus"] = {"url": prometheus.url}
            addresses["shell"]["PROMETHEUS"] = prometheus.url
        if "kind" in wanted.parts:
            say("kind", "starting a Kubernetes with one node")
            cluster = stack.enter_context(KindLab(kafka.bridge))
            addresses["kind"] = {
                "kubeconfig": str(cluster.kubeconfig),
                "namespace": cluster.namespace.name,
                "directory": str(cluster.directory),
            }
            addresses["shell"]["KUBECONFIG"] = str(cluster.kubeconfig)
            write_tools(tools, cluster_tools(cluster))
    if "kraft" in wanted.parts:
        say("kraft", f"starting {wanted.brokers} brokers that are their own controllers")
        kraft = stack.enter_context(KraftLab(**settings))
        addresses["kraft"] = _broker_addresses(kraft, wanted)
        addresses["shell"]["KRAFT"] = kraft.bootstrap_servers
    if "zookeeper" in wanted.parts:
        addresses["zookeeper"] = {"connect": stack.enter_context(ZooKeeperLab()).connect}
    if "kube-api" in wanted.parts:
        say("kube-api", "starting etcd, kube-apiserver and kube-controller-manager")
        api = stack.enter_context(KubeApi())
        addresses["kube-api"] = {"kubeconfig": str(api.kubeconfig)}
        addresses["shell"].setdefault("KUBECONFIG", str(api.kubeconfig))
        write_tools(tools, cluster_tools(api))
    return addresses


def _broker_addresses(kafka: BrokersLab, wanted: Wanted) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "sasl_bootstrap_servers": kafka.sasl_bootstrap_servers,
        "passwords": {user: kafka.password(user) for user in wanted.users},
        "cluster_id": kafka.cluster_id,
        "jmx": kafka.jmx_targets,
        "client_namespace": kafka.client_namespace.name if kafka.client_namespace else None,
        "directory": str(kafka.run.path),
    }


def _leave(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the closing
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
