"""Choose how to read a server's history: each way is tried on real samples, best first.

What comes back decides, never the status. The outcome is a value with the reasons why better ways
were passed over, for logs and the policy's status.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.errors import RetryLater, TidegateError, Unreachable
from tidegate.rollup.samples import ReadRequest, Transport
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.http_query import QueryRange, RangeSelector
from tidegate.rollup.transport.remote_read import RemoteReadChunks, RemoteReadSamples
from tidegate.rollup.transport.series import HistoryReader

READERS: tuple[type[HistoryReader], ...] = (
    RemoteReadChunks,
    RemoteReadSamples,
    RangeSelector,
    QueryRange,
)
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A better way that was not taken, and why, as a sentence."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ChosenReader:
    """The way to read, and the better ones that were passed over."""

    reader: Transport
    passed_over: tuple[PassedOver, ...]

    def __str__(self) -> str:
        inexact = "" if self.reader.exact else ", which re-samples values"
        return "; ".join(
            [
                f"reads by {self.reader.name}{inexact}",
                *(f"not by {one.name}: {one.why}" for one in self.passed_over),
            ]
        )


def open_reader(name: str, settings: HistorySettings) -> HistoryReader:
    """Return the reader of this name, as workers get it; raises KeyError for an unknown one."""
    return {kind.name: kind for kind in READERS}[name](settings)


def choose_reader(settings: HistorySettings, probe: ReadRequest) -> ChosenReader:
    """Choose the best way that gives samples for the probe, else the best that answers properly.

    The server should have the probe, a small selection and a short range: `up` of minutes mostly.

    A front end may take remote read and find nothing behind it, so an empty answer is believed only
    if the other ways give none either. Each way has half a minute to show what it can. Raises
    Unreachable when the server does not answer, or the last way's error when none works.
    """
    hasty = replace(settings, deadline_seconds=min(settings.deadline_seconds, _PROBE_SECONDS))
    readers = [kind(hasty) for kind in READERS]
    try:
        found = choose_among(readers, probe)
    finally:
        for reader in readers:
            reader.close()
    return replace(found, reader=open_reader(found.reader.name, settings))


def choose_among(readers: Sequence[Transport], probe: ReadRequest) -> ChosenReader:
    """Choose among these, best first."""
    passed_over: list[PassedOver] = []
    empty: Transport | None = None
    failed: list[TidegateError] = []
    for reader in readers:
        try:
            found = reader.read(*probe)
        except TidegateError as error:
            failed.append(error)
            passed_over.append(PassedOver(reader.name, error.message))
            continue
        if found:
            return ChosenReader(reader, tuple(passed_over))
        empty = empty or reader
        passed_over.append(
            PassedOver(
                reader.name, "It answered without any samples, unlike the way that is taken."
            )
        )
    if empty is None:
        raise _no_way(failed)
    better = [one.name for one in readers].index(empty.name)
    return ChosenReader(empty, tuple(passed_over[:better]))


def _no_way(failed: Sequence[TidegateError]) -> TidegateError:
    """The error of the most common way; Unreachable if any was, as the server may come back."""
    away = [error for error in failed if isinstance(error, Unreachable)]
    later = [error for error in failed if isinstance(error, RetryLater)]
    return (away or later or list(failed))[-1]
