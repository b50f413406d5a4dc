"""Starts one operator process: kopf watches and answers probes, the manager does the rest.

The manager has threads of its own. Handlers put the object into the cache and return. Only this
module imports kopf.
"""

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import kopf
import structlog
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.watching import WatchingError
from kubernetes.client import ApiClient
from kubernetes.client.rest import should_bypass_proxies

from tidegate.control.audit.trail import open_audit_trail
from tidegate.control.manager import Manager
from tidegate.control.report.reporter import KubernetesPublisher, Reporter
from tidegate.control.runtime import (
    KINDS,
    Clock,
    OperatorContext,
    OptionalKind,
    VitalSigns,
)
from tidegate.control.sharing import Sharing, group_of
from tidegate.errors import NotFound, TidegateError, Unreachable
from tidegate.kube.api import BANDWIDTH_BUDGETS, DELAY_QUEUES, ResourceKind
from tidegate.kube.cache import Change, ResourceCache
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.events import EventRecorder
from tidegate.kube.lease import LeaseAddress, LeaseList, LeftLeases, SharedLease
from tidegate.kube.status import StatusWriter
from tidegate.metrics import MetricsServer, Telemetry, cannot_listen, set_up_logging
from tidegate.observe.connections import import_libraries, open_cluster
from tidegate.settings import Settings
from tidegate.tracing import open_tracing
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

# New objects before a collection, and collections of one age before one of the next. A pass over
# 5000 entities makes some 100,000 objects that die without the collector's help; with Python's own
# 700 it would look through all of them again and again.
THRESHOLDS = (50_000, 20, 20)


def tune_collector() -> None:
    """Make garbage collection rare.

    Call once, when all that stays for ever (modules, models, handlers) has been made.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def tune_threads() -> None:
    """Let the interpreter change threads ten times as often as by default.

    A call to Kubernetes wants the interpreter many times. With a hundred threads at work, each time
    may wait for all of them: half a second at the default of 5 ms, and Leases last 10 s.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


_SWITCH_SECONDS = 0.0005
DOMAIN = "tidegate.io"
_REPORTS_AT_ONCE = 4
_LOOK_FOR_MORE_SECONDS = 1.0


