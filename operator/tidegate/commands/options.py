"""Options that several commands share, each worded once."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands.inputs import AccessOptions, PolicyOptions
from tidegate.commands.output import OutputFormat

Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output", "-o", help="How to print: a table for people, or YAML or JSON for programs."
    ),
]
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
        help="YAML file with the keys of the Secrets that the policy names for ZooKeeper; where it "
        "names none, username and password, or ca.crt, tls.crt and tls.key.",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        envvar="TIDEGATE_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Kafka brokers to ask for leaders.",
    ),
]
ClientCredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--client-credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for the brokers.",
    ),
]
LedgerTopic = Annotated[
    str | None,
    typer.Option(
        "--ledger-topic",
        metavar="TOPIC",
        help="The topic with the ledger of a cluster whose quotas go through its brokers; without "
        "it __tidegate_ledger. With --bootstrap-servers, that alone names the cluster.",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="Read the policy and its tiers from YAML instead of from Kubernetes; a directory "
        "means every .yaml and .yml in it, - is standard input. May be repeated.",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="How to reach Kubernetes."
    ),
]
KubeContext = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Which context of the kubeconfig.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Where the policy lives.")
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="[NAMESPACE/]NAME",
        help="Which BrokerBandwidthPolicy; needed only if there are several.",
    ),
]


# The options that name a policy and its Kafka cluster, declared once for every command that takes
# them. A command has one parameter `asked` and the decorator `takes_policy_and_cluster`, which
# replaces the parameter by the options.


_PARAMETER = "asked"
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The policy that was named, and how to reach its cluster."""

    policy: PolicyOptions
    access: AccessOptions

    @property
    def names_no_policy(self) -> bool:
        """Whether the cluster alone was named, so that neither Kubernetes nor files are asked."""
        access = self.access
        by_brokers = access.bootstrap_servers is not None and access.ledger_topic is not None
        return (
            (access.zookeeper is not None or by_brokers)
            and not self.policy.files
            and self.policy.policy is None
        )


def takes_policy_and_cluster(command: Command) -> Command:
    """The command with the options below in place of its parameter `asked`."""
    shared, own = inspect.signature(_asked).parameters, inspect.signature(command).parameters

    @functools.wraps(command)
    def with_options(context: typer.Context, **given: object) -> None:
        asked = _asked(**{name: given.pop(name) for name in shared})  # type: ignore[arg-type]
        command(context, **{_PARAMETER: asked}, **given)

    merged = [
        each
        for name, one in own.items()
        for each in (shared.values() if name == _PARAMETER else (one,))
    ]
    with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in merged}
    return with_options


def _asked(
    *,
    file: Files = None,
    policy: PolicyName = None,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    namespace: Namespace = None,
    zookeeper: ZooKeeper = None,
    credentials_file: CredentialsFile = None,
    bootstrap_servers: BootstrapServers = None,
    client_credentials_file: ClientCredentialsFile = None,
    ledger_topic: LedgerTopic = None,
) -> CommandOptions:
    return CommandOptions(
        PolicyOptions(
            files=file or (),
            policy=policy,
            kubeconfig=kubeconfig,
            context=kube_context,
            namespace=namespace,
        ),
        AccessOptions(
            zookeeper=zookeeper,
            credentials_file=credentials_file,
            bootstrap_servers=bootstrap_servers,
            client_credentials_file=client_credentials_file,
            ledger_topic=ledger_topic,
        ),
    )
