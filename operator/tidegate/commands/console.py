"""`tidegate console`: pages that show what is throttled, why, and what would be, in a browser."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, find_policy, metrics_of, observed, opened_cluster
from tidegate.commands.options import AccessOptions, PolicyOptions
from tidegate.commands.output import Page
from tidegate.errors import Unauthorized, UserActionRequired
from tidegate.settings import UNBOUNDED
from tidegate_logic.model import Topology
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.console.server import ConsoleSettings
    from tidegate.kube.api import LeaseRecord
    from tidegate.observe.declared import Declared
    from tidegate.observe.metrics_watch import Reader
    from tidegate.prometheus.settings import MetricsSettings

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
EVENING = Path(__file__).with_name("evening-backfill.yaml")  # examples/simulate has it, too
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class _Looker:
    """Looks at a policy's Kafka cluster as `tidegate explain` does, one look at a time."""

    around: CommandContext
    named: PolicyOptions
    access: AccessOptions
    lock: threading.Lock

    def topology(self, policy_key: str) -> Topology:
        source = self._source(policy_key)
        with self.lock, opened_cluster(self.around, source, self.access) as cluster:
            seen = observed(self.around, source, cluster).observation
        if seen.topology is None:
            words = seen.missing[0][1] if seen.missing else "the brokers did not answer"
            raise UserActionRequired(Reason.BROKERS_UNREACHABLE, words)
        return seen.topology

    def explain(self, policy_key: str, user: str, client_id: str) -> Mapping[str, Any]:
        from tidegate.commands.explain import explained

        with self.lock:
            found: Mapping[str, Any] = explained(
                self.around, self._source(policy_key), self.access, user, client_id
            )
        return found

    def _source(self, policy_key: str) -> PolicySource:
        namespace, _, name = policy_key.partition("/")
        named = self.named
        return find_policy(
            self.around,
            PolicyOptions(
                policy=name,
                kubeconfig=named.kubeconfig,
                context=named.context,
                as_user=named.as_user,
                namespace=namespace,
            ),
        )


@options.command
def console(
    around: CommandContext,
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="With --play: files of `tidegate simulate`. Unset: a busy evening on three "
            "brokers.",
            show_default=False,
        ),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="Play a simulated load, without any cluster.")
    ] = False,
    speed: Annotated[
        int,
        typer.Option(
            "--speed", min=1, max=60, help="With --play: seconds of the load in one second."
        ),
    ] = 20,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace to show; may be repeated. Unset: all.",
        ),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    as_user: options.AsUser = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to listen on; the default is reachable from this machine only."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")
    ] = 8090,
    browser_host: Annotated[
        list[str] | None,
        typer.Option(
            "--browser-host",
            metavar="NAME",
            help="Another host name that browsers may use; may be repeated. Names of this "
            "machine's loopback are always allowed.",
        ),
    ] = None,
    forwarded_allow_ips: Annotated[
        list[str] | None,
        typer.Option(
            "--forwarded-allow-ips",
            metavar="ADDRESS|NETWORK",
            help="TLS-terminating proxy whose X-Forwarded-Proto is trusted; may be repeated. The "
            "cookie is Secure then. Unset: 127.0.0.1.",
        ),
    ] = None,
    lease_namespace: options.LeaseNamespace = None,
    bounds: options.BoundsOptions,
    login: Annotated[
        bool,
        typer.Option(
            "--login",
            help="Ask users for a token of the Kubernetes cluster, and show each what their own "
            "permissions let them list. Required with any --host that is not loopback.",
        ),
    ] = False,
    audit_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="Audit trail for the page History; may be repeated, once for each replica.",
        ),
    ] = None,
    delay_queues: Annotated[
        bool,
        typer.Option(
            "--delay-queues/--no-delay-queues",
            help="Show delay queues, where the cluster serves them and the account may list them.",
        ),
    ] = True,
    metrics_credentials_file: options.MetricsCredentialsFile = None,
    credentials_file: options.CredentialsFile = None,
    client_credentials_file: options.ClientCredentialsFile = None,
) -> None:
    """Serve the web console until Ctrl-C.

    It shows what is throttled now and why, single members, what-if scenarios and the audit trail.
    Policies, tiers and overrides come from Kubernetes by watch, loads from each policy's
    Prometheus. The console writes nothing, and its pages load nothing from other origins. It
    queries Kafka only when someone opens quota levels or runs a what-if. With --play, it shows a
    simulated load instead, as it would look in a real cluster. Requires the extra
    `tidegate[console]`.
    """
    if bounds.given != UNBOUNDED:
        around.policy_bounds = bounds.given
    listen = (host, port, tuple(browser_host or ()), tuple(forwarded_allow_ips or _LOOPBACK[:1]))
    if files and not play:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"{files[0]} is a file to play, which needs --play. Nothing was started. Use "
            f"tidegate console --play {files[0]}, or leave the file out.",
        )
    if play:
        if login or namespace or audit_file:
            raise UserActionRequired(
                Reason.INVALID_SPEC,
                "--play shows a simulated load, so --login, --namespace and --audit-file have no "
                "meaning with it. Nothing was started. Leave them out.",
            )
        _play(around, files or [str(EVENING)], speed, listen)
        return
    if host not in _LOOPBACK and not login:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"--host {host} lets other machines in, and without --login everybody who reaches it "
            "sees every policy and tier. Nothing was started. Add --login, or keep the default and "
            "use kubectl port-forward.",
        )
    _serve(
        around,
        tuple(namespace or ()),
        PolicyOptions(kubeconfig=kubeconfig, context=kube_context, as_user=as_user),
        AccessOptions(
            credentials_file=credentials_file, client_credentials_file=client_credentials_file
        ),
        metrics_file=metrics_credentials_file,
        trails=tuple(audit_file or ()),
        login=login,
        delay_queues=delay_queues,
        lease_namespace=lease_namespace or _namespace_of_the_pod(),
        listen=listen,
    )


