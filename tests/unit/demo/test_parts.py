"""A part that starts beside others is ready when asked, and is closed however the others end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from demo.parts import Beside
from lab.process import patience


class Part:
    """Opens when it is allowed to, and remembers what happened to it."""

    def __init__(self) -> None:
        self.may_open = threading.Event()
        self.history: list[str] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        assert self.may_open.wait(patience(10))
        self.history.append("opened")
        yield "part"
        self.history.append("closed")


def test_the_caller_goes_on_while_the_part_opens() -> None:
    part = Part()
    with Beside(part.running()) as beside:
        assert part.history == []
        part.may_open.set()
        assert beside.ready() == "part"
        assert part.history == ["opened"]
    assert part.history == ["opened", "closed"]


@contextmanager
def refusing() -> Iterator[str]:
    raise OSError("no such binary")
    yield "never"


def test_what_keeps_the_part_from_opening_reaches_whoever_asks_for_it() -> None:
    with Beside(refusing()) as beside, pytest.raises(OSError, match="no such binary"):
        beside.ready()


def interrupted_while(part: Part) -> None:
    """Ctrl-C comes while the part is still opening."""
    with Beside(part.running()):
        threading.Timer(0.05, part.may_open.set).start()
        raise KeyboardInterrupt


def test_a_part_still_opening_when_the_others_fail_is_closed_all_the_same() -> None:
    part = Part()
    with pytest.raises(KeyboardInterrupt):
        interrupted_while(part)
    assert part.history == ["opened", "closed"]
