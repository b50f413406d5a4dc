"""Appends audit lines to a file or standard output, in a thread of its own: no quota waits for it.

A sink that fails fails no pass: lines that could not be written are lost and counted, a warning is
logged once, and the next lines are tried again. The first line written after that says how many are
missing, so that a reader of the trail alone sees the gap. `trail.py` composes the lines.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Protocol

import structlog

from tidegate.settings import STANDARD_STREAM
from tidegate_logic.words import rfc3339

log = structlog.get_logger(__name__)

_WAITING = 100  # passes; each keeps its whole decision in memory until its lines are composed
_CLOSE_SECONDS = 5.0
_MODE = 0o640

Count = Callable[[str, int], None]  # ("written" or "lost", how many lines)
Compose = Callable[[], list[str]]  # formats the lines; must not raise


EVENT = "Audit"  # marks a line in a log that holds others too
LOST = "lost"  # the kind of a line about missing lines; it is of no policy


def gap_text(lines: int) -> str:
    """The line that says how many are missing before it: of any policy of this process.

    A pass that a full queue refused counts as one. `t` is when there was room again.
    """
    at = rfc3339(time.time(), "milliseconds")
    line = {"event": EVENT, "kind": LOST, "t": at, "lines": lines}
    return json.dumps(line, separators=(",", ":"))


class Sink(Protocol):
    """Takes whole lines. `append` raises OSError when they were not all taken."""

    def append(self, text: str) -> None: ...

    def close(self) -> None: ...


class AuditFile(WatchedFileHandler):
    """One file that is only appended to; opened again when logrotate moved it away.

    The base class watches for that (`create`, `copytruncate`). The bytes are written here: a stream
    with a buffer would keep what a full disk refused and write it later, behind a torn line, when
    it has been counted as lost.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, delay=True)
        self._torn = False

    def append(self, text: str) -> None:
        """Write whole lines; a new one begins after a line torn by a crash or a full disk."""
        self.reopenIfNeeded()
        if self.stream is None:
            self.stream = self._open()
        data = b"\n" * self._torn + text.encode()
        self._torn = True
        _write_all(self.stream.fileno(), data)
        self._torn = False

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)
        size = os.fstat(descriptor).st_size
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return os.fdopen(descriptor, "a", encoding="utf-8")  # "a+" would refuse a pipe


class StandardOutput:
    """The process's standard output. A Pod's log has it beside the log lines of standard error."""

    def append(self, text: str) -> None:
        _write_all(sys.stdout.fileno(), text.encode())

    def close(self) -> None:
        """It is the process's."""


class Nowhere:
    """Keeps nothing."""

    def append(self, text: str) -> None:
        """Forgotten."""

    def close(self) -> None:
        """Nothing to close."""


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def sink_at(place: str) -> Sink:
    """The sink of the setting `audit_file`: a path, or `-`. A file is opened by the first line."""
    return StandardOutput() if place == STANDARD_STREAM else AuditFile(place)


class AuditQueue:
    """Has lines composed and appended, in the order they came; `put` never waits and never raises.

    Not logging's QueueHandler and QueueListener: the one prints what a full queue refuses, the
    other's `stop` waits without a limit for a sink that does not move, and the process would not
    end.
    """

    def __init__(self, sink: Sink, place: str, *, count: Count, beside: bool = True) -> None:
        self._sink = sink
        self._place = place
        self._count = count
        self._fails = False
        self._missing = 0  # lost since the last line that was written
        self._lock = threading.Lock()
        self._waiting: queue.Queue[Compose | None] = queue.Queue(_WAITING)
        self._hand = (
            threading.Thread(target=self._run, name="audit", daemon=True) if beside else None
        )
        if self._hand is not None:
            self._hand.start()

    def put(self, compose: Compose) -> None:
        """Queue one pass. With a full queue, because the sink hangs, it is lost.

        It counts as one lost line: how many it has is not known.
        """
        if self._hand is None:
            self._deliver(compose())
            return
        try:
            self._waiting.put_nowait(compose)
        except queue.Full:
            self._lose(1)

    def close(self) -> None:
        """Deliver what waits and close the sink. One that hangs is given up after a moment."""
        if self._hand is not None and self._hand.is_alive():
            try:
                self._waiting.put(None, timeout=_CLOSE_SECONDS)
            except queue.Full:
                return
            self._hand.join(_CLOSE_SECONDS)
            if self._hand.is_alive():
                return
        self._sink.close()

    def _run(self) -> None:
        while (compose := self._waiting.get()) is not None:
            self._deliver(compose())
        self._deliver([])  # the gap, if there is room for it by now

    def _lose(self, lines: int) -> None:
        with self._lock:
            self._missing += lines
        self._count("lost", lines)

    def _deliver(self, lines: list[str]) -> None:
        with self._lock:
            missing = self._missing
        if not lines and not missing:
            return
        gap = [gap_text(missing)] if missing else []
        try:
            self._sink.append("".join(f"{line}\n" for line in (*gap, *lines)))
        except (OSError, ValueError) as error:  # ValueError: standard output was closed
            self._lose(len(lines))
            if not self._fails:
                log.warning(
                    "Audit lines are lost",
                    place=self._place,
                    error=str(error),
                    meanwhile="quotas are managed as before",
                )
            self._fails = True
            return
        with self._lock:
            self._missing -= missing
        self._count("written", len(lines))
        if self._fails:
            log.info("Audit lines are written again", place=self._place)
        self._fails = False
