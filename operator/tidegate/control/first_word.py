"""Says a first word of something that takes long, and nothing of what is over before anybody would have asked.

It knows nothing of what is said. A first pass reports itself when it ends; only one that waits for a cluster that does not answer needs
somebody to say meanwhile that it was seen.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

FIRST_WORD_AFTER_SECONDS = 5.0


@contextmanager
def first_word(say: Callable[[], None], after_seconds: float) -> Iterator[Callable[[], None]]:
    """Call `say`, from another thread, if neither the body is over after that time nor what the body was given was called.

    After that call, and on leaving, it has been said to its end or will never be said, so that what is said next has the last word.
    """
    timer = Timer(after_seconds, say)
    timer.daemon = True
    timer.start()

    def unneeded() -> None:
        timer.cancel()
        timer.join()

    try:
        yield unneeded
    finally:
        unneeded()
