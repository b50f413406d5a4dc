"""A broker's own exporter: what is read, and everything that makes it not be believed."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import pytest

from lab.prometheus import exporting
from tidegate.prometheus.direct import (
    DirectExporter,
    DirectSettings,
    Exporters,
    NotRead,
    exporter_host,
)
from tidegate.prometheus.nics import Cables, exporters_of
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BasicLogin, PrometheusServer
from tidegate_logic.model import Direction, Exporter, NicSpan

OUT, IN = Direction.EGRESS, Direction.INGRESS
NOW = 1_000_000.0
START = 5_000_000_000.0
LIMITS = {OUT: 100e6, IN: 100e6}


def page(sent: float, received: float, device: str = "eth0") -> str:
    return (
        "# HELP node_network_transmit_bytes_total Network device statistic transmit_bytes.\n"
        "# TYPE node_network_transmit_bytes_total counter\n"
        f'node_network_transmit_bytes_total{{device="lo"}} 7\n'
        f'node_network_transmit_bytes_total{{device="{device}"}} {sent}\n'
        f'node_network_receive_bytes_total{{device="{device}"}} {received}\n'
        "node_cpu_seconds_total 5\n"
    )


def scraped(at_seconds: float = NOW - 10, sent: float = START) -> Exporter:
    return Exporter("10.0.0.1:9100", at_seconds, {OUT: {"eth0": sent}, IN: {"eth0": START}})


class Clock:
    """Two seconds pass from one reading to the next."""

    def __init__(self) -> None:
        self.now = NOW - 2

    def __call__(self) -> float:
        self.now += 2
        return self.now


class Ticks:
    """A clock that a test sets."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(shown: Callable[[int], str], path: str = "/metrics") -> Iterator[DirectExporter]:
    with exporting(shown) as server:
        port = int(server.address.rpartition(":")[2])
        settings = DirectSettings(PrometheusServer("http:"), port, path)
        with closing(Exporters(wall=Clock()).open("127.0.0.1", settings)) as exporter:
            yield exporter


def test_spans_are_the_growth_between_two_answers() -> None:
    with opened(lambda n: page(START + n * 160e6, START + n * 40e6)) as exporter:
        assert exporter.read(scraped(), LIMITS) == {OUT: (), IN: ()}
        found = exporter.read(scraped(), LIMITS)
        (sent,), (received,) = found[OUT], found[IN]
        assert sent.seconds == pytest.approx(2, abs=0.3)
        assert sent.bytes_per_second == pytest.approx(80e6, rel=0.15)
        assert received.bytes_per_second == pytest.approx(20e6, rel=0.15)
        for _ in range(40):
            found = exporter.read(scraped(), dict.fromkeys(LIMITS, 1000000000.0))
        assert len(found[OUT]) == 30


def slow(_: int) -> str:
    time.sleep(1.6)
    return page(START, START)


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        pytest.param(
            lambda n: page(START * 1000, START * 1000), "does not go on from", id="x 1000"
        ),
        pytest.param(lambda n: page(START - 1, START), "does not go on from", id="fell"),
        pytest.param(lambda n: page(START + 2e11, START), "another machine's", id="another's"),
        pytest.param(lambda n: page(START, START, "eth1"), "no interface eth0", id="interface"),
        pytest.param(slow, "within 1 s", id="slow"),
        pytest.param(lambda n: page(START, START) + "#" * 1_000_000, "1 MB", id="large"),
        pytest.param(lambda n: "<html>Log in</html>", "no interface eth0", id="a login page"),
        pytest.param(
            lambda n: 'node_network_transmit_bytes_total{device="eth0} x',
            "not what an exporter shows",
            id="damaged",
        ),
        pytest.param(lambda n: page(float("nan"), START), "no interface eth0", id="not a number"),
    ],
)
def test_what_is_not_believed(shown: Callable[[int], str], why: str) -> None:
    with opened(shown) as exporter, pytest.raises(NotRead, match=re.escape(why)):
        exporter.read(scraped(), LIMITS)


def test_after_a_failure_nothing_is_compared_with_what_was_before() -> None:
    pages = [page(START, START), page(0, 0), page(START + 9e6, START), page(START + 9e6, START)]
    with opened(lambda n: pages[n]) as exporter:
        exporter.read(scraped(), LIMITS)
        with pytest.raises(NotRead):
            exporter.read(scraped(), LIMITS)
        assert exporter.read(scraped(), LIMITS)[OUT] == ()
        assert [one.bytes_per_second for one in exporter.read(scraped(), LIMITS)[OUT]] == [0]


def test_nobody_there() -> None:
    settings = DirectSettings(PrometheusServer("http:"), 1)
    with (
        closing(Exporters().open("127.0.0.1", settings)) as exporter,
        pytest.raises(NotRead, match=r"the exporter at http://127.0.0.1:1/metrics did not answer"),
    ):
        exporter.read(scraped(), LIMITS)


