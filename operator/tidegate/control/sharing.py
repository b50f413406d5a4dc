"""Replicas share the policies: a hash gives each policy to one of the replicas that are alive.

Each replica has a seat, a number with a Lease `tidegate-replica-<group>-<number>` that it renews.
All replicas rank the seats of the living alike for each policy (rendezvous hashing), so when one
comes or goes only policies of its own seat move. A process that is started again takes the seat
that is free, and so gets the same policies back.

This is about who should hold a policy's Lease, never about who may write: that is the Lease's
matter alone. A replica that cannot say who is alive, because it lacks the rights, was away or saw
its clock jump, takes every free Lease at once and hands none over, as one without others does.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from tidegate.errors import Conflict, RetryLater, TidegateError
from tidegate.kube.api import Kubernetes, LeaseRecord
from tidegate.kube.lease import MADE_BY_US

log = structlog.get_logger(__name__)

# --- who should hold what: pure -------------------------------------------------------------------


def by_right(policy_key: str, seats: Collection[int]) -> Sequence[int]:
    """The seats in the order in which they should hold the policy."""
    return sorted(
        seats,
        key=lambda seat: hashlib.sha256(f"{seat} {policy_key}".encode()).digest(),
        reverse=True,
    )


def next_to_hand_over(
    held: Collection[str], seat: int, seats: Collection[int], *, besides: Collection[int] = ()
) -> str | None:
    """One of the held policies that another of the living seats should hold; None when all fit.

    Those `besides` get none.
    """
    if not seats:
        return None
    kept = {seat, *besides}
    return next((key for key in sorted(held) if by_right(key, seats)[0] not in kept), None)


def group_of(namespaces: Collection[str]) -> str:
    """The name of replicas that watch the same namespaces; none = the whole cluster.

    Two releases whose Leases are in one namespace watch different ones, and do not share.
    """
    words = "\n".join(sorted(namespaces))
    return hashlib.sha256(words.encode()).hexdigest()[:8] if namespaces else "all"


# --- who is alive ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharingTimes:
    """The times of sharing, in seconds.

    A seat that was not renewed for `lapse_seconds` is free. Who is alive counts as unknown when it
    was not read for `unknown_seconds`.

    A free Lease is left to each replica with a better right for `turn_seconds`. Policies are handed
    over when the same replicas were alive for `calm_seconds`: one, and the next when that one has
    another holder, `pace_seconds` later at the earliest. To a replica that did not take one none is
    handed over for `keep_seconds`.
    """

    look_seconds: float = 2.0
    renew_seconds: float = 4.0
    lapse_seconds: int = 12
    unknown_seconds: float = 6.0
    turn_seconds: float = 3.0
    calm_seconds: float = 8.0
    pace_seconds: float = 1.0
    untaken_seconds: float = 10.0
    keep_seconds: float = 300.0
    refused_seconds: float = 60.0


_GROUP_LABEL = "tidegate.io/replicas"


class Sharing:
    """This process among the replicas of its group, whose seats are Leases in `namespace`.

    For several threads; only one of them hands over.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        identity: str,
        *,
        namespace: str,
        group: str,
        times: SharingTimes = SharingTimes(),
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._kubernetes = kubernetes
        self._identity = identity
        self._namespace = namespace
        self._group = group
        self._times = times
        self._monotonic = monotonic
        self._wall = wall
        self._one_at_a_time = threading.Lock()
        self._next_look_at = float("-inf")
        self._renew_at = float("-inf")
        self._first_look_at: float | None = None
        self._looked_at = float("-inf")
        self._seen: dict[int, tuple[LeaseRecord, float]] = {}  # with since when it is unchanged
        self._seat: int | None = None
        self._is_released = False
        self._is_refused = False
        self._alive: Mapping[int, str] = {}
        self._alive_since = float("-inf")
        self._handed_over: tuple[str, int, float] | None = None  # to which seat, and when
        self._did_not_take: dict[int, float] = {}  # seats, since when

    @property
    def seat(self) -> int | None:
        """The number of this replica's seat; None while it has none."""
        return self._seat

    def alive(self) -> Mapping[int, str] | None:
        """The living replicas: the seat and the identity of each. None = it is not known."""
        is_known = self._monotonic() - self._looked_at <= self._times.unknown_seconds
        return self._alive if is_known else None

    def seconds_until_due(self) -> float:
        """When `attend` has something to do again; 0 when it has now."""
        return max(0.0, self._next_look_at - self._monotonic())

    def attend(self) -> None:
        """Look who is alive, and take or renew a seat, if that is due. Raises TidegateError."""
        with self._one_at_a_time:
            if self.seconds_until_due() > 0 or self._is_released:
                return
            self._next_look_at = self._monotonic() + self._times.look_seconds
            try:
                self._look()
                self._note_alive()
                if self._seat is None or self._monotonic() >= self._renew_at:
                    self._sit()
                    self._note_alive()
            except RetryLater:
                raise
            except TidegateError:
                self._is_refused = True
                self._next_look_at = self._monotonic() + self._times.refused_seconds
                raise

    def release(self) -> None:
        """Leave the seat, so that others take this replica's policies as they become free."""
        with self._one_at_a_time:
            self._is_released = True
            seat, self._seat = self._seat, None
            if seat is None:
                return
            try:
                self._kubernetes.replace_lease(replace(self._seen[seat][0], holder=""))
            except TidegateError as error:
                log.warning("Seat could not be given back; it ends by itself", error=error.message)

    def patience_seconds(self, policy_key: str, lapsed_holder: str) -> float:
        """How long to leave a free Lease to others with a better right to the policy.

        `lapsed_holder` did not renew the Lease, so it counts as dead; "" = it was given up.
        """
        alive = self.alive()
        if alive is None:
            is_new = self._first_look_at is None and not self._is_refused
            return self._times.turn_seconds if is_new else 0.0
        rivals = [seat for seat, identity in alive.items() if identity != lapsed_holder]
        ranked = by_right(policy_key, rivals)
        rank = ranked.index(self._seat) if self._seat in ranked else len(ranked)
        return rank * self._times.turn_seconds

    def ranks_first(self, policy_key: str) -> bool:
        """Whether no living replica has a better right; True also while that is not known."""
        alive = self.alive()
        if not alive or self._seat is None:
            return True
        return by_right(policy_key, alive.keys())[0] == self._seat

    def next_to_hand_over(
        self, held: Collection[str], holder_of: Callable[[str], str]
    ) -> str | None:
        """The policy to give up now, for the replica that should hold it.

        `held` are those that this replica works for; `holder_of` has the holder of a policy's Lease
        as it was last seen, "" for none.
        """
        now, alive = self._monotonic(), self.alive()
        if self._is_in_flight(held, holder_of):
            return None
        self._did_not_take = {
            seat: at
            for seat, at in self._did_not_take.items()
            if now - at < self._times.keep_seconds
        }
        is_calm = now - self._alive_since >= self._times.calm_seconds
        if alive is None or self._seat is None or not is_calm:
            return None
        key = next_to_hand_over(held, self._seat, alive.keys(), besides=self._did_not_take)
        if key is not None:
            self._handed_over = (key, by_right(key, alive.keys())[0], now)
        return key

    def _is_in_flight(self, held: Collection[str], holder_of: Callable[[str], str]) -> bool:
        """Whether the last policy that was handed over has no holder yet, or only just has."""
        if self._handed_over is None:
            return False
        key, seat, at = self._handed_over
        passed_seconds = self._monotonic() - at
        if key in held:
            self._did_not_take[seat] = self._monotonic()
        elif passed_seconds < self._times.pace_seconds or (
            not holder_of(key) and passed_seconds < self._times.untaken_seconds
        ):
            return True
        self._handed_over = None
        return False

    def _look(self) -> None:
        found = self._kubernetes.list_leases(
            self._namespace, selector=f"{_GROUP_LABEL}={self._group}"
        )
        now = self._monotonic()
        # after a long gap it is not known how long a seat has been silent
        is_gap = now - self._looked_at > self._times.unknown_seconds
        before = {} if is_gap else self._seen
        if is_gap:
            self._alive_since = now
        self._looked_at, self._seen = now, {}
        if self._first_look_at is None:
            self._first_look_at = now
        for record in found:
            number = record.name.removeprefix(self._name(""))
            if not number.isdecimal():
                continue
            known, since = before.get(int(number), (None, now))
            is_same = known is not None and known.resource_version == record.resource_version
            self._seen[int(number)] = (record, since if is_same else now)
        if self._seat is not None and not self._is_mine(self._seat):
            self._seat = None  # it was silent for too long, and another one has taken it
        if self._seat is None:  # the answer to our own writing may have been lost
            self._seat = next((seat for seat in sorted(self._seen) if self._is_mine(seat)), None)

    def _is_mine(self, seat: int) -> bool:
        return seat in self._seen and self._seen[seat][0].holder == self._identity

    def _sit(self) -> None:
        """Renew the seat; without one take the lowest that is free, or make another one."""
        number = self._seat if self._seat is not None else self._free_seat()
        if number is None:
            return
        now = self._wall()
        wanted = LeaseRecord(
            self._namespace,
            self._name(str(number)),
            self._identity,
            duration_seconds=self._times.lapse_seconds,
            transitions=0,
            acquired_at=now,
            renewed_at=now,
            labels={**MADE_BY_US, _GROUP_LABEL: self._group},
        )
        sent_at = self._monotonic()
        with suppress(Conflict):  # another one was faster; the next look shows which
            self._seen[number] = (self._written(wanted, self._seen.get(number)), self._monotonic())
            self._renew_at = sent_at + self._times.renew_seconds
            if self._seat is None:
                log.info("Replica has a seat", seat=number, group=self._group)
            self._seat = number

    def _written(
        self, wanted: LeaseRecord, present: tuple[LeaseRecord, float] | None
    ) -> LeaseRecord:
        if present is None:
            return self._kubernetes.create_lease(wanted)
        if present[0].holder == self._identity:
            return self._kubernetes.replace_lease(replace(present[0], renewed_at=wanted.renewed_at))
        return self._kubernetes.replace_lease(
            replace(
                wanted,
                transitions=present[0].transitions + 1,
                resource_version=present[0].resource_version,
            )
        )

    def _free_seat(self) -> int | None:
        free = [seat for seat in self._seen if not self._is_alive(seat)]
        if free:
            return min(free)
        if any(since == self._first_look_at for _, since in self._seen.values()):
            return None  # not renewed since then: the process before this one may have been killed
        return next(number for number in range(len(self._seen) + 1) if number not in self._seen)

    def _is_alive(self, seat: int) -> bool:
        record, unchanged_since = self._seen[seat]
        is_silent = self._looked_at - unchanged_since >= self._times.lapse_seconds
        return record.holder != "" and not is_silent

    def _note_alive(self) -> None:
        alive = {
            seat: record.holder for seat, (record, _) in self._seen.items() if self._is_alive(seat)
        }
        if alive != self._alive:
            self._alive, self._alive_since = alive, self._monotonic()

    def _name(self, number: str) -> str:
        return f"tidegate-replica-{self._group}-{number}"
