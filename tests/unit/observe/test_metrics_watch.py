"""Readings come beside the passes: no pass waits for one, and changed settings and Secrets are
used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from lab.process import patience, wait_until
from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.errors import Unreachable
from tidegate.observe import metrics_watch
from tidegate.observe.metrics_watch import Dependencies, MetricsWatch
from tidegate.prometheus.settings import (
    BasicLogin,
    BearerLogin,
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    Preset,
    TlsTexts,
)
from tidegate.resources.policy import MetricsSource
from tidegate_logic.model import Readings
from tidegate_logic.reasons import Reason

URL = "http://prometheus:9090"
TLS_URL = "https://prometheus:9090"


class World:
    """A Kubernetes with Secrets, and readers that note their calls; `error` is raised instead of an
    answer.
    """

    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.opened: list[MetricsSettings] = []
        self.asked: list[frozenset[int]] = []
        self.closed = 0
        self.wakes = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.alive: set[str] = set()
        self.now = 1000.0
        around = Dependencies(
            self.kubernetes,
            wake=self._wake,
            beat=lambda: self.alive.add("metrics"),
            forget=lambda: self.alive.discard("metrics"),
            opener=self._open,
            wall=lambda: 5.0,
            monotonic=lambda: self.now,
        )
        self.watch = MetricsWatch("streaming", around)

    def _open(self, settings: MetricsSettings) -> World:
        self.opened.append(settings)
        return self

    def _wake(self) -> None:
        self.wakes += 1

    def read(self, brokers: Collection[int]) -> Readings:
        self.asked.append(frozenset(brokers))
        assert self.gate.wait(patience(10))
        if self.error is not None:
            raise self.error
        return Readings(float(len(self.asked)), 1.0)

    def close(self) -> None:
        self.closed += 1

    def reading(self, spec: MetricsSource, number: int = 1) -> Readings:
        """The newest reading, once so many were made."""
        self.watch.latest(spec, {1, 2})
        wait_until(
            lambda: self.wakes >= number,
            f"reading {number}",
            timeout_seconds=10,
            poll_seconds=0.005,
        )
        newest = self.watch.latest(spec, {1, 2})
        assert newest is not None
        return newest


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(metrics_watch, "SHORTEST_INTERVAL_SECONDS", 0.01)
    world = World()
    yield world
    world.gate.set()
    world.watch.close()


_OF_SERVER = ("url", "tls", "authentication", "insecure")


def spec(interval_seconds: int = 300, **more: Any) -> MetricsSource:
    prometheus = {
        "url": URL,
        **{key: more.pop(key) for key in _OF_SERVER if key in more},
    }
    return MetricsSource.model_validate(
        {"prometheus": prometheus, "scrapeIntervalSeconds": interval_seconds, **more}
    )


def bearer(secret: str) -> dict[str, Any]:
    return {"type": "bearer", "tokenSecret": {"secretName": secret, "token": "token"}}


def restless(**more: Any) -> MetricsSource:
    """Settings that no admission would accept: a reading that failed is followed by the next at
    once.
    """
    return spec(**more).model_copy(update={"scrape_interval_seconds": 0})


def test_no_pass_waits_for_the_first_reading(world: World) -> None:
    world.gate.clear()
    assert world.watch.latest(spec(), {1}) is None
    assert world.watch.latest(spec(), {1}) is None
    world.gate.set()
    assert world.reading(spec()).read_at_seconds == 1.0


def test_nothing_is_asked_before_any_broker_is_known_or_without_metrics(world: World) -> None:
    assert world.watch.latest(spec(), None) is None
    assert world.watch.latest(None, {1, 2}) is None
    assert (world.opened, world.alive) == ([], set())


def test_the_brokers_of_the_last_pass_are_asked_for(world: World) -> None:
    world.watch.latest(restless(), {1, 2})
    wait_until(lambda: world.asked, "a reading", timeout_seconds=10, poll_seconds=0.005)
    world.watch.latest(restless(), {1, 2, 3})
    wait_until(
        lambda: world.asked[-1] == {1, 2, 3},
        "the new broker",
        timeout_seconds=10,
        poll_seconds=0.005,
    )
    world.watch.latest(restless(), None)
    assert world.asked[0] == {1, 2}


def test_other_settings_begin_anew_and_the_old_reading_is_forgotten(world: World) -> None:
    world.reading(spec())
    world.gate.clear()
    assert world.watch.latest(spec(preset="Cadvisor"), {1, 2}) is None
    world.gate.set()
    world.reading(spec(preset="Cadvisor"), 2)
    assert [settings.preset for settings in world.opened] == [Preset.NODE_EXPORTER, Preset.CADVISOR]
    wait_until(
        lambda: world.closed == 1,
        "the end of the old reader",
        timeout_seconds=10,
        poll_seconds=0.005,
    )


def test_metrics_taken_out_of_the_policy_end_the_thread(world: World) -> None:
    world.reading(spec())
    assert world.alive == {"metrics"}
    assert world.watch.latest(None, {1, 2}) is None
    wait_until(
        lambda: (world.alive, world.closed) == (set(), 1),
        "the end of the thread",
        timeout_seconds=10,
        poll_seconds=0.005,
    )


def test_the_end_of_the_reading_before_an_edit_does_not_end_the_sign_of_life_of_the_next(
    world: World,
) -> None:
    world.gate.clear()
    world.watch.latest(spec(), {1, 2})
    wait_until(lambda: world.asked, "a reading under way", timeout_seconds=10, poll_seconds=0.005)
    world.watch.latest(spec(preset="Cadvisor"), {1, 2})
    world.watch.latest(None, {1, 2})
    world.watch.latest(spec(preset="JmxExporter"), {1, 2})
    wait_until(
        lambda: len(world.asked) == 3, "three at once", timeout_seconds=10, poll_seconds=0.005
    )
    world.gate.set()
    wait_until(lambda: world.closed == 2, "the end of two", timeout_seconds=10, poll_seconds=0.005)
    time.sleep(0.05)
    assert world.alive == {"metrics"}


def test_other_settings_do_not_wait_for_a_reading_that_is_under_way(world: World) -> None:
    world.gate.clear()
    world.watch.latest(spec(), {1, 2})
    wait_until(lambda: world.asked, "a reading under way", timeout_seconds=10, poll_seconds=0.005)
    began = time.monotonic()
    assert world.watch.latest(spec(preset="Cadvisor"), {1, 2}) is None
    assert time.monotonic() - began < metrics_watch._STOP_SECONDS / 2


def test_a_thread_that_rests_between_readings_far_apart_is_alive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_watch, "_BEAT_SECONDS", 0.01)
    world.reading(spec(300))
    world.alive.clear()
    wait_until(lambda: world.alive, "a sign of life", timeout_seconds=10, poll_seconds=0.005)
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable(Reason.PROMETHEUS_UNREACHABLE, "away"), "PrometheusUnreachable"),
        (ZeroDivisionError("by zero"), "InternalError"),
    ],
)
def test_whatever_a_reader_raises_is_a_problem_of_that_reading_only(
    world: World, error: Exception, reason: str
) -> None:
    world.error = error
    (problem,) = world.reading(restless()).problems
    assert problem.reason.value == reason
    world.error = None
    wait_until(
        lambda: (
            not (
                world.watch.latest(restless(), {1}) or Readings(0, 0, problems=(problem,))
            ).problems
        ),
        "a whole one",
        timeout_seconds=10,
    )


def test_a_secret_that_lacks_its_key_is_named_and_nothing_is_asked(world: World) -> None:
    world.kubernetes.put_secret("streaming", "login", {"password": b"ebb"})
    (problem,) = world.reading(spec(url=TLS_URL, authentication=bearer("login"))).problems
    assert problem.reason is Reason.SECRET_UNREADABLE
    assert "Secret streaming/login has no key token" in problem.message
    assert world.asked == []


def test_a_login_does_not_go_over_plain_http_unless_the_policy_says_so(
    world: World, golden: Callable[[str], None]
) -> None:
    world.kubernetes.put_secret("streaming", "login", {"token": b"swordfish"})
    (problem,) = world.reading(spec(authentication=bearer("login"))).problems
    assert problem.reason is Reason.INSECURE_LOGIN
    assert world.opened == world.asked == []
    golden(problem.message)

    readings = world.reading(spec(authentication=bearer("login"), insecure=True), 2)
    assert readings.problems == ()
    assert [settings.server.login for settings in world.opened] == [BearerLogin("swordfish")]


def test_a_secret_without_the_label_is_not_sent_to_prometheus(world: World) -> None:
    world.kubernetes.put_secret("streaming", "login", {"token": b"swordfish"}, labels={})
    (problem,) = world.reading(spec(url=TLS_URL, authentication=bearer("login"))).problems
    assert problem.reason is Reason.SECRET_NOT_ALLOWED
    assert world.opened == []


def test_a_changed_secret_is_taken_up_within_a_minute(world: World) -> None:
    declared = restless(authentication=bearer("login"), insecure=True)
    world.kubernetes.put_secret("streaming", "login", {"token": b"first\n"})
    world.reading(declared)
    world.kubernetes.put_secret("streaming", "login", {"token": b"second"})
    world.now += 61
    wait_until(
        lambda: len(world.opened) == 2, "the new login", timeout_seconds=10, poll_seconds=0.005
    )
    assert [settings.server.login for settings in world.opened] == [
        BearerLogin("first"),
        BearerLogin("second"),
    ]


def test_what_is_declared_reaches_the_reader(world: World) -> None:
    world.kubernetes.put_secret("streaming", "authority", {"ca.crt": b"-----BEGIN"})
    world.kubernetes.put_secret(
        "streaming",
        "login",
        {"password": b"gate\n", "user.crt": b"certificate", "user.key": b"key"},
    )
    trusted = {"trustedCertificates": ({"secretName": "authority", "pattern": "*.crt"},)}
    login = {
        "type": "basic",
        "username": "ebb",
        "passwordSecret": {"secretName": "login", "password": "password"},
        "certificateAndKey": {"secretName": "login", "certificate": "user.crt", "key": "user.key"},
    }
    server = {"url": "https://prometheus:9090", "tls": trusted, "authentication": login}
    instances = ({"instance": "10.0.0.1:9100", "id": 1},)
    declared = {
        "queries": {"egress": "sent"},
        "brokerIdentity": {"instances": instances},
        "matchers": {"cluster": "a"},
    }
    world.reading(spec(30, **server, **declared))
    (settings,) = world.opened
    assert (settings.server.url, settings.queries.egress, settings.queries.ingress) == (
        "https://prometheus:9090",
        "sent",
        None,
    )
    assert (settings.brokers, settings.matchers) == (
        BrokerInstances({"10.0.0.1:9100": 1}),
        {"cluster": "a"},
    )
    assert (settings.scrape_interval_seconds, settings.stale_after_seconds) == (30, 90)
    assert settings.server.login == BasicLogin("ebb", "gate")
    assert settings.server.tls == TlsTexts(b"-----BEGIN", b"certificate", b"key")


def test_brokers_are_identified_by_a_label_or_by_the_preset(world: World) -> None:
    world.reading(spec(brokerIdentity={"label": "kafka_broker"}))
    world.reading(spec(), 2)
    assert [settings.brokers for settings in world.opened] == [BrokerLabel("kafka_broker"), None]
