"""The state of the running experiment: what the live view and plain lines show.

It draws nothing and decides nothing. The experiment, the watches of Kafka and the readers of
Kubernetes write to it from their own threads.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from demo.script import BROKERS, HEALTHY_LEADERS
from demo.words import Mark, MarkKind

_EVENTS_SHOWN = 10
HISTORY_SECONDS = 48


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The board at one moment. Rates are bytes per second, None = not known.

    `rates` is row -> one rate a second, newest last; a row is a partition (`p0`) in experiment 1, a
    level later. So are `states`, and `quotas`, but for experiment 1, where they are by user.
    `results` are lines about finished phases.
    """

    title: str = "Set-up"
    activity: str = "setting up"
    activity_ends_at_seconds: float | None = None
    alive: frozenset[int] = frozenset(BROKERS)
    leaders: Mapping[int, int] = field(default_factory=lambda: dict(HEALTHY_LEADERS))
    limit: int | None = None
    nic_rate: float | None = None
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    quotas: Mapping[str, int | None] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()


class Board:
    """The state of one experiment, for several threads.

    For views that print lines, every mark goes to `on_mark` and every second of rates to `on_rates`
    at once.
    """

    def __init__(
        self,
        *,
        on_mark: Callable[[Mark], None] | None = None,
        on_rates: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._snapshot = Snapshot()
        self._marks: list[Mark] = []
        self._on_mark = on_mark
        self._on_rates = on_rates

    def snapshot(self) -> Snapshot:
        """The newest state; it never changes after it was handed out."""
        with self._lock:
            return self._snapshot

    def marks(self) -> tuple[Mark, ...]:
        """Every mark so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._marks, key=lambda mark: mark.at_seconds))

    def mark(self, at_seconds: float, kind: MarkKind, text: str) -> None:
        """Note that something happened."""
        mark = Mark(at_seconds, kind, text)
        with self._lock:
            self._marks.append(mark)
            self._snapshot = replace(self._snapshot, marks=tuple(self._marks[-_EVENTS_SHOWN:]))
        if self._on_mark is not None:
            self._on_mark(mark)

    def show_activity(
        self, title: str, activity: str, *, ends_at_seconds: float | None = None
    ) -> None:
        """Show what is being waited for, and until when if that is known."""
        self._change(title=title, activity=activity, activity_ends_at_seconds=ends_at_seconds)

    def show_brokers(self, alive: frozenset[int]) -> None:
        """Show which brokers run."""
        self._change(alive=alive)

    def show_leaders(self, leaders: Mapping[int, int]) -> None:
        """Show which broker leads which partition."""
        self._change(leaders=dict(leaders))

    def show_limit(self, limit: int) -> None:
        """Show the broker's limit, in bytes per second."""
        self._change(limit=limit)

    def show_quota(self, row: str, quota: int | None) -> None:
        """Show the quota in force in Kafka for a user or a level."""
        self._change(quotas={**self.snapshot().quotas, row: quota})

    def show_state(self, level: str, state: str) -> None:
        """Show the level's state in the policy's status."""
        self._change(states={**self.snapshot().states, level: state})

    def show_rates(
        self, rates: Mapping[str, tuple[float, ...]], nic_rate: float | None = None
    ) -> None:
        """Show the last seconds of every row, and the rate of the broker's NIC."""
        snapshot = self._change(rates=dict(rates), nic_rate=nic_rate)
        if self._on_rates is not None:
            self._on_rates(snapshot)

    def show_result(self, result: str) -> None:
        """Add a line about a finished phase."""
        self._change(results=(*self.snapshot().results, result))

    def _change(self, **changes: object) -> Snapshot:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)  # type: ignore[arg-type]  # the callers above name the fields
            return self._snapshot
