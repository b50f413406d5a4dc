"""Which way of reading a server really offers: each is tried on real samples, best first, and what comes back decides, never the status.

The outcome is a value with the reasons why better ways were passed over, for logs and the policy's status.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.errors import RetryLater, TidegateError, Unreachable
from tidegate.rollup.samples import Selection, Transport
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.http_query import QueryRange, RangeSelector
from tidegate.rollup.transport.remote_read import RemoteReadChunks, RemoteReadSamples
from tidegate.rollup.transport.series import HistoryReader

RUNGS: tuple[type[HistoryReader], ...] = (RemoteReadChunks, RemoteReadSamples, RangeSelector, QueryRange)
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that the server should have: a small selection and a short range. `up` of some minutes will do for most."""

    selection: Selection
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A better way that was not taken, and why, as a sentence."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class HistoryReaders:
    """The way to read, and the better ones that were passed over."""

    rung: Transport
    passed_over: tuple[PassedOver, ...]

    def __str__(self) -> str:
        inexact = "" if self.rung.exact else ", which re-samples values"
        return "; ".join([f"reads by {self.rung.name}{inexact}", *(f"not by {one.name}: {one.why}" for one in self.passed_over)])


def open_rung(name: str, settings: HistorySettings) -> HistoryReader:
    """Return the way of this name, for workers, which get the name of the chosen one; raises KeyError for a name that is none."""
    return {rung.name: rung for rung in RUNGS}[name](settings)


def choose(settings: HistorySettings, probe: Probe) -> HistoryReaders:
    """The best way that gives samples for the probe. Where none gives any, the best that answers properly.

    A front end may take remote read and find nothing behind it, so an empty answer is believed only if the other ways give none either.
    Each way has half a minute to show what it can. Raises Unreachable when the server is away, or the last way's error when none works.
    """
    hasty = replace(settings, deadline_seconds=min(settings.deadline_seconds, _PROBE_SECONDS))
    rungs = [rung(hasty) for rung in RUNGS]
    try:
        found = choose_among(rungs, probe)
    finally:
        for rung in rungs:
            rung.close()
    return replace(found, rung=open_rung(found.rung.name, settings))


def choose_among(rungs: Sequence[Transport], probe: Probe) -> HistoryReaders:
    """`choose` among these, best first."""
    passed_over: list[PassedOver] = []
    empty: Transport | None = None
    failed: list[TidegateError] = []
    for rung in rungs:
        try:
            found = rung.read(probe.selection, probe.start_ms, probe.end_ms)
        except TidegateError as error:
            failed.append(error)
            passed_over.append(PassedOver(rung.name, error.message))
            continue
        if found:
            return HistoryReaders(rung, tuple(passed_over))
        empty = empty or rung
        passed_over.append(PassedOver(rung.name, "It answered without any samples, unlike the way that is taken."))
    if empty is None:
        raise _no_way(failed)
    better = [one.name for one in rungs].index(empty.name)
    return HistoryReaders(empty, tuple(passed_over[:better]))


def _no_way(failed: Sequence[TidegateError]) -> TidegateError:
    """The error of the most common way; the server is away if it was so to any of them, as it may come back."""
    away = [error for error in failed if isinstance(error, Unreachable)]
    later = [error for error in failed if isinstance(error, RetryLater)]
    return (away or later or list(failed))[-1]
