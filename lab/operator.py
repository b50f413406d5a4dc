"""How the lab starts the operator of this checkout."""

import sys
from pathlib import Path

LISTENS_ON = "127.0.0.1"


def console_command(
    kubeconfig: Path, namespace: str, *, port: int, audit_file: Path, lease_namespace: str = ""
) -> list[str]:
    """`tidegate console` on one namespace, with the operator's audit trail.

    `lease_namespace` "" = Leases are in the namespace that it shows.
    """
    return [
        *(sys.executable, "-m", "tidegate", "console", "--kubeconfig", str(kubeconfig)),
        *("--namespace", namespace, "--host", LISTENS_ON, "--port", str(port)),
        *("--lease-namespace", lease_namespace or namespace),
        *("--audit-file", str(audit_file)),
    ]


def operator_command(
    kubeconfig: Path, namespace: str, *, lease_namespace: str = "", metrics_port: int = 0
) -> list[str]:
    """`tidegate run` on one namespace. Port 0 = any free one; the log has which.

    `lease_namespace` "" = Leases are in the namespace that it watches.
    """
    return [
        *(sys.executable, "-m", "tidegate", "run", "--kubeconfig", str(kubeconfig)),
        *("--namespace", namespace, "--lease-namespace", lease_namespace or namespace),
        *("--listen-address", LISTENS_ON),
        *("--liveness-port", "0", "--metrics-port", str(metrics_port)),
    ]