def _serve(
    around: CommandContext,
    namespaces: Sequence[str],
    named: PolicyOptions,
    access: AccessOptions,
    *,
    metrics_file: Path | None,
    trails: Sequence[Path],
    login: bool,
    delay_queues: bool,
    lease_namespace: str,
    listen: tuple[str, int, tuple[str, ...], tuple[str, ...]],
) -> None:
    from tidegate.commands.audit import line_words
    from tidegate.observe.secrets_and_hosts import refuse_other_hosts

    with _libraries():
        from tidegate.console.access import Access
        from tidegate.console.server import Console, ConsoleSettings, serve
        from tidegate.console.source import LiveSource
    from tidegate.kube.api import DELAY_QUEUES
    from tidegate.kube.client import KubernetesClient, connect
    from tidegate.kube.lease import LeaseAddress
    from tidegate.prometheus.client import PrometheusClient

    try:
        api_client = connect(named.kubeconfig, named.context, named.as_user)
    except Unauthorized as error:
        raise Unauthorized(
            error.what, advice=f"{error.advice} Or add --play, which needs no cluster."
        ) from error
    kubernetes = KubernetesClient(api_client, identity="tidegate-console")

    def metrics_settings(declared: Declared) -> MetricsSettings | None:
        # a policy's author chooses the address, and the login that is sent there is the console's
        refuse_other_hosts(declared.policy.key, declared.spec, around.bounds)
        source = PolicySource(declared, kubernetes, bounds=around.bounds)
        return metrics_of(source, metrics_file)

    def open_reader(declared: Declared) -> Reader | None:
        settings = metrics_settings(declared)
        return None if settings is None else around.open_reader(settings)

    def open_client(declared: Declared) -> PrometheusClient | None:
        settings = metrics_settings(declared)
        return None if settings is None else PrometheusClient(settings.server)

    def read_lease(policy_key: str) -> LeaseRecord | None:
        address = LeaseAddress.of_policy(policy_key, operator_namespace=lease_namespace)
        return kubernetes.read_lease(address.namespace, address.name)

    source = LiveSource(
        kubernetes,
        api_client,
        namespaces,
        open_reader,
        # viewers who log in have rights of their own, and this process's login is not theirs
        cluster=None if login else _Looker(around, named, access, threading.Lock()),
        open_client=open_client,
        read_lease=read_lease if lease_namespace else None,
        trails=trails,
        without=() if delay_queues else (DELAY_QUEUES,),
    )
    settings = ConsoleSettings(*listen)
    access_of = Access(connect(named.kubeconfig, named.context)) if login else None
    source.start()
    with closing(source):
        _require_port(settings)
        _say_where(around, settings)
        serve(Console(source, access_of, line_words, settings))


def _play(
    around: CommandContext,
    files: Sequence[str],
    speed: int,
    listen: tuple[str, int, tuple[str, ...], tuple[str, ...]],
) -> None:
    """Serve a load of the console's own process: there is nothing that needs a login."""
    from tidegate.commands.simulation_file import read_simulation

    with _libraries():
        from tidegate.commands.played_load import PlayedSource, moments
        from tidegate.console.server import Console, ConsoleSettings, serve
    given = read_simulation(files, policy=None, standard_input=around.standard_input)
    for warning in given.warnings:
        Page(around.err).warn(warning)
    begun_seconds = time.time()
    scenario = replace(given.scenario, epoch_seconds=begun_seconds)
    settings = ConsoleSettings(*listen)
    _require_port(settings)
    Page(around.err).say("Simulating the load ...")
    passes = moments(scenario, given.policy, given.tiers)
    source = PlayedSource(passes, begun_seconds, speed, waits_for_viewer=True)
    _say_where(around, settings)
    serve(Console(source, settings=settings, player=source))


@contextmanager
def _libraries() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"The console's libraries are not installed ({error.name}).",
            advice="Install the extra tidegate[console]; `make setup` in a clone does.",
        ) from error


def _require_port(settings: ConsoleSettings) -> None:
    """Raises UserActionRequired if the port cannot be had."""
    from tidegate.metrics import cannot_listen

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise cannot_listen(
                settings.host, settings.port, option="--port", error=error
            ) from error


def _say_where(around: CommandContext, settings: ConsoleSettings) -> None:
    address = f"http://{settings.host}:{settings.port}/"
    Page(around.err).say(f"The console is at {address} until Ctrl-C.")


def _namespace_of_the_pod() -> str:
    """Empty where it is in no Pod: then the pages show no holder of a Lease."""
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