class Operator:
    """The parts of one process: Kubernetes, cache, manager and kopf's registry, not started yet."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self._api_client = connect(
            Path(settings.kubeconfig) if settings.kubeconfig else None, settings.context
        )
        kubernetes = KubernetesClient(self._api_client, settings.identity)
        writer = StatusWriter(kubernetes)
        self.cache = ResourceCache(self._changed, forget=writer.forget)
        self._hands = ThreadPoolExecutor(_REPORTS_AT_ONCE, "reports")
        recorder = EventRecorder(kubernetes)
        clock = Clock()
        self.vital_signs = VitalSigns(clock.monotonic, settings.stuck_after_seconds)
        publisher = KubernetesPublisher(
            writer,
            recorder,
            cache=self.cache,
            telemetry=self.telemetry,
            executor=self._hands,
            goes_on=self.vital_signs.goes_on,
        )
        self.audit = open_audit_trail(settings.audit_file, self.telemetry)
        self.tracing = open_tracing(settings.otlp_endpoint, settings.identity)
        self.context = OperatorContext(
            settings,
            clock,
            kubernetes,
            self.cache,
            Reporter(publisher),
            self.telemetry,
            self.vital_signs,
            open_cluster,
            audit=self.audit,
            tracing=self.tracing,
        )
        self._sharing = Sharing(
            kubernetes,
            settings.identity,
            namespace=settings.lease_namespace,
            group=group_of(settings.namespaces),
        )
        self._lease_list = LeaseList(kubernetes, settings.lease_namespace)
        self.manager = Manager(
            self.context,
            self._make_lease,
            share=self._sharing,
            lease_list=self._lease_list,
            delete_left_leases=LeftLeases(kubernetes, settings.lease_namespace).delete,
        )

    def registry(self) -> kopf.OperatorRegistry:
        """The handlers of the kinds that can be listed."""
        return registry_of(
            self.cache,
            self.vital_signs,
            lambda: connection_info(self._api_client),
            kinds=self.context.kinds,
        )

    def check_kinds_are_served(self) -> None:
        """Fill the cache for the first time.

        Raises NotFound with what to do when the CRDs are missing. Without that of DelayQueue or of
        BandwidthBudget, or without the right to list it, the operator goes on; the manager looks
        for it again and again.
        """
        self.context.optional_kinds[BANDWIDTH_BUDGETS] = OptionalKind()
        if self.settings.forwarders is None:
            log.info("DelayQueues are not served: there is no --forwarder-image")
        else:
            self.context.optional_kinds[DELAY_QUEUES] = OptionalKind()
        for kind in (*KINDS, *self.context.optional_kinds):
            try:
                self.context.relist(kind)
            except NotFound as error:
                raise _not_served(kind, error) from error

    def watches_others_than(self, watched: Collection[ResourceKind]) -> bool:
        """Whether a watch ended because some of these kinds, but only optional ones, cannot be
        listed any more.
        """
        try:
            for kind in watched:
                self.context.relist(kind)
        except TidegateError:
            return False
        return set(self.context.kinds) != set(watched)

    def why_watches_ended(self, error: Exception) -> TidegateError:
        """What a person can do about an answer that ends kopf: asked again, in our own words.

        kopf goes on after lost connections and old versions; a refusal (CRDs or rights that are
        gone) or a fault of the server that lasts for a minute ends it.
        """
        for kind in KINDS:
            try:
                self.context.kubernetes.list_all(kind, self.settings.namespaces)
            except NotFound as missing:
                return _not_served(kind, missing)
            except TidegateError as found:
                return found
        return Unreachable(
            Reason.KUBERNETES_UNREACHABLE,
            f"Kubernetes ended a watch ({error}) and answers again by now. Start again; until then "
            "quotas stay as they are.",
        )

    def stop(self) -> None:
        """Let every policy finish its batch.

        Reports that still wait then are dropped: the process would not end before them.
        """
        self.manager.stop()
        self._hands.shutdown(wait=False, cancel_futures=True)
        self.audit.close()
        self.tracing.close()

    def _changed(self, changes: Sequence[Change]) -> None:
        self.manager.changed(changes)

    def _make_lease(self, policy_key: str) -> SharedLease:
        address = LeaseAddress.of_policy(
            policy_key, operator_namespace=self.settings.lease_namespace
        )
        return SharedLease(
            self.context.kubernetes,
            self.settings.identity,
            address,
            acquire_delay_seconds=partial(self._sharing.acquire_delay_seconds, policy_key),
            listed=self._lease_list,
        )


def _not_served(kind: ResourceKind, error: NotFound) -> NotFound:
    return NotFound(
        error.reason,
        f"Kubernetes does not serve {kind.plural}.{kind.group}. Install the CRDs "
        f"(kubectl apply --server-side -f crds/) and start again.",
    )


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then return after a clean shutdown.

    Raises a TidegateError when it cannot start.
    """
    set_up_logging(settings.log_format, settings.log_level)
    operator = Operator(settings)
    operator.check_kinds_are_served()
    metrics = None
    if settings.metrics_port is not None:
        metrics = MetricsServer(
            operator.telemetry, port=settings.metrics_port, address=settings.listen_address
        )
        log.info("Metrics", endpoint=f"http://{settings.listen_address}:{metrics.port}/metrics")
    import_libraries()
    tune_collector()
    tune_threads()
    operator.manager.start()
    log.info(
        "Operator started",
        identity=settings.identity,
        namespaces=settings.namespaces or "all",
        lease_namespace=settings.lease_namespace,
    )
    try:
        _watch_until_stopped(operator)
    finally:
        operator.stop()
        if metrics is not None:
            metrics.close()
        log.info("Operator stopped", identity=settings.identity)


def _watch_until_stopped(operator: Operator) -> None:
    settings = operator.settings
    endpoint = (
        None
        if settings.liveness_port is None
        else liveness_endpoint(settings.listen_address, settings.liveness_port)
    )
    log.info("Liveness", endpoint=endpoint)
    is_told_to_stop = False
    while not is_told_to_stop:
        watched = operator.context.kinds
        try:
            is_told_to_stop = asyncio.run(_watch_kinds(operator, watched, endpoint))
        except (APIError, WatchingError, kopf.LoginError) as error:
            if not operator.watches_others_than(watched):
                raise operator.why_watches_ended(error) from error


