"""A frame of the live view fits the terminal and can be read there."""

import io

import pytest
from rich.console import Console

from demo.board import Board
from demo.script import FIXED_KILLED, FULL, USER
from demo.views import failover_view, sparkline
from demo.words import MarkKind
from tests.unit.demo.conftest import PER_PARTITION, PlayedRun

NEVER_CUT = (
    *(
        "partition",
        "leader",
        "12 s mean",
        "promised",
        "10.0 MB/s",
        "30 MB/s",
        "quota 12.5 MB/s",
        "broker 3  dead",
        "10 s left",
    ),
    "Tidegate, Max, broker 3 killed: 40.0 MB/s",
)


def frame(board: Board, *, width: int, height: int) -> list[str]:
    """The lines of one frame on a terminal of that size."""
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None
    )
    with console.capture() as captured:
        console.print(failover_view(PER_PARTITION).draw(board.snapshot(), console, now_seconds=0.0))
    return captured.get().splitlines()


@pytest.fixture
def board(played: PlayedRun) -> Board:
    """Late in a run: every phase measured, more events than fit, all of them long."""
    board = Board()
    for result in played(FULL).results:
        board.show_result(f"measured  {result.phase.title}: {result.total / 1e6:.1f} MB/s in total")
    board.show_activity(FIXED_KILLED.title, "measuring", ends_at_seconds=10.0)
    board.show_quota(USER, 12_500_000)
    board.show_leaders(FIXED_KILLED.leaders)
    board.show_brokers(frozenset({1, 2}))
    board.show_rates(dict.fromkeys(("p0", "p1", "p2"), (10e6,) * 48))
    for second in range(20):
        board.mark(
            float(second),
            MarkKind.EVENT,
            "LeadersMoved (BusinessTier/accounting): " + "a long message " * 20,
        )
    return board


@pytest.mark.parametrize("width", [60, 80, 120, 200])
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


def test_before_the_first_rate_every_partition_is_there_with_none() -> None:
    empty = Board()
    text = "\n".join(frame(empty, width=80, height=24))
    assert text.count("0.0 MB/s") == 4


@pytest.mark.parametrize(
    ("rates", "highest", "drawn"),
    [
        ((0.0, 5.0, 10.0), 10.0, " ▄█"),
        ((0.0, 0.0), 0.0, "  "),
        ((20.0,), 10.0, "█"),
        ((), 10.0, ""),
    ],
)
def test_a_sparkline_has_one_character_a_rate(
    rates: tuple[float, ...], highest: float, drawn: str
) -> None:
    assert sparkline(rates, highest) == drawn
