"""The experiment as plain lines, for pipes and logs: every mark at once, the rates every few seconds."""

from typing import IO

from demo.board import Snapshot
from demo.views import recent_mean
from demo.words import Mark

_SECONDS_BETWEEN_RATES = 6


class PlainView:
    """Prints to `stream`; the board calls it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._seconds = 0

    def on_mark(self, mark: Mark) -> None:
        """One line for one thing that happened."""
        print(f"{mark.clock}  {mark.kind.value}: {mark.text}", file=self._stream, flush=True)

    def on_rates(self, board: Snapshot) -> None:
        """One line every six seconds: what is going on, and the 12-second means."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        means = {partition: recent_mean(rates) / 1e6 for partition, rates in sorted((board.history or {}).items())}
        rates = "  ".join(f"p{partition} {mean:5.1f}" for partition, mean in means.items())
        title = board.phase.title if board.phase else "Set-up"
        line = f"          {title} ({board.activity}): {rates}  total {sum(means.values()):5.1f} MB/s"
        print(line, file=self._stream, flush=True)
