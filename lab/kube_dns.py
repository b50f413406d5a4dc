"""The names of a cluster: CoreDNS, built from the Go module proxy, as a process of the lab in the node's namespace."""

from __future__ import annotations

from pathlib import Path

from lab import process
from lab.go_module import GoModule
from lab.kubernetes.api import KubeApi
from lab.network import Namespace
from lab.process import Process

COREDNS_VERSION = "v1.12.1"

COREDNS = GoModule(
    program="coredns",
    directory=Path(__file__).parent / "coredns_binary",
    package="github.com/coredns/coredns",
    title="CoreDNS",
    announcement=f"building CoreDNS {COREDNS_VERSION} from the Go module proxy; two to three minutes on two cores, only this once",
    packages_compiled=1300,
)


def start_resolver(api: KubeApi, namespace: Namespace, directory: Path) -> Process:
    """Answer for the Services of `api` at the namespace's address, port 53; every other name is unknown."""
    directory.mkdir(parents=True)
    (directory / "Corefile").write_text(
        f"""cluster.local {{
    bind {namespace.address}
    kubernetes {{
        kubeconfig {api.kubeconfig}
    }}
    errors
}}
. {{
    bind {namespace.address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    argv = ["nsenter", f"--net=/run/netns/{namespace.name}", str(COREDNS.binary()), "-conf", str(directory / "Corefile")]
    return process.start("coredns", argv, log_path=directory / "coredns.log")
