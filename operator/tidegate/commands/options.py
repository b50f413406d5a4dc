"""Options that several commands share, each worded once."""

from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands.output import OutputFormat

Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print: a table for people, or YAML or JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        envvar="TIDEGATE_ZOOKEEPER",
        metavar="HOST:PORT,.../CHROOT",
        help="The cluster's ZooKeeper, with its chroot if Kafka uses one.",
    ),
]
CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the policy's ZooKeeper Secret (username and password, or ca.crt, tls.crt and tls.key).",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", envvar="TIDEGATE_BOOTSTRAP_SERVERS", metavar="HOST:PORT,...", help="Kafka brokers to ask for leaders."
    ),
]
ClientCredentialsFile = Annotated[
    Path | None,
    typer.Option("--client-credentials-file", metavar="FILE", help="YAML file with the keys of the policy's Kafka client Secret."),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="Read the policy and its tiers from YAML instead of from Kubernetes; a directory means every .yaml and .yml in it, - is "
        "standard input. May be repeated.",
    ),
]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="How to reach Kubernetes.")]
KubeContext = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Which context of the kubeconfig.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Where the policy lives.")]
PolicyName = Annotated[
    str | None, typer.Option("--policy", metavar="[NAMESPACE/]NAME", help="Which BrokerBandwidthPolicy; needed only if there are several.")
]
