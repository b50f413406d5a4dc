"""What a run of the demo prints: rates every six seconds, and marks in the order of time."""

import io
from collections.abc import Callable

import pytest

from demo.board import Board
from demo.script import LEVELS
from demo.words import MarkKind
from tests.goldens.golden import numbers


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def board(stream: io.StringIO) -> Board:
    """In the middle of an episode."""
    board = Board(stream)
    board.show_activity("Experiments 2 and 3, Tidegate", "tiers step down")
    return board


def test_plain_lines_come_every_six_seconds_with_the_nic_against_its_limit(
    stream: io.StringIO, board: Board, golden: Callable[[str], None]
) -> None:
    board.show_limit(50_000_000)
    for _ in range(12):
        board.show_rates(dict.fromkeys(LEVELS, (1e6,) * 12), 49_900_000.0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert numbers(lines[0]) >= {1.0, 49.9, 50}
    golden(lines[0])


def test_without_a_limit_the_rates_have_their_total(stream: io.StringIO, board: Board) -> None:
    for _ in range(6):
        board.show_rates({"p0": (9e6, 11e6), "p1": ()})
    assert stream.getvalue().endswith(": p0  10.0  p1   0.0  total  10.0 MB/s\n")


def test_marks_are_kept_in_the_order_of_time_and_said_as_they_come(
    stream: io.StringIO, board: Board
) -> None:
    board.mark(5.0, MarkKind.EVENT, "first seen")
    board.mark(-5.0, MarkKind.QUOTA, "earlier, seen later")
    assert [mark.text for mark in board.marks()] == ["earlier, seen later", "first seen"]
    assert [line.split("  ")[1] for line in stream.getvalue().splitlines()] == [
        "event: first seen",
        "quota write: earlier, seen later",
    ]
