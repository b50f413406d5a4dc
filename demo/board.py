"""What is known right now, for whoever watches: the state behind the live view. It draws nothing and decides nothing.

The experiment, the ZooKeeper watches and the reader of Kubernetes events write to it from their own threads.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from demo.outcome import PhaseResult
from demo.script import BROKERS, HEALTHY_LEADERS, Phase
from demo.words import Mark, MarkKind

# What is known right now in experiments 2 and 3, for whoever watches: the state behind live view
# and plain lines. It decides nothing.
#
# The experiment, the ZooKeeper watches and the readers of Kubernetes write to it from their own
# threads.


_THROTTLING_EVENTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ThrottlingSnapshot:
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


class ThrottlingBoard:
    """Thread-safe; every mark also goes to `on_mark` at once, every second of rates to `on_rates`, for views that print lines."""

    def __init__(self, *, on_mark: Callable[[Mark], None], on_rates: Callable[[ThrottlingSnapshot], None]) -> None:
        self._lock = threading.Lock()
        self._snapshot = ThrottlingSnapshot()
        self._marks: list[Mark] = []
        self._on_mark = on_mark
        self._on_rates = on_rates

    def snapshot(self) -> ThrottlingSnapshot:
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
            self._snapshot = replace(self._snapshot, marks=tuple(self._marks[-_THROTTLING_EVENTS_SHOWN:]))
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


_EVENTS_SHOWN = 8
HISTORY_SECONDS = 48


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The board at one moment. Rates are bytes per second; `history` holds one rate a second, newest last."""

    phase: Phase | None = None
    activity: str = "setting up"
    activity_ends_at_seconds: float | None = None
    alive: frozenset[int] = frozenset(BROKERS)
    leaders: Mapping[int, int] = field(default_factory=lambda: dict(HEALTHY_LEADERS))
    quota: int | None = None
    history: Mapping[int, tuple[float, ...]] | None = None
    marks: tuple[Mark, ...] = ()
    results: tuple[PhaseResult, ...] = ()


class Board:
    """Thread-safe; every mark also goes to `on_mark` at once, every second of rates to `on_rates`, for views that print lines."""

    def __init__(self, *, on_mark: Callable[[Mark], None], on_rates: Callable[[Snapshot], None]) -> None:
        self._lock = threading.Lock()
        self._snapshot = Snapshot()
        self._recent: deque[Mark] = deque(maxlen=_EVENTS_SHOWN)
        self._all_marks: list[Mark] = []
        self._on_mark = on_mark
        self._on_rates = on_rates

    def snapshot(self) -> Snapshot:
        """The newest state; it never changes after it was handed out."""
        with self._lock:
            return self._snapshot

    def marks(self) -> tuple[Mark, ...]:
        """Every mark so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._all_marks, key=lambda mark: mark.at_seconds))

    def mark(self, at_seconds: float, kind: MarkKind, text: str) -> None:
        """Note that something happened."""
        mark = Mark(at_seconds, kind, text)
        with self._lock:
            self._all_marks.append(mark)
            self._recent.append(mark)
            self._snapshot = replace(self._snapshot, marks=tuple(self._recent))
        self._on_mark(mark)

    def show_activity(self, phase: Phase, activity: str, *, ends_at_seconds: float | None = None) -> None:
        """Say what is being waited for, and until when if that is known."""
        self._change(phase=phase, activity=activity, activity_ends_at_seconds=ends_at_seconds)

    def show_brokers(self, alive: frozenset[int]) -> None:
        """Say which brokers run."""
        self._change(alive=alive)

    def show_leaders(self, leaders: Mapping[int, int]) -> None:
        """Say which broker leads which partition."""
        self._change(leaders=dict(leaders))

    def show_quota(self, quota: int | None) -> None:
        """Say which quota stands in ZooKeeper now, in bytes per second."""
        self._change(quota=quota)

    def show_rates(self, history: Mapping[int, tuple[float, ...]]) -> None:
        """Give the last seconds of every partition."""
        self._on_rates(self._change(history=dict(history)))

    def show_result(self, result: PhaseResult) -> None:
        """Add a finished phase."""
        self._change(results=(*self.snapshot().results, result))

    def _change(self, **changes: object) -> Snapshot:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)  # type: ignore[arg-type]  # the callers above name the fields
            return self._snapshot
