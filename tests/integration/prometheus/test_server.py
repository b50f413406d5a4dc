"""Readings from a real Prometheus that refuses a query, answers too much, hangs, or has an unknown certificate."""

from __future__ import annotations

import os
import signal
import ssl
import time
from pathlib import Path

import pytest

from controller_logic.model import Readings
from controller_logic.reasons import Reason
from lab.prometheus import PrometheusLab
from tests.integration.kafka.certificates import make_certificates
from tests.integration.prometheus.conftest import BROKERS, Read, egress
from tests.unit.prometheus.lying_server import Request, serving
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer, Queries, TlsTexts

pytestmark = pytest.mark.integration


def reasons(readings: Readings) -> set[Reason]:
    return {problem.reason for problem in readings.problems}


@pytest.mark.parametrize("query", ["rate(moved[1m])", "sum by (broker) (moved)", "moved[1m]", "moved{", "1"])
def test_a_query_that_is_no_plain_selector_is_refused_with_advice_and_the_others_are_asked(read: Read, query: str) -> None:
    readings = read(queries=Queries(egress=query))
    (problem,) = [problem for problem in readings.problems if problem.reason is Reason.METRICS_QUERY_REFUSED]
    assert query in problem.message
    assert readings.clients


def test_an_answer_above_the_limit_of_size_is_not_read(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"), server={"answer_limit_bytes": 300})
    assert readings.nic == {}
    assert reasons(readings) == {Reason.METRICS_INCOMPLETE}


def test_a_frozen_prometheus_costs_the_given_time_at_most_and_the_next_reading_is_whole(
    prometheus_of_cases: PrometheusLab, read: Read
) -> None:
    os.kill(prometheus_of_cases.process.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        frozen = read(server={"reading_timeout_seconds": 0.8, "read_timeout_seconds": 0.4})
        seconds = time.monotonic() - started
    finally:
        os.kill(prometheus_of_cases.process.pid, signal.SIGCONT)
    assert (frozen.nic, frozen.clients) == ({}, {})
    assert reasons(frozen) == {Reason.PROMETHEUS_UNREACHABLE}
    assert len(frozen.problems) == 1
    assert seconds < 3
    assert {broker for broker, _ in read().nic} == BROKERS


def test_an_encrypted_prometheus_is_asked_under_its_own_authority_only(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)

    def nothing(request: Request) -> None:
        request.send(200, '{"status": "success", "data": {"resultType": "matrix", "result": []}}')

    with serving(nothing, tls=tls) as server:
        address = server.url.replace("http:", "https:")
        trusted, refused = (
            PrometheusReader(MetricsSettings(PrometheusServer(address, tls=tls_texts, reading_timeout_seconds=1))).read(BROKERS)
            for tls_texts in (TlsTexts(made.authority.read_bytes()), None)
        )
    assert Reason.PROMETHEUS_UNREACHABLE not in reasons(trusted)
    assert reasons(refused) == {Reason.PROMETHEUS_UNREACHABLE}
    assert "CERTIFICATE_VERIFY_FAILED" in refused.problems[0].message
