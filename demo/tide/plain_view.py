"""Experiments 2 and 3 as plain lines, for pipes and logs: every mark at once, the rates every few seconds."""

from typing import IO

from demo.tide.board import TideSnapshot
from demo.views import recent_mean

_SECONDS_BETWEEN_RATES = 6


class TidePlainView:
    """Prints to `stream`; the board calls it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._seconds = 0

    def on_rates(self, board: TideSnapshot) -> None:
        """One line every six seconds: what is going on, the 12-second means, and the card against its limit."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        rates = "  ".join(f"{level} {recent_mean(one) / 1e6:5.1f}" for level, one in sorted(board.arriving.items()))
        print(f"          {board.title} ({board.activity}): {rates}  {card_words(board)}", file=self._stream, flush=True)


def card_words(board: TideSnapshot) -> str:
    """What the card sends, as a 12-second mean, of what it may."""
    sent = "unknown" if board.card_rate is None else f"{board.card_rate / 1e6:.1f}"
    return f"card {sent} of {'unknown' if board.limit is None else f'{board.limit / 1e6:g}'} MB/s"