async def _watch_kinds(
    operator: Operator, watched: Collection[ResourceKind], endpoint: str | None
) -> bool:
    """Run kopf until a signal ends it (True), or until there are more kinds to watch (False)."""
    settings, registry, of_kopf = operator.settings, operator.registry(), kopf_settings()
    loop, stop, ready = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    is_told_to_stop = has_more = False

    def told() -> None:
        nonlocal is_told_to_stop
        is_told_to_stop = True
        stop.set()
        # what kopf does after a signal, but not after a flag
        exit_seconds = of_kopf.process.ultimate_exiting_timeout or 0.0
        loop.call_later(exit_seconds, signal.pthread_kill, threading.get_ident(), signal.SIGKILL)

    async def look_for_more() -> None:
        nonlocal has_more
        await ready.wait()
        for number in (signal.SIGINT, signal.SIGTERM):
            # kopf's own handlers would not say afterwards why it ended
            loop.add_signal_handler(number, told)
        while set(operator.context.kinds) <= set(watched):
            await asyncio.sleep(_LOOK_FOR_MORE_SECONDS)
        has_more = True
        stop.set()

    @kopf.on.cleanup(registry=registry, id="stop")
    def let_go(**_: Any) -> None:
        stop.set()  # for the task of kopf that waits for it, which would delay its end by 5 s

    looks = asyncio.create_task(look_for_more())
    try:
        await kopf.operator(
            registry=registry,
            settings=of_kopf,
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=endpoint,
            # otherwise kopf asks for the login name of the user, whom the system need not know
            identity=settings.identity,  # type: ignore[arg-type]  # kopf does not export its type
            stop_flag=stop,
            ready_flag=ready,
        )
    finally:
        looks.cancel()
    return is_told_to_stop or not has_more


def liveness_endpoint(address: str, port: int) -> str:
    """The address at which kopf serves the probe.

    kopf takes port 0 for 80, so a free port is found here. Raises UserActionRequired when the port
    is taken: kopf would fail much later, without naming the port.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise cannot_listen(address, port, option="--liveness-port", error=error) from error
        port = int(probe.getsockname()[1])
    host = f"[{address}]" if family == socket.AF_INET6 else address
    return f"http://{host}:{port}/healthz"


def kopf_settings() -> kopf.OperatorSettings:
    """The settings of kopf: no Events of its own, every wait bounded (docs/architecture.md)."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = f"{DOMAIN}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=DOMAIN, v1=False)
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.execution.max_workers = 4
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 45
    return settings


class NoDiffBase(kopf.DiffBaseStorage):
    """Compares and keeps nothing: Tidegate has no handler that asks for differences.

    kopf would otherwise copy every object deeply at every event, which for a tier of hundreds of
    members costs more than all the rest.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def registry_of(
    cache: ResourceCache,
    vital_signs: VitalSigns,
    login: Callable[[], kopf.ConnectionInfo],
    kinds: Sequence[ResourceKind] = KINDS,
) -> kopf.OperatorRegistry:
    """The handlers of one process in a registry of its own."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login")
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return login()

    @kopf.on.probe(registry=registry, id="loops")
    def probe(**_: Any) -> str:
        failure_text = vital_signs.failure_text()
        if failure_text is not None:
            # any other error makes the request hang: kopf retries it for ever
            raise kopf.PermanentError(failure_text)
        return "alive"

    for kind in kinds:
        _watch(registry, cache, kind)
    return registry


def _watch(registry: kopf.OperatorRegistry, cache: ResourceCache, kind: ResourceKind) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
    async def take_over(event: kopf.RawEvent, **_: Any) -> None:
        changed = event["object"]
        if event["type"] == "DELETED":
            cache.remove(kind, changed["metadata"]["uid"])
        else:
            cache.put(kind, changed)


def connection_info(api_client: ApiClient) -> kopf.ConnectionInfo:
    """kopf's credentials from our own client's configuration: same identity and same proxy."""
    config = api_client.configuration
    is_direct = not config.proxy or should_bypass_proxies(config.host, config.no_proxy or "")
    header = (
        config.get_api_key_with_prefix("BearerToken")
        or config.get_api_key_with_prefix("authorization")
        or ""
    )
    scheme, _, token = header.partition(" ")
    return kopf.ConnectionInfo(
        server=config.host,
        ca_path=config.ssl_ca_cert,
        insecure=not config.verify_ssl,
        username=config.username or None,
        password=config.password or None,
        scheme=scheme or None if token else None,
        token=token or scheme or None,
        certificate_path=config.cert_file,
        private_key_path=config.key_file,
        proxy_url=None if is_direct else config.proxy,
    )
