"""Readings from a real Prometheus that scrapes made-up exporters of three brokers every second."""

from __future__ import annotations

import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from lab.process import freeze, patience, started, wait_until
from lab.prometheus import Exporter, PrometheusLab, ScrapeTarget, exporting
from tests.goldens.golden import numbers
from tests.integration.kafka.certificates import make_certificates
from tests.unit.prometheus.lying_server import Request, serving
from tidegate.prometheus import questions
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import (
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    Preset,
    PrometheusServer,
    Queries,
    TlsTexts,
)
from tidegate_logic.model import Direction, Entity, NicSpan, Readings
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

# --- pages of the exporters -----------------------------------------------------------------------
# Pages of made-up exporters of three brokers, with all cases of these tests. Each case has a name
# or label of its own.
#
# Values depend only on the scrape's number, so that one Prometheus with a few seconds of history
# serves every test. Only `Custom` queries read the counter `moved`. The other metrics have the
# names of the presets.


SILENT_AFTER = 3  # scrapes, in the case "silent"
EGRESS_STEP, SECOND_NIC_STEP = 50_000, 10_000  # bytes a scrape

_NODE = """\
node_network_transmit_bytes_total{{device="eth0"}} {eth0}
node_network_transmit_bytes_total{{device="eth1"}} {eth1}
node_network_transmit_bytes_total{{device="lo"}} {other}
node_network_transmit_bytes_total{{device="bond0"}} {bond}
node_network_transmit_bytes_total{{device="veth12ab"}} {other}
node_network_receive_bytes_total{{device="eth0"}} {eth1}
node_network_receive_bytes_total{{device="docker0"}} {other}
"""
_POD = """\
container_network_transmit_bytes_total{{id="/a",interface="eth0",pod="orders-kafka-{broker}"}} {eth0}
container_network_receive_bytes_total{{id="/a",interface="eth0",pod="orders-kafka-{broker}"}} {eth1}
container_network_transmit_bytes_total{{id="/b",interface="eth0",pod="orders-zookeeper-{broker}"}} {other}
container_network_transmit_bytes_total{{id="/d",interface="eth0",pod="sink-connect-{broker}"}} {other}
container_network_receive_bytes_total{{id="/d",interface="eth0",pod="sink-connect-{broker}"}} {other}
container_network_transmit_bytes_total{{id="/e",interface="eth0",pod="mm-mirrormaker2-{broker}"}} {other}
container_network_transmit_bytes_total{{id="/c",interface="eth0",pod="web-6d5c7b-x2x9z"}} {other}
"""
_TRAFFIC = """\
kafka_broker_bytesout_total {eth0}
kafka_broker_replicationbytesout_total {eth1}
kafka_broker_bytesout_total{{topic="orders"}} {other}
kafka_broker_bytesin_total {eth1}
kafka_broker_replicationbytesin_total {eth1}
"""
_CLIENTS = """\
kafka_quota_byte_rate{resource="Fetch",user="alice"} 1000.5
kafka_quota_throttle_time{resource="Fetch",user="alice"} NaN
kafka_quota_byte_rate{resource="Fetch",user="a%20b",client_id="\\"c:1\\""} 2000
kafka_quota_throttle_time{resource="Fetch",user="a%20b",client_id="\\"c:1\\""} 350.5
kafka_quota_byte_rate{resource="Produce",user="alice"} 3000
kafka_quota_byte_rate{resource="Request",user="alice"} 9
"""


def node_page(broker: int, scrape: int) -> str:
    """The page of node_exporter and cAdvisor: NIC counters by the names of both, and the odd
    counters.
    """
    counters = _counters(scrape)
    return (
        _NODE.format(**counters)
        + _POD.format(broker=broker, **counters)
        + _odd_counters(broker, scrape)
    )


def broker_page(broker: int, scrape: int) -> str:
    """The page of the broker's JMX exporter: its traffic, its clients, and the odd clients."""
    return _TRAFFIC.format(**_counters(scrape)) + (_CLIENTS if broker != 3 else "") + _odd_clients()


def twin_page(scrape: int) -> str:
    """The page of a second source that has the label of broker 1 too."""
    return f'moved{{case="twice"}} {scrape * 700}\nrate{{case="twice",user="bob"}} 7\n'


def _counters(scrape: int) -> dict[str, int]:
    one, other = EGRESS_STEP * scrape, SECOND_NIC_STEP * scrape
    return {"eth0": one, "eth1": other, "bond": one + other, "other": 10**9 * scrape}


