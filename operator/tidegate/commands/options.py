"""Options that several commands share, each worded once, alone and in groups.

A group is a dataclass whose fields are options. A command that is declared with `command` has a
group as one parameter, and its options are those of the command.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tidegate.commands.context import command_context
from tidegate.commands.output import OutputFormat
from tidegate.errors import InvalidResource
from tidegate.settings import PolicyBounds

# groups of options in the help of a command
KUBERNETES, KAFKA, OUTPUT = "Policy and Kubernetes", "Kafka and credentials", "Output"

Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        parser=OutputFormat.of,
        metavar="table|yaml|json|jsonpath=TEMPLATE",
        help="Output format.",
        rich_help_panel=OUTPUT,
    ),
]


class DryRun(StrEnum):
    """kubectl's own words; `client` = nothing is sent."""

    NONE = "none"
    CLIENT = "client"


DryRunOption = Annotated[
    DryRun,
    typer.Option(
        "--dry-run",
        metavar="none|client",
        help="client: print the request without sending it (with -o yaml: to apply later).",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Apply the changes. Without this, only show them.")
]
Interval = Annotated[
    int, typer.Option("--interval", min=1, max=3600, help="Seconds between updates.")
]
TIME = "A time (2026-11-21T11:00:00Z), or how long ago (90s, 15m, 2h, 3d)."
Debug = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks of errors.", rich_help_panel=OUTPUT)
]
CredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for ZooKeeper; if "
        "it names none, username and password, or ca.crt, tls.crt and tls.key.",
        rich_help_panel=KAFKA,
    ),
]
ClientCredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--client-credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for the brokers.",
        rich_help_panel=KAFKA,
    ),
]
MetricsCredentialsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-credentials-file",
        metavar="FILE",
        help="YAML file with the keys of the Secrets that the policy names for Prometheus.",
        rich_help_panel=KAFKA,
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

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        metavar="FILE",
        help="Path to the kubeconfig file.",
        rich_help_panel=KUBERNETES,
    ),
]
KubeContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig.",
        rich_help_panel=KUBERNETES,
    ),
]
AsUser = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="USER",
        help="User or ServiceAccount (system:serviceaccount:NAMESPACE:NAME) to impersonate in "
        "Kubernetes; needs the permission to impersonate.",
        rich_help_panel=KUBERNETES,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """The options that name a policy. With `file` Kubernetes is not asked at all.

    Raises InvalidResource if two of them contradict each other.
    """

    policy: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAMESPACE/]POLICY",
            help="BrokerBandwidthPolicy; required if there are several.",
        ),
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|DIR|-",
            help="Read the policy and its tiers from YAML instead of Kubernetes; a directory means "
            "every .yaml and .yml in it, - is standard input. May be repeated.",
            rich_help_panel=KUBERNETES,
        ),
    ] = None
    policy_name: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="[NAMESPACE/]NAME",
            help="BrokerBandwidthPolicy, as an option instead of an argument.",
            rich_help_panel=KUBERNETES,
        ),
    ] = None
    kubeconfig: Kubeconfig = None
    context: KubeContext = None
    as_user: AsUser = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of the policy. Unset: commands that only read search all namespaces, "
            "commands that write use the context's.",
            rich_help_panel=KUBERNETES,
        ),
    ] = None
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces",
            "-A",
            help="Search all namespaces for the policy, the default without --namespace.",
            rich_help_panel=KUBERNETES,
        ),
    ] = False

    def __post_init__(self) -> None:
        if None not in (self.policy, self.policy_name) and self.policy != self.policy_name:
            raise InvalidResource(
                f"Two policies are named, {self.policy} and --policy {self.policy_name}; nothing "
                "was done. Name one."
            )
        if self.all_namespaces and self.namespace is not None:
            raise InvalidResource(
                f"--all-namespaces and --namespace {self.namespace} contradict each other; nothing "
                "was done. Give one of them."
            )

    @property
    def name(self) -> str | None:
        """The policy that was named, by the argument or by the option; None = none was."""
        return self.policy or self.policy_name

    @property
    def place(self) -> str | None:
        """The namespace that Kubernetes is asked about: the one given, or the policy's as it is
        named; None = all.
        """
        return self.namespace or (self.name or "").rpartition("/")[0] or None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Addresses and credentials from the command line; None = those of the policy."""

    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            envvar="TIDEGATE_ZOOKEEPER",
            metavar="HOST:PORT,.../CHROOT",
            help="ZooKeeper of the cluster, with its chroot if Kafka uses one.",
            rich_help_panel=KAFKA,
        ),
    ] = None
    credentials_file: CredentialsFile = None
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            envvar="TIDEGATE_BOOTSTRAP_SERVERS",
            metavar="HOST:PORT,...",
            help="Kafka brokers to connect to.",
            rich_help_panel=KAFKA,
        ),
    ] = None
    client_credentials_file: ClientCredentialsFile = None
    ledger_topic: Annotated[
        str | None,
        typer.Option(
            "--ledger-topic",
            metavar="TOPIC",
            help="Topic with the ledger, if quotas are written through the brokers. Unset: "
            "__tidegate_ledger. Together with --bootstrap-servers it identifies the cluster "
            "without a policy.",
            rich_help_panel=KAFKA,
        ),
    ] = None


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
            and not self.policy.file
            and self.policy.name is None
        )


@dataclass(frozen=True, slots=True)
class BoundsOptions:
    """What policies may make a process use."""

    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="PATTERN",
            help="Host that policies may use for brokers, token endpoints, ZooKeeper, Prometheus "
            "and buckets: HOST, *.DOMAIN or either with :PORT; may be repeated. Unset: any.",
        ),
    ] = None
    unlabelled_secret: Annotated[
        list[str] | None,
        typer.Option(
            "--unlabelled-secret",
            metavar="NAME",
            help="Name of Secrets that policies may use without the label "
            "tidegate.io/credentials=true; may be repeated, and * means any.",
        ),
    ] = None

    @property
    def given(self) -> PolicyBounds:
        return PolicyBounds(
            allowed_hosts=tuple(self.allowed_host or ()),
            unlabelled_secrets=tuple(self.unlabelled_secret or ()),
        )


_BY_POSITION, _BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class Without(frozenset[str]):
    """The fields of a group that are not options of a command."""


# a policy that is changed in Kubernetes, so that it is in no file, and in the namespace that was
# named or the context's, so that nobody changes one that they do not think of
StoredPolicy = Annotated[PolicyOptions, Without({"file", "policy_name", "all_namespaces"})]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: the options of each group instead of it, and --debug.

    Its first parameter is the CommandContext, and all others are given by name.
    """
    taken = inspect.Parameter("typer_context", _BY_POSITION, annotation=typer.Context)
    debug = inspect.Parameter("debug", _BY_NAME, default=False, annotation=Debug)
    own = _parameters(function)[1:]
    declared = [taken, *(option for one in (*own, debug) for option in _options(one))]

    @functools.wraps(function)
    def with_options(typer_context: typer.Context, **given: Any) -> None:
        around = command_context(typer_context, debug=given["debug"])
        function(around, **{one.name: _value(one, given) for one in own})

    with_options.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in declared}
    return with_options


def _parameters(callable_: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(callable_, eval_str=True).parameters.values())


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The parameter itself, or the options of its group and of the groups in that."""
    group, left_out = _group(parameter)
    if group is None:
        return [parameter]
    return [
        option.replace(kind=_BY_NAME)
        for one in _parameters(group)
        if one.name not in left_out
        for option in _options(one)
    ]


def _value(parameter: inspect.Parameter, given: dict[str, Any]) -> Any:
    """What the parameter gets of the options that were given."""
    group, left_out = _group(parameter)
    if group is None:
        return given[parameter.name]
    return group(
        **{one.name: _value(one, given) for one in _parameters(group) if one.name not in left_out}
    )


def _group(parameter: inspect.Parameter) -> tuple[Callable[..., Any] | None, Without]:
    kind, *said = get_args(parameter.annotation) or (parameter.annotation,)
    left_out = next((one for one in said if isinstance(one, Without)), Without())
    return (kind if is_dataclass(kind) and isinstance(kind, type) else None), left_out
