"""Experiments 2 and 3 as plain lines, for pipes and logs: every mark at once, the rates every few seconds."""

from typing import IO

from demo.live_view import recent_mean
from demo.tide.board import TideSnapshot

_SECONDS_BETWEEN_RATES = 6


class TidePlainView:
    """Prints to `stream`; the board calls it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._seconds = 0

    def on_rates(self, board: TideSnapshot) -> None:
        """One line every six seconds: what is going on, the 12-second means, and the NIC against its limit."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        rates = "  ".join(f"{level} {recent_mean(one) / 1e6:5.1f}" for level, one in sorted(board.arriving.items()))
        print(f"          {board.title} ({board.activity}): {rates}  {nic_words(board)}", file=self._stream, flush=True)


def nic_words(board: TideSnapshot) -> str:
    """What the NIC sends, as a 12-second mean, of what it may."""
    sent = "unknown" if board.nic_rate is None else f"{board.nic_rate / 1e6:.1f}"
    return f"card {sent} of {'unknown' if board.limit is None else f'{board.limit / 1e6:g}'} MB/s"
