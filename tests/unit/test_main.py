"""One process put together: kopf has only settings that exist, handlers only feed the cache, and
the probe names stuck threads.
"""

import asyncio
import dataclasses
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.engines.probing import health_reporter
from kubernetes.client import ApiClient, Configuration

from tests.unit.hands import Hands
from tidegate import main
from tidegate.control.runtime import VitalSigns
from tidegate.errors import UserActionRequired
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    ResourceKind,
)
from tidegate.kube.cache import ResourceCache
from tidegate.main import (
    THRESHOLDS,
    connection_info,
    kopf_settings,
    liveness_endpoint,
    registry_of,
    tune_collector,
)
from tidegate.metrics import MetricsServer, Telemetry

TIER = {
    "metadata": {"namespace": "streaming", "name": "gold", "uid": "1", "resourceVersion": "7"},
    "spec": {"level": "L0"},
}


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def signs(clock: Hands) -> VitalSigns:
    return VitalSigns(clock, 120.0)


@pytest.fixture
def cache() -> ResourceCache:
    return ResourceCache(lambda _: None)


@pytest.fixture
def registry(cache: ResourceCache, signs: VitalSigns) -> kopf.OperatorRegistry:
    return registry_of(cache, signs, lambda: kopf.ConnectionInfo(server="https://127.0.0.1:6443"))


def _groups(settings: kopf.OperatorSettings) -> Iterator[tuple[str, Any]]:
    yield "settings", settings
    yield from (
        (name, part) for name, part in vars(settings).items() if dataclasses.is_dataclass(part)
    )


def test_every_setting_of_kopf_exists_in_the_installed_kopf() -> None:
    """kopf's settings accept any attribute in silence, so a renamed one would do nothing."""
    declared = {
        name: {field.name for field in dataclasses.fields(part)}
        for name, part in _groups(kopf.OperatorSettings())
    }
    unknown = [
        f"{name}.{key}"
        for name, part in _groups(kopf_settings())
        for key in set(vars(part)) - declared[name]
        if key[0] != "_"
    ]
    assert unknown == []


def test_a_setting_that_kopf_does_not_have_would_be_noticed() -> None:
    settings = kopf_settings()
    settings.watching.server_timeuot = 300  # type: ignore[attr-defined]
    declared = {field.name for field in dataclasses.fields(settings.watching)}
    assert set(vars(settings.watching)) - declared == {"server_timeuot"}


def _watcher(registry: kopf.OperatorRegistry, kind: ResourceKind) -> Any:
    return next(
        handler for handler in registry._watching.get_all_handlers() if handler.id == kind.plural
    )


def _send_event(registry: kopf.OperatorRegistry, event: str, obj: dict[str, Any]) -> None:
    asyncio.run(_watcher(registry, BUSINESS_TIERS).fn(event={"type": event, "object": obj}))


@pytest.mark.parametrize("event", [None, "ADDED", "MODIFIED"])
def test_whatever_the_watch_shows_is_in_the_cache(
    registry: kopf.OperatorRegistry, cache: ResourceCache, event: Any
) -> None:
    _send_event(registry, event, TIER)
    assert cache.snapshot(BUSINESS_TIERS) == (TIER,)


def test_a_deletion_that_the_watch_saw_leaves_the_cache(
    registry: kopf.OperatorRegistry, cache: ResourceCache
) -> None:
    _send_event(registry, "ADDED", TIER)
    _send_event(registry, "DELETED", TIER)
    assert cache.snapshot(BUSINESS_TIERS) == ()


def test_every_kind_is_watched_and_nothing_makes_kopf_write_to_an_object(
    registry: kopf.OperatorRegistry,
) -> None:
    kinds = {BROKER_BANDWIDTH_POLICIES.plural, BUSINESS_TIERS.plural, QUOTA_OVERRIDES.plural}
    assert {handler.id for handler in registry._watching.get_all_handlers()} == kinds
    assert (
        registry._changing.get_all_handlers()
        == registry._spawning.get_all_handlers()
        == registry._indexing.get_all_handlers()
        == []
    )


class Watching:
    """An Operator whose kinds a test sets, and a kopf that runs until its stop flag is raised."""

    def __init__(self, registry: kopf.OperatorRegistry) -> None:
        self.settings = SimpleNamespace(namespaces=(), identity="me")
        self.context = SimpleNamespace(kinds=(BUSINESS_TIERS,))
        self.registry = lambda: registry
        self.runs = 0
        self.during: Callable[[], object] = lambda: None

    async def kopf(self, *, stop_flag: asyncio.Event, ready_flag: asyncio.Event, **_: Any) -> None:
        self.runs += 1
        ready_flag.set()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, self.during)
        await stop_flag.wait()
        await asyncio.sleep(0.05)  # it ends its tasks


@pytest.fixture
def watching(registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch) -> Watching:
    made = Watching(registry)
    monkeypatch.setattr(kopf, "operator", made.kopf)
    monkeypatch.setattr(main, "_LOOK_FOR_MORE_SECONDS", 0.01)
    return made


