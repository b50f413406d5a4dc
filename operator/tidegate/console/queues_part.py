"""Delay queues on the page Now: a row for each, the worst first, that opens to one for each delay.

Pure. The row of the delays is hidden by the style sheet until the `details` above it is open.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup, escape

from tidegate.console.markup import (
    HEAD,
    MOST_ROWS,
    Column,
    Columns,
    joined,
    name,
    section,
    table,
    table_row,
    unknown,
)
from tidegate.console.parts import Kept, Part
from tidegate.view.queues import DelayNow, QueueNow, Severity, is_late
from tidegate_logic.words import age_words


def queues_of(queues: Sequence[QueueNow], age: str, kept: Kept) -> Iterator[Part]:
    """Nothing without queues. `age` is how old all of it is, "" = it is of now."""
    if not queues:
        return
    rows = tuple(row for queue in queues[:MOST_ROWS] for row in _rows(queue, kept))
    inside = table(_QUEUE, labelled_by="queues")
    if len(queues) > MOST_ROWS:
        more = Markup("<p>and {} more: kubectl get delayqueues</p>")
        inside += more.format(len(queues) - MOST_ROWS)
    yield Part("queues", section("queues", "Delay queues", inside, age=age), rows)


def _rows(queue: QueueNow, kept: Kept) -> tuple[Part, Part]:
    def made() -> tuple[Part, Part]:
        delays = Markup('<tr class="delays"><td colspan="{}">{}</td></tr>').format(
            len(_QUEUE), _delays(queue)
        )
        return Part(queue.key, table_row(_QUEUE, queue)), Part(f"{queue.key} delays", delays)

    return kept.piece(f"queue {queue.key}", (queue,), made)


def _delays(queue: QueueNow) -> Markup:
    if not queue.delays:
        return Markup('<p class="unknown">The topics of its delays are not known.</p>')
    return table(_DELAY, queue.delays, label=str(escape(f"Delays of {queue.key}")))


def _opens(queue: QueueNow) -> Markup:
    return Markup("<details><summary>{}</summary></details>").format(name(queue.key))


def _number(count: int | None) -> Markup:
    if count is None:
        return unknown()
    return Markup('<span class="number">{}</span>').format(count)


def _late(seconds: int | None) -> Markup:
    if seconds is None:
        return unknown()
    kind = "number late" if is_late(seconds) else "number"
    return Markup('<span class="{}">{}</span>').format(kind, age_words(seconds))


def _forwarders(queue: QueueNow) -> Markup:
    there = unknown() if queue.forwarders is None else queue.forwarders
    return Markup("{} of {}").format(there, queue.wanted)


def _state(queue: QueueNow) -> Markup:
    """A line for each trouble; the colour is never all that says it."""
    if not queue.troubles:
        return Markup('<span class="state state-fine">on time</span>')
    return joined(
        Markup('<div><span class="state state-{}">{}</span> {}</div>').format(
            _TONES[trouble.severity], trouble.reason, trouble.message
        )
        for trouble in queue.troubles
    )


def _delay_words(delay: DelayNow) -> str:
    """The seconds, as topics have them in their names, and what that is."""
    exact, words = f"{delay.seconds} s", age_words(delay.seconds)
    return exact if words == exact else f"{exact} ({words})"


_TONES: Final = {Severity.BAD: "bad", Severity.UNKNOWN: "unknown", Severity.WATCH: "watch"}
_QUEUE: Final[Columns[QueueNow]] = (
    Column("Queue", _opens, HEAD),
    Column("Guarantee", lambda queue: queue.guarantee),
    Column("Waiting", lambda queue: _number(queue.waiting), "right"),
    Column("Oldest late", lambda queue: _late(queue.late_seconds), "right"),
    Column("Records/s", lambda queue: _number(queue.per_second), "right"),
    Column("Forwarders", _forwarders, "right"),
    Column("Dead", lambda queue: _number(queue.dead), "right"),
    Column("State", _state, "why"),
)
_DELAY: Final[Columns[DelayNow]] = (
    Column("Delay", _delay_words, HEAD),
    Column("Topics", lambda delay: delay.topics, "right"),
    Column("Waiting", lambda delay: _number(delay.waiting), "right"),
    Column("Oldest late", lambda delay: _late(delay.late_seconds), "right"),
    Column("Records/s", lambda delay: _number(delay.per_second), "right"),
)