def _odd_counters(broker: int, scrape: int) -> str:
    lines = {
        "steady": str(1000 * scrape),
        "falls": str(1000 * (scrape % 3)),
        "nan": "NaN" if scrape % 2 else str(1000 * scrape),
        "always-nan": "NaN",
        "infinite": "+Inf",
        "negative": "-5",
        "frozen": "123456",
    }
    if broker != 3:
        lines["two-brokers-only"] = str(1000 * scrape)
    if scrape < SILENT_AFTER:
        lines["silent"] = str(1000 * scrape)
    if broker == 1:
        lines["twice"] = str(1000 * scrape)
    return "".join(f'moved{{case="{case}"}} {value}\n' for case, value in lines.items())


def _odd_clients() -> str:
    values = {"nan": "NaN", "infinite": "+Inf", "negative": "-1"}
    odd = "".join(f'rate{{case="{case}",user="bob"}} {value}\n' for case, value in values.items())
    return (
        odd + 'rate{case="twice",user="bob"} 5\nrate{case="no-client",topic="t"} '
        '5\nrate{case="unspellable",user="a b"} 5\n'
    )


# --- readings -------------------------------------------------------------------------------------
# One Prometheus for all these tests, scraping made-up exporters of three brokers every second.


BROKERS = frozenset({1, 2, 3})
HISTORY_SCRAPES = 7

Read = Callable[..., Readings]


@pytest.fixture(scope="session")
def exporters() -> Iterator[dict[tuple[str, int], Exporter]]:
    """The exporters, by job and broker."""
    with ExitStack() as stack:
        pages = {("node", broker): partial(node_page, broker) for broker in BROKERS}
        pages |= {("kafka", broker): partial(broker_page, broker) for broker in BROKERS}
        pages["twin", 1] = twin_page
        yield {key: stack.enter_context(exporting(page)) for key, page in pages.items()}


@pytest.fixture(scope="session")
def prometheus_of_cases(exporters: dict[tuple[str, int], Exporter]) -> Iterator[PrometheusLab]:
    """A Prometheus that scrapes the made-up exporters, with some seconds of history."""
    targets = [
        ScrapeTarget(job, exporter.address, broker) for (job, broker), exporter in exporters.items()
    ]
    with started(lambda: PrometheusLab(targets)) as server:
        wait_until(
            lambda: min(exporter.scrapes for exporter in exporters.values()) >= HISTORY_SCRAPES,
            "some history",
            timeout_seconds=30,
        )
        yield server


@pytest.fixture
def read(prometheus_of_cases: PrometheusLab) -> Iterator[Read]:
    """A function that reads once, at a scrape interval of 1 s.

    Its arguments replace settings: `server` those of the server, `clock` the time, all others those
    of the metrics.
    """
    readers: list[PrometheusReader] = []

    def once(
        *,
        server: dict[str, object] | None = None,
        clock: Callable[[], float] | None = None,
        **settings: object,
    ) -> Readings:
        given = {"scrape_interval_seconds": 1, "stale_after_seconds": 3, **settings}
        where = PrometheusServer(**{"url": prometheus_of_cases.url, **(server or {})})  # type: ignore[arg-type]
        reader = PrometheusReader(
            MetricsSettings(where, **given), **({} if clock is None else {"clock": clock})
        )  # type: ignore[arg-type]
        readers.append(reader)
        return reader.read(BROKERS)

    yield once
    for reader in readers:
        reader.close()


def egress(case: str) -> Queries:
    """Queries for the counters of this case only."""
    return Queries(egress=f'moved{{case="{case}"}}')


def fetch(case: str) -> Queries:
    """Queries for the clients' rates of this case only."""
    return Queries(fetch_rate=f'rate{{case="{case}"}}')


# --- NICs -----------------------------------------------------------------------------------------
# NIC rates from a real Prometheus: spans with the times of their samples, and no reading where a
# number could be wrong.


def spans(
    readings: Readings, direction: Direction = Direction.EGRESS, broker: int = 1
) -> tuple[NicSpan, ...]:
    return readings.nic.get((broker, direction), ())


def bytes_of_each(found: tuple[NicSpan, ...]) -> set[int]:
    return {round(span.bytes_per_second * span.seconds) for span in found}