@pytest.mark.parametrize(
    ("instance", "host"),
    [("10.0.0.1:9100", "10.0.0.1"), ("node-3.example", "node-3.example"), ("[::1]:80", "[::1]")],
)
def test_the_host_of_an_instance(instance: str, host: str) -> None:
    assert exporter_host(instance) == host


@pytest.mark.parametrize("instance", ["", "a/b", "user@host:9100", "http://host", "a b", "a:b:c"])
def test_what_is_no_host_is_not_connected_to(instance: str) -> None:
    with pytest.raises(NotRead, match="not host:port"):
        exporter_host(instance)


def series(instance: str, at_seconds: float, counter: float, device: str = "eth0") -> Series:
    labels = {"instance": instance, "broker": "1", "device": device}
    return Series(labels, ((at_seconds - 15, 0.0), (at_seconds, counter)))


def found(*egress: Series) -> dict[int, Exporter]:
    cables = Cables({OUT: list(egress)}, {}, [])
    return dict(exporters_of(cables, broker_of=lambda labels: int(labels["broker"])))


def test_the_exporter_of_the_newest_scrape_counts() -> None:
    moved = series("old:9100", NOW - 30, 1), series("new:9100", NOW, 2)
    assert found(*moved) == {1: Exporter("new:9100", NOW, {OUT: {"eth0": 2}})}
    both = series("a:9100", NOW, 1), series("a:9100", NOW, 2, "eth1")
    assert found(*both)[1].counters == {OUT: {"eth0": 1, "eth1": 2}}


def test_two_exporters_at_once_are_none() -> None:
    assert found(series("a:9100", NOW, 1), series("b:9100", NOW, 2)) == {}


@contextmanager
def two(
    shown: Callable[[int], str], *logins: BasicLogin
) -> Iterator[tuple[list[DirectExporter], list[int], Ticks]]:
    """Two policies' exporters of one broker, what was asked, and the clock of both."""
    asked: list[int] = []

    def counting(n: int) -> str:
        asked.append(n)
        return shown(n)

    clock = Ticks()
    with exporting(counting) as server:
        port = int(server.address.rpartition(":")[2])
        exporters = Exporters(wall=clock, monotonic=clock)
        opened = [
            exporters.open(
                "127.0.0.1", DirectSettings(PrometheusServer("http:", login), port, "/metrics")
            )
            for login in logins or (None, None)
        ]
        yield opened, asked, clock
        for one in opened:
            one.close()


@pytest.mark.parametrize("late_seconds", [0.0, 0.4, 1.1, 1.3, 1.9])
def test_two_policies_ask_an_exporter_once_every_two_seconds(late_seconds: float) -> None:
    with two(lambda n: page(START + n * 160e6, START)) as ((one, other), asked, clock):
        found: Mapping[Direction, Sequence[NicSpan]] = {}
        for turn in range(10):
            clock.now = NOW + 2 * turn
            one.read(scraped(), LIMITS)
            clock.now += late_seconds
            found = other.read(scraped(), LIMITS)
        assert len(asked) <= 11
        assert [round(span.bytes_per_second / 80e6, 1) for span in found[OUT][-8:]] == [1.0] * 8


def test_one_policy_that_ends_leaves_the_exporter_to_the_other() -> None:
    with two(lambda n: page(START + n, START)) as ((one, other), asked, clock):
        one.read(scraped(), LIMITS)
        other.read(scraped(), LIMITS)
        one.close()
        one.close()
        clock.now += 2
        assert len(other.read(scraped(), LIMITS)[OUT]) == 1
        assert len(asked) == 2


def test_an_exporter_is_opened_again_after_its_last_policy() -> None:
    exporters = Exporters()
    with exporting(lambda n: page(START, START)) as server:
        settings = DirectSettings(PrometheusServer("http:"), int(server.address.rpartition(":")[2]))
        for _ in range(2):
            with closing(exporters.open("127.0.0.1", settings)) as one:
                one.read(scraped(), LIMITS)
        assert (server.scrapes, exporters._open) == (2, [])


def test_another_login_is_another_session() -> None:
    logins = BasicLogin("a", "secret"), BasicLogin("a", "other")
    with two(lambda n: page(START, START), *logins) as ((one, other), asked, _):
        one.read(scraped(), LIMITS)
        other.read(scraped(), LIMITS)
        assert len(asked) == 2


def test_an_answer_of_before_the_newest_scrape_is_not_shared() -> None:
    with two(lambda n: page(START + n * 1000, START)) as ((one, other), asked, _):
        one.read(scraped(), LIMITS)
        other.read(scraped(sent=START + 500), LIMITS)
        assert len(asked) == 2


def test_a_failure_is_shared_too_and_each_goes_on_by_itself() -> None:
    pages = ["", page(START, START)]
    with two(lambda n: pages[min(n, 1)]) as ((one, other), asked, clock):
        for exporter in (one, other):
            with pytest.raises(NotRead, match="no interface eth0"):
                exporter.read(scraped(), LIMITS)
        assert len(asked) == 1
        clock.now += 2
        one.read(scraped(), LIMITS)
        other.read(scraped(), LIMITS)
        assert len(asked) == 2
