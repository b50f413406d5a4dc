"""The first Ctrl-C ends the demo, and nothing interrupts the taking away that follows it."""

import os
import signal
from collections.abc import Iterator

import pytest

from demo.words import Interruption

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    """Signals are as in a terminal, whatever started this process (`nohup`); it has its own handlers back afterwards."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts(number: signal.Signals) -> None:
    Interruption(print)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_what_nohup_made_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Interruption(print)
    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


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


def test_it_is_said_once_and_before_anything_is_closed() -> None:
    history: list[str] = []
    interruption = Interruption(history.append)
    with pytest.raises(KeyboardInterrupt):
        interrupted(interruption, history)
    assert [len(history), history[-1]] == [2, "closed"]
    assert history[0].startswith("Interrupted.")


def test_what_fails_otherwise_is_not_called_an_interruption() -> None:
    said: list[str] = []
    interruption = Interruption(said.append)
    with pytest.raises(OSError, match="no broker"), interruption.reported():
        raise OSError("no broker")
    assert said == []