@pytest.mark.parametrize(
    ("preset", "sent", "received"),
    [
        (Preset.NODE_EXPORTER, EGRESS_STEP + SECOND_NIC_STEP, SECOND_NIC_STEP),
        (Preset.CADVISOR, EGRESS_STEP, SECOND_NIC_STEP),
        (Preset.JMX_EXPORTER, EGRESS_STEP + SECOND_NIC_STEP, 2 * SECOND_NIC_STEP),
    ],
)
def test_a_preset_counts_each_byte_of_its_nics_once_for_every_broker(
    read: Read, preset: Preset, sent: int, received: int
) -> None:
    readings = read(preset=preset)
    for broker in BROKERS:
        assert bytes_of_each(spans(readings, Direction.EGRESS, broker)) == {sent}
        assert bytes_of_each(spans(readings, Direction.INGRESS, broker)) == {received}


def test_spans_are_real_scrapes_a_second_apart_oldest_first_and_fresh(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"))
    found = spans(readings)
    assert len(found) >= 5
    assert [span.at_seconds for span in found] == sorted(span.at_seconds for span in found)
    assert all(0.5 < span.seconds < 2.5 for span in found)
    assert -1 < readings.read_at_seconds - found[-1].at_seconds < 3
    assert readings.problems == ()


def test_a_counter_that_falls_makes_no_span_where_it_fell(read: Read) -> None:
    found = spans(read(preset=Preset.CUSTOM, queries=egress("falls")))
    assert bytes_of_each(found) == {1000}
    assert len(found) < len(spans(read(preset=Preset.CUSTOM, queries=egress("steady"))))


def test_samples_that_are_no_numbers_are_passed_over_and_reported(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("nan"))
    assert bytes_of_each(spans(readings)) == {2000}
    assert {
        problem.broker
        for problem in readings.problems
        if problem.reason is Reason.METRICS_UNREADABLE
    } == BROKERS


@pytest.mark.parametrize("case", ["always-nan", "infinite", "negative"])
def test_a_nic_without_amounts_has_no_reading(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress(case))
    assert readings.nic == {}
    assert {
        problem.broker
        for problem in readings.problems
        if problem.reason is Reason.METRICS_UNREADABLE
    } == BROKERS


def test_a_nic_counter_that_does_not_grow_is_zero_and_not_unknown(read: Read) -> None:
    assert bytes_of_each(spans(read(preset=Preset.CUSTOM, queries=egress("frozen")))) == {0}


def test_a_broker_without_series_is_missing_and_the_others_are_there(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("two-brokers-only"))
    assert {broker for broker, _ in readings.nic} == {1, 2}
    assert [
        problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_MISSING
    ] == [3]


def test_series_that_no_broker_exports_are_one_problem_of_all_brokers(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("never exported"))
    assert readings.nic == {}
    assert [
        problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_MISSING
    ] == [None]


def test_a_series_that_ended_is_stale_and_keeps_its_last_time(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("silent"), stale_after_seconds=2)
    assert spans(readings)[-1].at_seconds < readings.read_at_seconds - 2
    assert [
        problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_STALE
    ] == [None]


def test_two_sources_of_one_broker_leave_it_without_a_reading(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("twice"))
    assert (1, Direction.EGRESS) not in readings.nic
    (problem,) = [
        problem for problem in readings.problems if problem.reason is Reason.METRICS_AMBIGUOUS
    ]
    assert problem.broker == 1
    for source in ("'node'", "'twin'"):
        assert source in problem.message


def test_samples_ahead_of_our_clock_are_not_read(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"), clock=lambda: time.time() - 60)
    assert readings.nic == {}
    assert {
        problem.broker for problem in readings.problems if problem.reason is Reason.METRICS_STALE
    } == BROKERS


def test_brokers_are_identified_by_their_instances_and_odd_names_on_the_list_match_nothing_else(
    read: Read, exporters: dict[tuple[str, int], Exporter]
) -> None:
    ids = {exporters["node", broker].address: broker + 10 for broker in BROKERS} | {
        'a"b\\c\n.*|': 1
    }
    readings = read(brokers=BrokerInstances(ids))
    assert {broker for broker, _ in readings.nic} == {11, 12, 13}


def test_a_long_list_of_instances_reads_these_hosts_and_no_others() -> None:
    ids = {f"kafka-broker-{n}.prod.example.com:9100": n for n in range(100, 400)}
    with exporting(partial(node_page, 1)) as ours, exporting(partial(node_page, 2)) as theirs:
        ids[ours.address] = 1
        other_host = theirs.address.replace("127.0.0.1", "localhost")
        targets = [ScrapeTarget("node", address) for address in (ours.address, other_host)]
        with started(lambda: PrometheusLab(targets)) as server:
            wait_until(lambda: ours.scrapes >= 4, "some history", timeout_seconds=30)
            settings = MetricsSettings(PrometheusServer(server.url), brokers=BrokerInstances(ids))
            readings = PrometheusReader(settings).read((1,))
    assert bytes_of_each(spans(readings)) == {EGRESS_STEP + SECOND_NIC_STEP}
    assert Reason.METRICS_AMBIGUOUS not in {problem.reason for problem in readings.problems}


def test_series_that_name_no_broker_are_reported(read: Read) -> None:
    readings = read(
        preset=Preset.CUSTOM, queries=egress("steady"), brokers=BrokerLabel("no_such_label")
    )
    assert readings.nic == {}
    assert Reason.METRICS_AMBIGUOUS in {problem.reason for problem in readings.problems}


# --- clients --------------------------------------------------------------------------------------
# Rates and throttle times of clients as a real Prometheus scraped them, by entity and broker.


ALICE, PAIR = Entity("alice"), Entity("a b", "c:1")


def test_each_clients_rate_and_throttle_time_are_read_in_both_directions(read: Read) -> None:
    clients = read().clients
    assert set(clients) == {
        (entity, broker, way)
        for broker in (1, 2)
        for entity, way in [
            (ALICE, Direction.EGRESS),
            (PAIR, Direction.EGRESS),
            (ALICE, Direction.INGRESS),
        ]
    }
    assert clients[ALICE, 1, Direction.EGRESS].bytes_per_second == 1000.5
    assert clients[PAIR, 2, Direction.EGRESS].bytes_per_second == 2000
    assert clients[ALICE, 1, Direction.INGRESS].bytes_per_second == 3000


def test_a_throttle_time_zero_and_unknown_are_three_things(read: Read) -> None:
    clients = read().clients
    assert clients[PAIR, 1, Direction.EGRESS].throttle_milliseconds == 350.5
    assert clients[ALICE, 1, Direction.EGRESS].throttle_milliseconds == 0.0
    assert clients[ALICE, 1, Direction.INGRESS].throttle_milliseconds is None


def test_a_rate_has_the_time_of_its_own_sample(read: Read) -> None:
    readings = read()
    ages = {readings.read_at_seconds - rate.at_seconds for rate in readings.clients.values()}
    assert all(-1 < age < 3 for age in ages)
    assert len(ages) > 1


def test_a_broker_without_clients_is_reported_where_others_have_some(read: Read) -> None:
    assert [
        problem.broker
        for problem in read().problems
        if problem.reason is Reason.CLIENTS_NOT_METERED
    ] == [3]


@pytest.mark.parametrize("case", ["nan", "infinite", "negative"])
def test_a_rate_that_is_no_amount_is_unknown_and_reported(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch(case))
    assert readings.clients == {}
    assert {
        problem.broker
        for problem in readings.problems
        if problem.reason is Reason.METRICS_UNREADABLE
    } == BROKERS


@pytest.mark.parametrize("case", ["no-client", "unspellable"])
def test_a_series_that_names_no_client_is_left_out_and_reported(read: Read, case: str) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch(case))
    assert readings.clients == {}
    assert Reason.CLIENTS_NOT_NAMED in {problem.reason for problem in readings.problems}


def test_a_client_with_two_series_is_unknown_there_and_known_elsewhere(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch("twice"))
    assert {broker for _, broker, _ in readings.clients} == {2, 3}
    assert [
        problem.broker
        for problem in readings.problems
        if problem.reason is Reason.METRICS_AMBIGUOUS
    ] == [1]


def test_no_client_anywhere_is_one_problem(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=fetch("never exported"))
    assert [
        problem.broker
        for problem in readings.problems
        if problem.reason is Reason.CLIENTS_NOT_METERED
    ] == [None]


def rates(readings: Readings) -> dict[tuple[Entity, int, Direction], float]:
    return {key: rate.bytes_per_second for key, rate in readings.clients.items()}


@pytest.mark.parametrize("by", ["label", "instance"])
def test_clients_asked_for_by_groups_of_brokers_are_those_asked_for_at_once(
    read: Read,
    exporters: dict[tuple[str, int], Exporter],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    at_once = rates(read())
    monkeypatch.setattr(questions, "_SERIES_OF_A_QUESTION", 1)
    ids = {exporters["kafka", broker].address: broker for broker in BROKERS}
    grouped = read(brokers=BrokerLabel("broker") if by == "label" else BrokerInstances(ids))
    assert rates(grouped) == at_once != {}
    assert {
        problem.broker
        for problem in grouped.problems
        if problem.reason is Reason.CLIENTS_NOT_METERED
    } == {3}


CROWDED = 4


def crowd_page(broker: int, scrape: int) -> str:
    """The page of a broker with 20 clients, or with 2000."""
    clients = range(2000 if broker == CROWDED else 20)
    moved = f"kafka_broker_bytesout_total {scrape * 1000}\nkafka_broker_bytesin_total 0\n"
    return moved + "".join(
        f'kafka_quota_byte_rate{{resource="{way}",user="u{n}"}} {broker * 1000 + n}\n'
        for n in clients
        for way in ("Fetch", "Produce")
    )


def test_a_broker_with_too_many_clients_is_named_and_those_of_all_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "_SERIES_OF_A_QUESTION", 1)
    brokers = range(1, 7)
    with ExitStack() as stack:
        pages = [stack.enter_context(exporting(partial(crowd_page, one))) for one in brokers]
        targets = [
            ScrapeTarget("kafka", page.address, broker)
            for broker, page in zip(brokers, pages, strict=True)
        ]
        server = stack.enter_context(PrometheusLab(targets))
        wait_until(lambda: min(page.scrapes for page in pages) >= 4, "history", timeout_seconds=30)
        settings = MetricsSettings(
            PrometheusServer(server.url, answer_limit_bytes=100_000),
            Preset.JMX_EXPORTER,
            scrape_interval_seconds=1,
            stale_after_seconds=round(patience(3)),
        )
        readings = PrometheusReader(settings).read(brokers)
    assert rates(readings) == {
        (Entity(f"u{n}"), broker, way): broker * 1000.0 + n
        for broker in brokers
        if broker != CROWDED
        for n in range(20)
        for way in Direction.COMBINED.parts
    }
    assert [(one.reason, one.broker) for one in readings.problems] == [
        (Reason.METRICS_INCOMPLETE, CROWDED)
    ]
    assert {broker for broker, _ in readings.nic} == set(brokers)


def test_a_clock_ahead_of_prometheus_own_is_said_with_the_difference(read: Read) -> None:
    readings = read(preset=Preset.CUSTOM, queries=egress("steady"), clock=lambda: time.time() + 60)
    (problem,) = [one for one in readings.problems if one.reason is Reason.METRICS_STALE]
    assert "ahead of Prometheus'" in problem.message
    assert any(abs(number - 60) <= 2 for number in numbers(problem.message))


# --- a Prometheus that does not answer as it should -----------------------------------------------
# Readings from a real Prometheus that refuses a query, answers too much, hangs, or has an unknown
# certificate.


def reasons(readings: Readings) -> set[Reason]:
    return {problem.reason for problem in readings.problems}


@pytest.mark.parametrize(
    "query", ["rate(moved[1m])", "sum by (broker) (moved)", "moved[1m]", "moved{", "1"]
)
def test_a_query_that_is_no_plain_selector_is_refused_with_advice_and_the_others_are_asked(
    read: Read, query: str
) -> None:
    readings = read(queries=Queries(egress=query))
    (problem,) = [
        problem for problem in readings.problems if problem.reason is Reason.METRICS_QUERY_REFUSED
    ]
    assert query in problem.message
    assert readings.clients


def test_an_answer_above_the_limit_of_size_is_not_read(read: Read) -> None:
    readings = read(
        preset=Preset.CUSTOM, queries=egress("steady"), server={"answer_limit_bytes": 300}
    )
    assert readings.nic == {}
    assert reasons(readings) == {Reason.METRICS_INCOMPLETE}


def test_a_frozen_prometheus_costs_the_given_time_at_most_and_the_next_reading_is_whole(
    prometheus_of_cases: PrometheusLab, read: Read
) -> None:
    freeze(prometheus_of_cases.process.pid)
    try:
        started = time.monotonic()
        frozen = read(server={"question_timeout_seconds": 0.8, "read_timeout_seconds": 0.4})
        seconds = time.monotonic() - started
    finally:
        os.kill(prometheus_of_cases.process.pid, signal.SIGCONT)
    assert (frozen.nic, frozen.clients) == ({}, {})
    assert reasons(frozen) == {Reason.PROMETHEUS_UNREACHABLE}
    assert len(frozen.problems) == 1
    assert seconds < patience(3)
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
            PrometheusReader(
                MetricsSettings(
                    PrometheusServer(address, tls=tls_texts, question_timeout_seconds=1)
                )
            ).read(BROKERS)
            for tls_texts in (TlsTexts(made.authority.read_bytes()), None)
        )
    assert Reason.PROMETHEUS_UNREACHABLE not in reasons(trusted)
    assert reasons(refused) == {Reason.PROMETHEUS_UNREACHABLE}
    assert "its certificate is signed by none of" in refused.problems[0].message


