"""Options that several commands share, each worded once."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands.inputs import AccessOptions, PolicyOptions
from tidegate.commands.output import OutputFormat
from tidegate.errors import InvalidResource
from tidegate.settings import PolicyBounds

Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        parser=OutputFormat.of,
        metavar="table|yaml|json|jsonpath=TEMPLATE",
        help="Output format.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        envvar="TIDEGATE_ZOOKEEPER",
        metavar="HOST:PORT,.../CHROOT",
        help="ZooKeeper of the cluster, with its chroot if Kafka uses one.",
    ),
]
CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for ZooKeeper; if "
        "it names none, username and password, or ca.crt, tls.crt and tls.key.",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        envvar="TIDEGATE_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Kafka brokers to connect to.",
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
        help="Topic with the ledger, if quotas are written through the brokers. Unset: "
        "__tidegate_ledger. Together with --bootstrap-servers it identifies the cluster "
        "without a policy.",
    ),
]
MetricsCredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for Prometheus.",
    ),
]
LeaseNamespace = Annotated[
    str | None,
    typer.Option(
        "--lease-namespace",
        envvar="TIDEGATE_LEASE_NAMESPACE",
        metavar="NAME",
        help="Namespace of the operator and its Leases, the same for all replicas. Unset: that "
        "of the Pod.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="PATTERN",
        help="Host that policies may use for brokers, ZooKeeper, Prometheus and buckets: HOST, "
        "*.DOMAIN or either with :PORT; may be repeated. Unset: any.",
    ),
]
UnlabelledSecrets = Annotated[
    list[str] | None,
    typer.Option(
        "--unlabelled-secret",
        metavar="NAME",
        help="Name of Secrets that policies may use without the label "
        "tidegate.io/credentials=true; may be repeated, and * means any.",
    ),
]


def bounds_of_options(
    allowed_hosts: list[str] | None, unlabelled_secrets: list[str] | None
) -> PolicyBounds:
    """What policies may make a process use, by the two options above."""
    return PolicyBounds(
        allowed_hosts=tuple(allowed_hosts or ()), unlabelled_secrets=tuple(unlabelled_secrets or ())
    )


Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="Read the policy and its tiers from YAML instead of Kubernetes; a directory means "
        "every .yaml and .yml in it, - is standard input. May be repeated.",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="Path to the kubeconfig file."
    ),
]
KubeContext = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
AsUser = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="USER",
        help="User or ServiceAccount (system:serviceaccount:NAMESPACE:NAME) to impersonate in "
        "Kubernetes; needs the permission to impersonate.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the policy.")
]
AllNamespaces = Annotated[
    bool,
    typer.Option(
        "--all-namespaces",
        "-A",
        help="Search all namespaces for the policy, the default without --namespace.",
    ),
]
Policy = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAMESPACE/]POLICY",
        help="BrokerBandwidthPolicy; required if there are several.",
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="[NAMESPACE/]NAME",
        help="BrokerBandwidthPolicy, as an option instead of an argument.",
    ),
]


# The options that name a policy, with or without its Kafka cluster, declared once for every command
# that takes them. A command has one parameter `asked` or `named` and one of the decorators
# `takes_policy_and_cluster` and `takes_policy`, which replace the parameter by the options.


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
    """The command with the options of `_asked` in place of its parameter `asked`."""
    return _with_options(command, "asked", _asked)


def takes_policy(command: Command) -> Command:
    """The command with the options of `_named` in place of its parameter `named`."""
    return _with_options(command, "named", _named)


def _with_options(command: Command, parameter: str, made_of: Callable[..., object]) -> Command:
    shared, own = inspect.signature(made_of).parameters, inspect.signature(command).parameters

    @functools.wraps(command)
    def with_options(context: typer.Context, **given: object) -> None:
        made = made_of(**{name: given.pop(name) for name in shared})
        command(context, **{parameter: made}, **given)

    merged = [
        each
        for name, one in own.items()
        for each in (shared.values() if name == parameter else (one,))
    ]
    with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in merged}
    return with_options


def _asked(
    *,
    policy: Policy = None,
    file: Files = None,
    policy_name: PolicyName = None,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    as_user: AsUser = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    zookeeper: ZooKeeper = None,
    credentials_file: CredentialsFile = None,
    bootstrap_servers: BootstrapServers = None,
    client_credentials_file: ClientCredentialsFile = None,
    ledger_topic: LedgerTopic = None,
) -> CommandOptions:
    return CommandOptions(
        _policy_options(
            files=file,
            policy=policy,
            named=policy_name,
            kubeconfig=kubeconfig,
            context=kube_context,
            as_user=as_user,
            namespace=namespace,
            all_namespaces=all_namespaces,
        ),
        AccessOptions(
            zookeeper=zookeeper,
            credentials_file=credentials_file,
            bootstrap_servers=bootstrap_servers,
            client_credentials_file=client_credentials_file,
            ledger_topic=ledger_topic,
        ),
    )


def _named(
    *,
    policy: Policy = None,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    as_user: AsUser = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
) -> PolicyOptions:
    # the namespace in a policy's full name is the only one to list
    full = None if all_namespaces else (policy or "").rpartition("/")[0] or None
    return _policy_options(
        policy=policy,
        kubeconfig=kubeconfig,
        context=kube_context,
        as_user=as_user,
        namespace=namespace or full,
        all_namespaces=all_namespaces,
    )


def _policy_options(
    *,
    policy: str | None,
    named: str | None = None,
    files: Sequence[str] | None = None,
    kubeconfig: Path | None,
    context: str | None,
    as_user: str | None,
    namespace: str | None,
    all_namespaces: bool,
) -> PolicyOptions:
    """The options above as one value; `named` is `--policy`, beside the argument `policy`.

    Raises InvalidResource where two of them contradict each other.
    """
    if None not in (policy, named) and policy != named:
        raise InvalidResource(
            f"Two policies are named, {policy} and --policy {named}; nothing was done. Name one."
        )
    if all_namespaces and namespace is not None:
        raise InvalidResource(
            f"--all-namespaces and --namespace {namespace} contradict each other; nothing was "
            "done. Give one of them."
        )
    return PolicyOptions(
        files=files or (),
        policy=policy or named,
        kubeconfig=kubeconfig,
        context=context,
        as_user=as_user,
        namespace=namespace,
    )