def _is_told_to_stop(watching: Watching) -> bool:
    watched = watching.context.kinds
    return asyncio.run(main._watch_kinds(watching, watched, None))  # type: ignore[arg-type]


def test_a_kind_that_can_be_listed_again_ends_the_watches_for_new_ones(watching: Watching) -> None:
    def more() -> None:
        watching.context.kinds = (BUSINESS_TIERS, QUOTA_OVERRIDES)

    watching.during = more
    assert not _is_told_to_stop(watching)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_them_for_good_also_when_there_is_a_kind_more(
    watching: Watching, number: signal.Signals
) -> None:
    def both() -> None:
        signal.raise_signal(number)
        watching.context.kinds = (BUSINESS_TIERS, QUOTA_OVERRIDES)

    watching.during = both
    assert _is_told_to_stop(watching)


def test_a_kind_fewer_leaves_the_watches_as_they_are(watching: Watching) -> None:
    def fewer_and_then_a_signal() -> None:
        watching.context.kinds = ()
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)

    watching.during = fewer_and_then_a_signal
    assert _is_told_to_stop(watching)
    assert watching.runs == 1


def test_the_probe_fails_while_a_policys_thread_is_stuck(
    registry: kopf.OperatorRegistry, signs: VitalSigns, clock: Hands
) -> None:
    signs.beat("policy streaming/orders")
    assert asyncio.run(_probe(registry))[0] == 200
    clock.now += 121
    assert asyncio.run(_probe(registry))[0] == 500


async def _probe(registry: kopf.OperatorRegistry) -> tuple[int, str]:
    endpoint, ready = liveness_endpoint("127.0.0.1", 0), asyncio.Event()
    indices = OperatorIndexers().indices
    server = asyncio.create_task(
        health_reporter(
            endpoint,
            memo=kopf.Memo(),
            indices=indices,
            registry=registry,
            settings=kopf_settings(),
            ready_flag=ready,
        )
    )
    try:
        await asyncio.wait_for(ready.wait(), 10)
        async with (
            aiohttp.ClientSession() as session,
            session.get(endpoint, timeout=aiohttp.ClientTimeout(10)) as answer,
        ):
            return answer.status, await answer.text()
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


def test_a_liveness_port_of_zero_is_a_free_one_and_never_80() -> None:
    host, _, port = (
        liveness_endpoint("127.0.0.1", 0)
        .removeprefix("http://")
        .removesuffix("/healthz")
        .partition(":")
    )
    with socket.socket() as probe:
        probe.bind((host, int(port)))
    assert int(port) != 80


def test_a_named_liveness_port_is_that_one() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert liveness_endpoint("127.0.0.1", port) == f"http://127.0.0.1:{port}/healthz"


def test_a_port_that_is_taken_is_named_with_the_option_to_change_it(
    golden: Callable[[str], None],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserActionRequired) as liveness:
            liveness_endpoint("127.0.0.1", port)
        with pytest.raises(UserActionRequired) as metrics:
            MetricsServer(Telemetry(), port=port, address="127.0.0.1")
    for refused, option in ((liveness, "--liveness-port"), (metrics, "--metrics-port")):
        assert [
            part for part in (str(port), "127.0.0.1", option) if part not in refused.value.message
        ] == []
    golden(metrics.value.message.replace(str(port), "9100"))


def _configured(**fields: Any) -> ApiClient:
    configuration = Configuration()
    configuration.host = "https://10.0.0.1:6443"
    for name, value in fields.items():
        setattr(configuration, name, value)
    client: Any = SimpleNamespace(configuration=configuration)
    return client


def test_kopf_presents_the_token_that_our_own_client_presents() -> None:
    info = connection_info(
        _configured(api_key={"authorization": "Bearer abc"}, ssl_ca_cert="/ca.crt")
    )
    assert (info.server, info.scheme, info.token, info.ca_path, info.insecure) == (
        "https://10.0.0.1:6443", "Bearer", "abc", "/ca.crt", False,
    )  # fmt: skip


def test_kopf_presents_the_certificate_that_our_own_client_presents() -> None:
    info = connection_info(_configured(cert_file="/tls.crt", key_file="/tls.key"))
    assert (info.certificate_path, info.private_key_path, info.token, info.scheme) == (
        "/tls.crt",
        "/tls.key",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("no_proxy", "through"),
    [("", "http://proxy.example:3128"), ("10.0.0.1,.svc", None)],
    ids=["by the proxy", "an exception"],
)
def test_kopf_takes_the_proxy_that_our_own_client_takes(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, through: str | None
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert connection_info(_configured()).proxy_url == through


# --- garbage collection ---------------------------------------------------------------------------
# Garbage collection is rare but goes on: otherwise a loop of objects would fill the memory.


@pytest.fixture
def _put_back() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class _Ring:
    """Points at itself, so that only the collector can free it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        _Ring.alive += 1

    def __del__(self) -> None:
        _Ring.alive -= 1


@pytest.mark.usefixtures("_put_back")
def test_what_only_the_collector_can_free_is_freed() -> None:
    tune_collector()
    for _ in range(3 * THRESHOLDS[0]):
        _Ring()
    assert _Ring.alive < 2 * THRESHOLDS[0]