# --- two clusters on one Prometheus ---------------------------------------------------------------
# Both have a broker 1. While the exporter of one is frozen, the other's is not read in its place.


class Cluster:
    """The exporter of one cluster's broker 1: its counter grows by `step` a scrape.

    It can be without series, and it can freeze: then a scrape gets no answer in time.
    """

    def __init__(self, start: int, step: int, *, speaks: bool) -> None:
        self._counter, self._step = start, step
        self.speaks = speaks
        self.awake = threading.Event()
        self.awake.set()

    def page(self, scrape: int) -> str:
        self.awake.wait(patience(60))
        self._counter += self._step
        return f"load {self._counter}\n" if self.speaks else "other 1\n"


@pytest.fixture
def two_clusters() -> Iterator[tuple[Cluster, Cluster, PrometheusLab]]:
    """A's broker 1, which has always been read, B's, which has no series yet, and Prometheus."""
    ours = Cluster(10**9, 1000, speaks=True)
    theirs = Cluster(10**12, 900_000, speaks=False)
    with exporting(ours.page) as a, exporting(theirs.page) as b:
        targets = [ScrapeTarget("cluster-a", a.address, 1), ScrapeTarget("cluster-b", b.address, 1)]
        with started(lambda: PrometheusLab(targets)) as server:
            wait_until(lambda: min(a.scrapes, b.scrapes) >= 7, "history", timeout_seconds=30)
            yield ours, theirs, server
        ours.awake.set()


