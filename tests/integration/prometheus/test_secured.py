"""A real Prometheus behind its own `web.yml`: TLS, client certificates and basic auth, asked with a
policy's settings and its Secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, WebAccess, exporting
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.integration.kafka.certificates import make_certificates
from tidegate.observe.connections import SECRET_AGE_SECONDS, Secrets, metrics_settings
from tidegate.observe.metrics_watch import Dependencies, MetricsWatch
from tidegate.prometheus.reader import PrometheusReader
from tidegate.resources.policy import MetricsSource
from tidegate_logic.model import Readings
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

FIRST, SECOND = "first", "second, ünïcode"
# what `htpasswd -B` makes of them
BCRYPT = {
    FIRST: "$2b$04$abcdefghijklmnopqrstuuvybHXQqehXl2NdtAhT6BAmwe6EZ8HOi",
    SECOND: "$2b$04$abcdefghijklmnopqrstuuzjf3vZT5BSO6pjsacBzTPtNWF6AjHGq",
}
STEP_BYTES = 5_000


def page(scrape: int) -> str:
    counter = 1_000_000 + STEP_BYTES * scrape
    return "".join(
        f'node_network_{way}_bytes_total{{device="eth0"}} {counter}\n'
        for way in ("transmit", "receive")
    )


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> WebAccess:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    return WebAccess(made.authority, made.certificate, made.key, "reader", FIRST, BCRYPT[FIRST])


@pytest.fixture(scope="module")
def guarded(access: WebAccess) -> Iterator[PrometheusLab]:
    with (
        exporting(page) as exporter,
        PrometheusLab([ScrapeTarget("node", exporter.address, 1)], access=access) as server,
    ):
        yield server


def source(url: str, **changes: Any) -> MetricsSource:
    login = {
        "type": "basic",
        "username": "reader",
        "passwordSecret": {"secretName": "prometheus", "password": "password"},
        "certificateAndKey": {"secretName": "prometheus", "certificate": "crt", "key": "key"},
    }
    trusted = ({"secretName": "prometheus", "certificate": "ca.crt"},)
    server = {
        "url": url,
        "tls": {"trustedCertificates": trusted},
        "authentication": login,
        **changes,
    }
    return MetricsSource.model_validate(
        {"prometheus": server, "scrapeIntervalSeconds": 1, "staleAfterSeconds": 5}
    )


def secret_of(access: WebAccess, **changes: bytes) -> dict[str, bytes]:
    return {
        "ca.crt": access.authority.read_bytes(),
        "crt": access.certificate.read_bytes(),
        "key": access.key.read_bytes(),
        "password": access.password.encode(),
        **changes,
    }


def read(spec: MetricsSource, secret: Mapping[str, bytes]) -> Readings:
    reader = PrometheusReader(
        metrics_settings(spec, Secrets("streaming", {"prometheus": dict(secret)}))
    )
    try:
        return reader.read({1})
    finally:
        reader.close()


def growth_bytes(readings: Readings) -> set[int]:
    return {
        round(span.bytes_per_second * span.seconds)
        for spans in readings.nic.values()
        for span in spans
    }


def test_nics_are_read_with_a_client_certificate_and_a_password(
    guarded: PrometheusLab, access: WebAccess
) -> None:
    spec, secret = source(guarded.url), secret_of(access)
    wait_until(lambda: bool(read(spec, secret).nic), "two scrapes", timeout_seconds=20)
    readings = read(spec, secret)
    assert {broker for broker, _ in readings.nic} == {1}
    assert growth_bytes(readings) <= {STEP_BYTES * missed for missed in range(1, 10)}
    assert [problem for problem in readings.problems if "NIC" in problem.message] == []


def refusal(spec: MetricsSource, secret: Mapping[str, bytes]) -> tuple[Reason, str]:
    readings = read(spec, secret)
    assert not readings.nic
    (problem,) = readings.problems
    return problem.reason, problem.message


def test_a_wrong_password_is_refused_and_named(guarded: PrometheusLab, access: WebAccess) -> None:
    reason, message = refusal(source(guarded.url), secret_of(access, password=b"wrong"))
    assert reason is Reason.NOT_AUTHORIZED
    assert "refused the request (401)" in message
    assert "Check the login in metrics.prometheus.authentication" in message


def test_no_certificate_and_one_by_a_stranger_get_no_answer(
    guarded: PrometheusLab, access: WebAccess, tmp_path: Path
) -> None:
    password = {"secretName": "prometheus", "password": "password"}
    bare = {"type": "basic", "username": "reader", "passwordSecret": password}
    reason, message = refusal(source(guarded.url, authentication=bare), secret_of(access))
    assert reason is Reason.PROMETHEUS_UNREACHABLE
    assert "certificate" in message
    other = make_certificates(tmp_path)
    theirs = {"crt": other.certificate.read_bytes(), "key": other.key.read_bytes()}
    reason, message = refusal(source(guarded.url), secret_of(access, **theirs))
    assert reason is Reason.PROMETHEUS_UNREACHABLE


def test_a_certificate_for_another_name_or_by_another_authority_is_refused_in_words(
    guarded: PrometheusLab,
    access: WebAccess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = source(guarded.url.replace("127.0.0.1", "localhost"))
    reason, message = refusal(elsewhere, secret_of(access))
    assert reason is Reason.PROMETHEUS_UNREACHABLE
    assert "its certificate is valid, but not for localhost" in message
    assert "metrics.prometheus.url" in message
    monkeypatch.setenv("SSL_CERT_FILE", str(access.authority))
    other = make_certificates(tmp_path).authority.read_bytes()
    reason, message = refusal(source(guarded.url), secret_of(access, **{"ca.crt": other}))
    assert reason is Reason.PROMETHEUS_UNREACHABLE
    assert "signed by none of trustedCertificates" in message


def test_a_rotated_password_is_taken_from_the_secret_within_its_minute_and_readings_go_on(
    guarded: PrometheusLab, access: WebAccess
) -> None:
    kubernetes, clock = InMemoryKubernetes(), [0.0]
    kubernetes.put_secret("streaming", "prometheus", secret_of(access))
    watch = MetricsWatch(
        "streaming",
        Dependencies(
            kubernetes, lambda: None, lambda: None, forget=lambda: None, monotonic=lambda: clock[0]
        ),
    )
    spec = source(guarded.url)

    def newest() -> Readings | None:
        return watch.latest(spec, {1})

    def refused() -> bool:
        readings = newest()
        return readings is not None and [one.reason for one in readings.problems] == [
            Reason.NOT_AUTHORIZED
        ]

    def reads() -> bool:
        readings = newest()
        return readings is not None and bool(readings.nic)

    rotated = replace(access, password=SECOND, password_bcrypt=BCRYPT[SECOND])
    try:
        wait_until(reads, "readings", timeout_seconds=20)
        guarded.admit(rotated)
        wait_until(refused, "the old password to be refused", timeout_seconds=20)
        kubernetes.put_secret("streaming", "prometheus", secret_of(rotated))
        clock[0] += SECRET_AGE_SECONDS + 1
        wait_until(reads, "readings with the new password", timeout_seconds=20)
    finally:
        guarded.admit(access)
        watch.close()
