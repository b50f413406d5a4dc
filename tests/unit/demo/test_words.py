"""Bounds and their verdicts, and the one thing that is said when somebody interrupts."""

import os
import signal
from collections.abc import Iterator

import pytest

from demo.words import Interruption, exact_check, rate_checks, reaction_check, within

# --- bounds ---------------------------------------------------------------------------------------
# A bound is kept or missed by its own limits, and what was not measured is missed.


@pytest.mark.parametrize(
    ("measured", "kept"),
    [
        (8_990_000, False),
        (9_000_000, True),
        (10_000_000, True),
        (10_500_000, True),
        (10_510_000, False),
    ],
)
def test_a_rate_may_be_ten_percent_below_and_five_above(measured: float, kept: bool) -> None:
    assert within("phase", "total", "MB/s", expected=10, measured=measured / 1e6).kept is kept


@pytest.mark.parametrize(
    ("seconds", "kept"), [(-0.2, True), (0.6, True), (5.0, True), (5.01, False), (None, False)]
)
def test_the_corrected_quota_must_come_within_five_seconds_after_the_election(
    seconds: float | None, kept: bool
) -> None:
    assert reaction_check(seconds).kept is kept


@pytest.mark.parametrize(("measured", "kept"), [(20.0, True), (20.1, False), (None, False)])
def test_an_exact_number_has_no_tolerance(measured: float | None, kept: bool) -> None:
    assert exact_check("phase", "quota", unit="MB/s", expected=20.0, measured=measured).kept is kept


def test_a_broker_that_delivered_nothing_misses_its_bound() -> None:
    rows = rate_checks("phase", {1: 10e6, 2: 10e6}, measured_by_broker={1: 10e6})
    assert [row.kept for row in rows] == [True, False, False]


def test_traffic_of_a_broker_that_should_have_none_counts_in_the_total() -> None:
    rows = rate_checks("phase", {1: 10e6}, measured_by_broker={1: 10e6, 3: 5e6})
    assert [row.kept for row in rows] == [True, False]


# --- interruptions --------------------------------------------------------------------------------
# The first Ctrl-C ends the demo, and nothing interrupts the taking away that follows it.


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers_come_back() -> Iterator[None]:
    """Signals are as in a terminal, whatever started this process (`nohup`); it has its own
    handlers back afterwards.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_come_back")
@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts(number: signal.Signals) -> None:
    Interruption(print)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


@pytest.mark.usefixtures("handlers_come_back")
def test_what_nohup_made_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Interruption(print)
    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.usefixtures("handlers_come_back")
def test_a_second_signal_does_not_disturb_the_taking_away() -> None:
    Interruption(print)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    for number in SIGNALS:
        os.kill(os.getpid(), number)


def interrupted(interruption: Interruption, history: list[str]) -> None:
    """Ctrl-C inside two parts that both tell."""
    with interruption.reported():
        try:
            with interruption.reported():
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            history.append("closed")


@pytest.mark.usefixtures("handlers_come_back")
def test_it_is_said_once_and_before_anything_is_closed() -> None:
    history: list[str] = []
    interruption = Interruption(history.append)
    with pytest.raises(KeyboardInterrupt):
        interrupted(interruption, history)
    assert [len(history), history[-1]] == [2, "closed"]
    assert history[0].startswith("Interrupted.")


@pytest.mark.usefixtures("handlers_come_back")
def test_what_fails_otherwise_is_not_called_an_interruption() -> None:
    said: list[str] = []
    interruption = Interruption(said.append)
    with pytest.raises(OSError, match="no broker"), interruption.reported():
        raise OSError("no broker")
    assert said == []
