"""Experiments 2 and 3 as a part of the demo: the broker that was killed comes back, Tidegate's episode, then the published way."""

from contextlib import ExitStack

from rich.console import Console

from demo.estate import Estate
from demo.interruption import Interruption
from demo.kafka_administrator import revive
from demo.plain_view import PlainView
from demo.script import VICTIM
from demo.throttling import TITLE, play_tidegate, withdraw
from demo.tide.again import played
from demo.tide.board import TideBoard
from demo.tide.card import card_source
from demo.tide.cliff import play_cliff
from demo.tide.length import TideLength
from demo.tide.live_view import tide_live_view
from demo.tide.load import make_topic
from demo.tide.outcome import TideOutcome
from demo.tide.plain_view import TidePlainView
from demo.words import Mark


def run_tide(console: Console, parts: Estate, length: TideLength, *, interruption: Interruption) -> tuple[TideOutcome, tuple[Mark, ...]]:
    """Play both experiments both ways, as far as the length says; also gives everything that happened."""
    with ExitStack() as stack:
        board = _watched(console, stack)
        stack.enter_context(interruption.told())
        board.show_activity(TITLE, "the killed broker comes back, and a topic is filled")
        revive(parts.kafka, VICTIM)
        make_topic(parts.kafka)
        gate, left_out = played(lambda run: play_tidegate(parts, board, length, run=run), tell=board.note)
        cliff = None
        if length.plays_cliff:
            # Whoever writes quotas by hand must be alone with them. This gives every quota back.
            withdraw(parts)
            cliff = play_cliff(parts, board, length)
        return TideOutcome(length, gate, cliff, card_source(parts.kafka), left_out), board.all_marks()


def _watched(console: Console, stack: ExitStack) -> TideBoard:
    """The board, with a live view on a terminal, plain lines elsewhere."""
    if console.is_terminal:
        board = TideBoard(on_mark=lambda _: None, on_rates=lambda _: None)
        stack.enter_context(tide_live_view(console, board.snapshot))
        return board
    return TideBoard(on_mark=PlainView(console.file).on_mark, on_rates=TidePlainView(console.file).on_rates)
