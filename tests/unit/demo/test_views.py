"""A frame of a live view fits the terminal and can be read there."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from demo.board import Board
from demo.script import FIXED_KILLED, FULL, LEVELS, USER
from demo.views import PlainLines, View, failover_view, sparkline, throttling_view
from demo.words import MarkKind
from tests.goldens.golden import numbers
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

NEVER_CUT_IN_AN_EPISODE = (
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


FAILOVER, THROTTLING = failover_view(PER_PARTITION), throttling_view()


def frame(board: Board, view: View, *, width: int, height: int) -> list[str]:
    """The lines of one frame on a terminal of that size."""
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None
    )
    with console.capture() as captured:
        console.print(view.draw(board.snapshot(), console, now_seconds=0.0))
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


@pytest.fixture
def throttling_board() -> Board:
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


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("height", [24, 50])
def test_a_frame_fits_the_terminal_and_leaves_room_for_two_echoes_of_ctrl_c(
    width: int, height: int, board: Board, throttling_board: Board
) -> None:
    for shown, view in ((board, FAILOVER), (throttling_board, THROTTLING)):
        lines = frame(shown, view, width=width, height=height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width - len("^C^C")


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_that_counts_is_cut(width: int, board: Board, throttling_board: Board) -> None:
    failover = "\n".join(frame(board, FAILOVER, width=width, height=24))
    throttling = "\n".join(frame(throttling_board, THROTTLING, width=width, height=24))
    assert [shown for shown in NEVER_CUT if shown not in failover] == []
    assert [shown for shown in NEVER_CUT_IN_AN_EPISODE if shown not in throttling] == []


def test_before_the_first_rate_every_partition_is_there_with_none() -> None:
    empty = Board()
    text = "\n".join(frame(empty, FAILOVER, width=80, height=24))
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


def test_plain_lines_come_every_six_seconds_with_the_nic_against_its_limit(
    throttling_board: Board, golden: Callable[[str], None]
) -> None:
    stream = io.StringIO()
    view = PlainLines(stream, throttling_view())
    for _ in range(12):
        view.on_rates(throttling_board.snapshot())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert numbers(lines[0]) >= {1.0, 49.9, 50}
    golden(lines[0])


def test_marks_are_kept_in_the_order_of_time(throttling_board: Board) -> None:
    throttling_board.mark(-5.0, MarkKind.QUOTA, "earlier, seen later")
    assert throttling_board.marks()[0].text == "earlier, seen later"
