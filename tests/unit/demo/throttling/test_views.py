"""A frame of experiments 2 and 3 fits the terminal and can be read there."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from demo.board import Board
from demo.script import LEVELS
from demo.views import PlainLines, throttling_view
from demo.words import MarkKind
from tests.goldens.golden import numbers

NEVER_CUT = (
    "tier",
    "12 s mean",
    "quota",
    "wants",
    "L3",
    "1.0 MB/s",
    "Throttled",
    "NIC 49.9 of 50 MB/s",
    "at most 10 s left",
)


@pytest.fixture
def board() -> Board:
    """In the middle of an episode, with more events than fit, all of them long."""
    board = Board()
    board.show_activity("Experiments 2 and 3, Tidegate", "tiers step down", ends_at_seconds=10.0)
    board.show_limit(50_000_000)
    for level in LEVELS:
        board.show_quota(level, 60_000_000)
        board.show_state(level, "Throttled")
    board.show_rates(dict.fromkeys(LEVELS, (1e6,) * 48), 49_900_000.0)
    for second in range(30):
        board.mark(
            float(second),
            MarkKind.EVENT,
            "BrokerOverLimit (BrokerBandwidthPolicy/demo): " + "a long message " * 20,
        )
    return board


def frame(board: Board, *, width: int, height: int) -> list[str]:
    """The lines of one frame on a terminal of that size."""
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None
    )
    with console.capture() as captured:
        console.print(throttling_view().draw(board.snapshot(), console, now_seconds=0.0))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("height", [24, 50])
def test_a_frame_fits_the_terminal_and_leaves_room_for_two_echoes_of_ctrl_c(
    width: int, height: int, board: Board
) -> None:
    lines = frame(board, width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width - len("^C^C")


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_that_counts_is_cut(width: int, board: Board) -> None:
    text = "\n".join(frame(board, width=width, height=24))
    for shown in NEVER_CUT:
        assert shown in text


def test_plain_lines_come_every_six_seconds_with_the_nic_against_its_limit(
    board: Board, golden: Callable[[str], None]
) -> None:
    stream = io.StringIO()
    view = PlainLines(stream, throttling_view())
    for _ in range(12):
        view.on_rates(board.snapshot())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert numbers(lines[0]) >= {1.0, 49.9, 50}
    golden(lines[0])


def test_marks_are_kept_in_the_order_of_time(board: Board) -> None:
    board.mark(-5.0, MarkKind.QUOTA, "earlier, seen later")
    assert board.marks()[0].text == "earlier, seen later"
