"""What is known right now in experiments 2 and 3, for whoever watches: the state behind live view and plain lines. It decides nothing.

The experiment, the ZooKeeper watches and the readers of Kubernetes write to it from their own threads.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from demo.words import Mark, MarkKind

_EVENTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class TideSnapshot:
    """The board at one moment. `arriving` is level -> one rate a second, newest last; rates are bytes per second, None = not known."""

    title: str = ""
    activity: str = "setting up"
    activity_ends_at_seconds: float | None = None
    limit: int | None = None
    card_rate: float | None = None
    arriving: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    quotas: Mapping[str, int | None] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()


class TideBoard:
    """Thread-safe; every mark also goes to `on_mark` at once, every second of rates to `on_rates`, for views that print lines."""

    def __init__(self, *, on_mark: Callable[[Mark], None], on_rates: Callable[[TideSnapshot], None]) -> None:
        self._lock = threading.Lock()
        self._snapshot = TideSnapshot()
        self._marks: list[Mark] = []
        self._on_mark = on_mark
        self._on_rates = on_rates

    def snapshot(self) -> TideSnapshot:
        """The newest state; it never changes after it was handed out."""
        with self._lock:
            return self._snapshot

    def all_marks(self) -> tuple[Mark, ...]:
        """Every mark so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._marks, key=lambda mark: mark.at_seconds))

    def note(self, at_seconds: float, kind: MarkKind, text: str) -> None:
        """Note that something happened."""
        mark = Mark(at_seconds, kind, text)
        with self._lock:
            self._marks.append(mark)
            self._snapshot = replace(self._snapshot, marks=tuple(self._marks[-_EVENTS_SHOWN:]))
        self._on_mark(mark)

    def show_activity(self, title: str, activity: str, *, ends_at_seconds: float | None = None) -> None:
        """Say what is being waited for, and until when if that is known."""
        self._change(title=title, activity=activity, activity_ends_at_seconds=ends_at_seconds)

    def show_limit(self, limit: int) -> None:
        """Say which limit the broker has, in bytes per second."""
        self._change(limit=limit)

    def show_quota(self, level: str, quota: int | None) -> None:
        """Say which quota stands in ZooKeeper for the level."""
        self._change(quotas={**self.snapshot().quotas, level: quota})

    def show_state(self, level: str, state: str) -> None:
        """Say what the policy's status tells of the level."""
        self._change(states={**self.snapshot().states, level: state})

    def show_rates(self, arriving: Mapping[str, tuple[float, ...]], card_rate: float | None) -> None:
        """Give the last seconds of every level, and what the card sends."""
        self._change(arriving=dict(arriving), card_rate=card_rate)
        self._on_rates(self.snapshot())

    def _change(self, **changes: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)  # type: ignore[arg-type]  # the callers above name the fields
