"""A process that dies at a chosen call, before or after the call took effect, for tests of the
process after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


class Fate:
    """Counts calls; at call number `dies_at` (None = never) the process dies, `after` the call or
    before it.
    """

    def __init__(self, dies_at: int | None = None, *, after: bool = False) -> None:
        self.calls = 0
        self._dies_at = dies_at
        self._after = after

    def meet(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls - 1 != self._dies_at:
            return call()
        if self._after:
            call()
        raise Killed


class Mortal:
    """Passes every call on to `inner`, under one fate."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in ("watch", "close"):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._fate.meet(lambda: found(*args, **kwargs))

        return call
