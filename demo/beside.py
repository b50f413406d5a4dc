"""A part that starts in a thread of its own while the caller starts others, and ends with the caller's context. It knows no parts."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A context manager around another: entering it returns at once, `ready` waits until the other is open.

    Leaving it first waits until the other is open or has failed, because something half open cannot be closed.
    """

    def __init__(self, part: AbstractContextManager[T]) -> None:
        self._part = part
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
        self._opened: Future[T] = Future()

    def __enter__(self) -> Self:
        self._opened = self._thread.submit(self._stack.enter_context, self._part)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True)
        self._stack.close()

    def ready(self) -> T:
        """What the part gave when it was open; raises what its opening raised."""
        return self._opened.result()
