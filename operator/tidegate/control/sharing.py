"""Replicas share the policies: a hash gives each policy to one of the replicas that are alive.

Each replica has an ordinal, a number with a Lease `tidegate-replica-<group>-<number>` that it
renews. All replicas rank the ordinals of the living alike for each policy (rendezvous hashing), so
when one comes or goes only policies of its own ordinal move. A process that is started again takes
the ordinal that is free, and so gets the same policies back.

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


def ranked(policy_key: str, ordinals: Collection[int]) -> Sequence[int]:
    """The ordinals in the order in which they should hold the policy."""
    return sorted(
        ordinals,
        key=lambda ordinal: hashlib.sha256(f"{ordinal} {policy_key}".encode()).digest(),
        reverse=True,
    )


def next_to_hand_over(
    held: Collection[str], ordinal: int, ordinals: Collection[int], *, besides: Collection[int] = ()
) -> str | None:
    """One of the held policies that another of the living ordinals should hold; None when all fit.

    Those `besides` get none.
    """
    if not ordinals:
        return None
    kept = {ordinal, *besides}
    return next((key for key in sorted(held) if ranked(key, ordinals)[0] not in kept), None)


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

    An ordinal that was not renewed for `lapse_seconds` is free. Who is alive counts as unknown when
    it was not read for `unknown_seconds`.

    A free Lease is left for `turn_seconds` to each replica of a better rank. Policies are handed
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
    """This process among the replicas of its group, whose ordinals are Leases in `namespace`.

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
        self._ordinal: int | None = None
        self._is_released = False
        self._is_refused = False
        self._alive: Mapping[int, str] = {}
        self._alive_since = float("-inf")
        self._handed_over: tuple[str, int, float] | None = None  # to which ordinal, and when
        self._did_not_take: dict[int, float] = {}  # ordinals, since when

    def alive(self) -> Mapping[int, str] | None:
        """The living replicas: the ordinal and the identity of each. None = it is not known."""
        is_known = self._monotonic() - self._looked_at <= self._times.unknown_seconds
        return self._alive if is_known else None

    def seconds_until_due(self) -> float:
        """When `attend` has something to do again; 0 when it has now."""
        return max(0.0, self._next_look_at - self._monotonic())

    def attend(self) -> None:
        """Look who is alive, and take or renew an ordinal, if that is due. Raises TidegateError."""
        with self._one_at_a_time:
            if self.seconds_until_due() > 0 or self._is_released:
                return
            self._next_look_at = self._monotonic() + self._times.look_seconds
            try:
                self._look()
                self._note_alive()
                if self._ordinal is None or self._monotonic() >= self._renew_at:
                    self._take_or_renew()
                    self._note_alive()
            except RetryLater:
                raise
            except TidegateError:
                self._is_refused = True
                self._next_look_at = self._monotonic() + self._times.refused_seconds
                raise

    def release(self) -> None:
        """Give the ordinal back: others take this replica's policies as they become free."""
        with self._one_at_a_time:
            self._is_released = True
            ordinal, self._ordinal = self._ordinal, None
            if ordinal is None:
                return
            try:
                self._kubernetes.replace_lease(replace(self._seen[ordinal][0], holder=""))
            except TidegateError as error:
                log.warning("Ordinal could not be released; its Lease expires", error=error.message)

    def acquire_delay_seconds(self, policy_key: str, lapsed_holder: str) -> float:
        """How long to leave a free Lease to others of a better rank for the policy.

        `lapsed_holder` did not renew the Lease, so it counts as dead; "" = it was given up.
        """
        alive = self.alive()
        if alive is None:
            is_new = self._first_look_at is None and not self._is_refused
            return self._times.turn_seconds if is_new else 0.0
        rivals = [ordinal for ordinal, identity in alive.items() if identity != lapsed_holder]
        order = ranked(policy_key, rivals)
        rank = order.index(self._ordinal) if self._ordinal in order else len(order)
        return rank * self._times.turn_seconds

    def ranks_first(self, policy_key: str) -> bool:
        """Whether no living replica has a better right; True also while that is not known."""
        alive = self.alive()
        if not alive or self._ordinal is None:
            return True
        return ranked(policy_key, alive.keys())[0] == self._ordinal

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
            ordinal: at
            for ordinal, at in self._did_not_take.items()
            if now - at < self._times.keep_seconds
        }
        is_calm = now - self._alive_since >= self._times.calm_seconds
        if alive is None or self._ordinal is None or not is_calm:
            return None
        key = next_to_hand_over(held, self._ordinal, alive.keys(), besides=self._did_not_take)
        if key is not None:
            self._handed_over = (key, ranked(key, alive.keys())[0], now)
        return key

    def _is_in_flight(self, held: Collection[str], holder_of: Callable[[str], str]) -> bool:
        """Whether the last policy that was handed over has no holder yet, or only just has."""
        if self._handed_over is None:
            return False
        key, ordinal, at = self._handed_over
        passed_seconds = self._monotonic() - at
        if key in held:
            self._did_not_take[ordinal] = self._monotonic()
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
        # after a long gap it is not known how long an ordinal has been silent
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
        if self._ordinal is not None and not self._is_mine(self._ordinal):
            self._ordinal = None  # it was silent for too long, and another one has taken it
        if self._ordinal is None:  # the answer to our own writing may have been lost
            self._ordinal = next(
                (ordinal for ordinal in sorted(self._seen) if self._is_mine(ordinal)), None
            )

    def _is_mine(self, ordinal: int) -> bool:
        return ordinal in self._seen and self._seen[ordinal][0].holder == self._identity

    def _take_or_renew(self) -> None:
        """Renew the ordinal; without one take the lowest that is free, or make another one."""
        number = self._ordinal if self._ordinal is not None else self._free_ordinal()
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
            if self._ordinal is None:
                log.info("Replica has an ordinal", ordinal=number, group=self._group)
            self._ordinal = number

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

    def _free_ordinal(self) -> int | None:
        free = [ordinal for ordinal in self._seen if not self._is_alive(ordinal)]
        if free:
            return min(free)
        if any(since == self._first_look_at for _, since in self._seen.values()):
            return None  # not renewed since then: the process before this one may have been killed
        return next(number for number in range(len(self._seen) + 1) if number not in self._seen)

    def _is_alive(self, ordinal: int) -> bool:
        record, unchanged_since = self._seen[ordinal]
        is_silent = self._looked_at - unchanged_since >= self._times.lapse_seconds
        return record.holder != "" and not is_silent

    def _note_alive(self) -> None:
        alive = {
            ordinal: record.holder
            for ordinal, (record, _) in self._seen.items()
            if self._is_alive(ordinal)
        }
        if alive != self._alive:
            self._alive, self._alive_since = alive, self._monotonic()

    def _name(self, number: str) -> str:
        return f"tidegate-replica-{self._group}-{number}"
