"""The options that name a policy and its Kafka cluster, declared once for every command that takes them.

A command has one parameter `asked` and the decorator `takes_policy_and_cluster`; on the command line it has the options instead.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import typer

from tidegate.commands import options
from tidegate.commands.cluster_access import AccessOptions
from tidegate.commands.inputs import PolicyOptions

_PARAMETER = "asked"
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which policy a person meant, and what they said of its cluster."""

    policy: PolicyOptions
    access: AccessOptions

    @property
    def names_no_policy(self) -> bool:
        """Whether ZooKeeper alone was named, so that neither Kubernetes nor files are asked."""
        return self.access.zookeeper is not None and not self.policy.files and self.policy.policy is None


def takes_policy_and_cluster(command: Command) -> Command:
    """The command with the options below in place of its parameter `asked`."""
    shared, own = inspect.signature(_asked).parameters, inspect.signature(command).parameters

    @functools.wraps(command)
    def with_options(context: typer.Context, **given: object) -> None:
        asked = _asked(**{name: given.pop(name) for name in shared})  # type: ignore[arg-type]
        command(context, **{_PARAMETER: asked}, **given)

    merged = [each for name, one in own.items() for each in (shared.values() if name == _PARAMETER else (one,))]
    with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in merged}
    return with_options


def _asked(
    *,
    file: options.Files = None,
    policy: options.PolicyName = None,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    namespace: options.Namespace = None,
    zookeeper: options.ZooKeeper = None,
    credentials_file: options.CredentialsFile = None,
    bootstrap_servers: options.BootstrapServers = None,
    client_credentials_file: options.ClientCredentialsFile = None,
) -> Asked:
    return Asked(
        PolicyOptions(files=file or (), policy=policy, kubeconfig=kubeconfig, context=kube_context, namespace=namespace),
        AccessOptions(
            zookeeper=zookeeper,
            credentials_file=credentials_file,
            bootstrap_servers=bootstrap_servers,
            client_credentials_file=client_credentials_file,
        ),
    )