def reader_of(server: PrometheusLab, **settings: object) -> PrometheusReader:
    given = {
        "preset": Preset.CUSTOM,
        "queries": Queries(egress="load"),
        "scrape_interval_seconds": 1,
        "stale_after_seconds": 3,
        "history_seconds": 5,
        **settings,
    }
    return PrometheusReader(MetricsSettings(PrometheusServer(server.url), **given))  # type: ignore[arg-type]


def reasons_while(reader: PrometheusReader, seconds: float) -> set[Reason]:
    """Reads twice a second; every reading's reason, and no reading is of the other cluster."""
    until, found = time.monotonic() + seconds, set[Reason]()
    while time.monotonic() < until:
        readings = reader.read((1,))
        assert max(bytes_of_each(spans(readings)), default=0) < 100_000
        found |= reasons(readings)
        time.sleep(0.5)
    return found


def test_another_clusters_broker_is_not_read_while_the_own_exporter_is_frozen(
    two_clusters: tuple[Cluster, Cluster, PrometheusLab],
) -> None:
    ours, theirs, server = two_clusters
    reader = reader_of(server)
    assert bytes_of_each(spans(reader.read((1,)))) == {1000}
    ours.awake.clear()
    theirs.speaks = True
    assert Reason.SOURCE_CHANGED in reasons_while(reader, 12)
    for one in (reader, reader_of(server)):  # an operator that has just started knows it, too
        (problem,) = one.read((1,)).problems
        assert (problem.reason, problem.broker) == (Reason.SOURCE_CHANGED, 1)
        assert "'cluster-a'" in problem.message
        assert "'cluster-b'" in problem.message
    ours.awake.set()
    theirs.speaks = False
    wait_until(
        lambda: bool(spans(reader.read((1,)))), "the own exporter's readings", timeout_seconds=20
    )
    assert bytes_of_each(spans(reader.read((1,)))) <= set(range(1000, 100_000, 1000))
    with_matchers = reader_of(server, matchers={"job": "cluster-a"})
    assert with_matchers.read((1,)).problems == ()


def test_another_exporter_is_read_once_the_own_is_no_target_any_more(
    two_clusters: tuple[Cluster, Cluster, PrometheusLab],
) -> None:
    _, moved, server = two_clusters
    reader = reader_of(server)
    assert bytes_of_each(spans(reader.read((1,)))) == {1000}
    server.process.kill()
    server.targets = server.targets[1:]
    moved.speaks = True
    server.restart()
    wait_until(
        lambda: bytes_of_each(spans(reader.read((1,)))) == {900_000},
        "its readings",
        timeout_seconds=20,
    )
    assert reader.read((1,)).problems == ()
