"""What parts of the lab are made of, downloaded and built before any of them starts: from nothing that takes many minutes."""

from __future__ import annotations

from lab.archive_recording import record_archives
from lab.helm import HELM
from lab.kafka_jars import kafka_jars
from lab.kubernetes.tools import KUBE_NODE, kube_binary
from lab.packages import PROMETHEUS, unpacked


def prepare(cluster: str | None = None) -> None:
    """For all that needs no Pods, or for a `cluster` of "node" or "kind" instead, with the brokers and Prometheus beside it.

    Raises LabError with what could not be had.
    """
    record_archives(kafka_jars())
    unpacked(PROMETHEUS)
    HELM.binary()
    match cluster:
        case None:
            kube_binary()
        case "node":
            _prepare_node()
        case _:
            _prepare_kind()


def _prepare_node() -> None:
    from lab.kube_dns import COREDNS
    from lab.node_parts import node_files
    from lab.pause_image import pause_image

    KUBE_NODE.binary()
    COREDNS.binary()
    node_files()
    pause_image()


def _prepare_kind() -> None:
    from lab.kind_store import node_data
    from lab.kubernetes.kind_image import KIND

    KIND.binary()
    node_data()
