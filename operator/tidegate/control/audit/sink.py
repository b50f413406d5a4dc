"""Where audit lines go: appended to a file or to standard output, by a thread of its own, so that no quota waits for words or a disk.

A sink that fails fails no pass: what could not be written is lost, counted, and said once, and the next lines are tried again. What a line
says is decided elsewhere.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from tidegate.settings import STANDARD_STREAM

log = structlog.get_logger(__name__)

_WAITING = 100  # passes; each keeps all that it decided in memory until it is told
_CLOSE_SECONDS = 5.0
_MODE = 0o640

Count = Callable[[str, int], None]  # ("written" or "lost", how many lines)
Compose = Callable[[], list[str]]  # puts lines into words; must not raise


class Sink(Protocol):
    """Takes whole lines. Raises OSError when they were not all taken."""

    def append(self, text: str) -> None: ...


class AuditFile:
    """One file that is only ever appended to; opened anew when its owner moved it away (logrotate with `create` or `copytruncate`)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._torn = False

    def append(self, text: str) -> None:
        """Write lines that end with a line break. After a line that was torn by a crash or a full disk a new one begins."""
        descriptor = self._open()
        data = b"\n" * self._torn + text.encode()
        self._torn = True
        _write_all(descriptor, data)
        self._torn = False

    def _open(self) -> int:
        if self._descriptor is not None and not self._was_moved(self._descriptor):
            return self._descriptor
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        return self._descriptor

    def _was_moved(self, descriptor: int) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return True


class StandardOutput:
    """The process's standard output, which a Pod's log keeps beside the log lines on standard error."""

    def append(self, text: str) -> None:
        _write_all(sys.stdout.fileno(), text.encode())


class Nowhere:
    """Keeps nothing."""

    def append(self, text: str) -> None:
        """Forgotten."""


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def sink_at(place: str) -> Sink:
    """The sink of the setting `audit_file`: a path, or `-`. Nothing is opened before the first line."""
    return StandardOutput() if place == STANDARD_STREAM else AuditFile(place)


class AuditDesk:
    """Has lines composed and hands them to the sink, in the order in which they came; `put` never waits and never raises."""

    def __init__(self, sink: Sink, place: str, *, count: Count, beside: bool = True) -> None:
        self._sink = sink
        self._place = place
        self._count = count
        self._fails = False
        self._waiting: queue.Queue[Compose | None] = queue.Queue(_WAITING)
        self._hand = threading.Thread(target=self._run, name="audit", daemon=True) if beside else None
        if self._hand is not None:
            self._hand.start()

    def put(self, compose: Compose) -> None:
        """What does not fit any more, because the sink stands still, is lost; how many lines it was, nobody knows, so it counts as one."""
        if self._hand is None:
            self._deliver(compose())
            return
        try:
            self._waiting.put_nowait(compose)
        except queue.Full:
            self._count("lost", 1)

    def close(self) -> None:
        """Deliver what waits; a sink that stands still is given up after a moment."""
        if self._hand is None or not self._hand.is_alive():
            return
        try:
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        except queue.Full:
            return
        self._hand.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (compose := self._waiting.get()) is not None:
            self._deliver(compose())

    def _deliver(self, lines: list[str]) -> None:
        if not lines:
            return
        try:
            self._sink.append("".join(f"{line}\n" for line in lines))
        except (OSError, ValueError) as error:  # ValueError: standard output was closed
            self._count("lost", len(lines))
            if not self._fails:
                log.warning("Audit lines are lost", place=self._place, error=str(error), meanwhile="quotas are managed as before")
            self._fails = True
            return
        self._count("written", len(lines))
        if self._fails:
            log.info("Audit lines are written again", place=self._place)
        self._fails = False
