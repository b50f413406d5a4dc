"""Ctrl-C, SIGTERM and a closed terminal: the first ends the demo in order, what comes after it is ignored.

Taking everything away takes a few seconds, more while a part is still starting; a second Ctrl-C in them would leave brokers and
namespaces behind.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """From its making on, the first signal raises KeyboardInterrupt in the main thread; the others do nothing any more.

    A signal that was ignored before (`nohup`) stays ignored.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told = False
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say what happens now when the interruption passes here, before whatever is outside is closed; only once."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._told:
                self._told = True
                self._say("Interrupted. Stopping everything that was started; this takes up to 20 s.")
            raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
