"""One writer per policy: a Lease that replicas hold in turn, safe without agreeing clocks.

Leases are in the operator's own namespace. A namespace that is being deleted loses what is in it
and accepts nothing new, while its policy still has quotas to restore.

The holder renews its Lease by compare-and-set. It counts its right to write from the moment
*before* the last successful renewal was sent, on its own monotonic clock, and gives it up
`margin_seconds` early. Every other replica counts from the moment *after* it last saw the Lease
change, on its own clock. It takes over only when the Lease did not change for its whole duration,
again by compare-and-set. Both count forwards from the same renewal, the holder from before it and
the others from after it, so their times of writing cannot overlap unless a clock runs wrong by more
than the margin. The times inside a Lease come from another clock and are never compared with ours.

The version of the last renewal is enough for the next: the Lease is read only when that one failed
or lost against another writer. Others look at one list of all Leases, and read theirs when its turn
is over by that.

A writer asks `remaining_seconds` first and begins nothing that takes longer: the Lease cannot stop
a request that is under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from tidegate.errors import Conflict, RetryLater, TidegateError, UserActionRequired
from tidegate.kube.api import Kubernetes, LeaseRecord
from tidegate.kube.rollup_jobs import POLICY_LABEL

POLICY_NAMESPACE_LABEL = "tidegate.io/policy-namespace"
MADE_BY_US = {"app.kubernetes.io/managed-by": "tidegate"}
_NEVER = float("-inf")
_LISTS_ASKED_WITHIN = 5  # looks; later no one asks, because all Leases are ours
_LOOKS_WITHOUT_LIST = 2.5  # then a Lease is read: the list may fail where its requests do not
_REFUSED_SECONDS = 60.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a turn, in seconds.

    `duration_seconds` without a renewal end a turn for others, `margin_seconds` less for the holder
    itself. `renew_seconds` is how often the holder renews it; one that failed is tried again after
    `look_seconds`, which is also how often others look. A holder that is gone is thus replaced
    `duration_seconds + look_seconds` after its last renewal at the latest.
    """

    duration_seconds: int = 10
    renew_seconds: float = 3.0
    look_seconds: float = 1.2
    margin_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseAddress:
    """Where a Lease is, and the labels that it has."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_policy(cls, policy_key: str, *, operator_namespace: str) -> LeaseAddress:
        """The Lease `tidegate.<policy's namespace>.<policy>`.

        No two policies share one: a namespace has no dot in its name.
        """
        namespace, _, name = policy_key.partition("/")
        labels = {**MADE_BY_US, POLICY_NAMESPACE_LABEL: namespace, POLICY_LABEL: name}
        return cls(operator_namespace, f"tidegate.{namespace}.{name}", labels)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaseList:
    """All policies' Leases, listed in one request for a replica that watches many of them.

    What it says only makes another one's turn last longer. A Lease that it does not show is read.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        *,
        times: LeaseTimes = LeaseTimes(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._look_seconds = times.look_seconds
        self._monotonic = monotonic
        # the Leases by name, and when they were asked for and answered
        self._answer: tuple[Mapping[str, LeaseRecord], float, float] = ({}, _NEVER, _NEVER)
        self._next_look_at = self._asked_at = _NEVER

    def seconds_until_due(self) -> float:
        """When `attend` has something to do again; endless while no one asks."""
        now = self._monotonic()
        is_asked = now - self._asked_at < _LISTS_ASKED_WITHIN * self._look_seconds
        return max(0.0, self._next_look_at - now) if is_asked else float("inf")

    def attend(self) -> None:
        """List them. Raises TidegateError; then what was listed before ages.

        Where that is refused it is tried again a minute later, and each Lease is read until then.
        """
        sent_at = self._monotonic()
        self._next_look_at = sent_at + self._look_seconds
        ((label, value),) = MADE_BY_US.items()
        try:
            found = self._kubernetes.list_leases(self._namespace, selector=f"{label}={value}")
        except UserActionRequired:
            self._next_look_at = sent_at + _REFUSED_SECONDS
            raise
        answered_at = self._monotonic()
        self._answer = ({lease.name: lease for lease in found}, sent_at, answered_at)

    def since(self, moment: float, name: str) -> tuple[LeaseRecord, float] | None:
        """The Lease as listed by a request sent after `moment`, and when that was answered.

        None = there was no such request, or it found none.
        """
        self._asked_at = self._monotonic()
        found, sent_at, answered_at = self._answer
        lease = found.get(name)
        return None if lease is None or sent_at <= moment else (lease, answered_at)


class SharedLease:
    """This process's part in a Lease that replicas hold in turn.

    For several threads: `attend` and `release` wait for each other. `identity` must be new for
    every process: a restarted one may not take its predecessor's turn for its own, because a
    request of that one may still be on its way. It waits like any other replica, unless the Lease
    was released.

    `acquire_delay_seconds` says for how long a Lease that is free is left to others. It gets the
    holder that did not renew it, or "" when it was released or never there.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        identity: str,
        address: LeaseAddress,
        *,
        times: LeaseTimes = LeaseTimes(),
        acquire_delay_seconds: Callable[[str], float] = lambda _: 0.0,
        listed: LeaseList | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._kubernetes = kubernetes
        self._identity = identity
        self._listed = listed
        self._acquire_delay_seconds = acquire_delay_seconds
        self._free_since: float | None = None
        self._address = address
        self._times = times
        self._monotonic = monotonic
        self._wall = wall
        self._seen: LeaseRecord | None = None
        self._seen_at = _NEVER
        self._answered_at = _NEVER
        self._next_look_at = _NEVER
        self._held_until = _NEVER
        self._is_last_write_known = False
        self._is_released = False
        self._one_at_a_time = threading.Lock()

    @property
    def holder(self) -> str:
        """Who held it when it was last read or written; "" when no one did or it was never read."""
        return "" if self._seen is None else self._seen.holder

    def remaining_seconds(self) -> float:
        """How much longer this process may write; 0 when it may not."""
        if self._is_released:
            return 0.0
        return max(0.0, self._held_until - self._monotonic())

    def seconds_until_due(self) -> float:
        """When `attend` has something to do again; 0 when it has now."""
        return max(0.0, self._next_look_at - self._monotonic())

    def is_soon_ours(self) -> bool:
        """Whether the holder missed a renewal and this replica is the next: it may get ready."""
        if self._seen is None or not self._is_anothers_turn():
            return False
        silent_seconds = self._monotonic() - self._seen_at
        is_late = silent_seconds >= self._times.renew_seconds + 2 * self._times.look_seconds
        return is_late and self._acquire_delay_seconds(self._seen.holder) == 0.0

    def attend(self) -> bool:
        """Acquire, renew or watch the Lease if that is due; return whether we may write now.

        Raises Unauthorized or another UserActionRequired when the rights on Leases are missing.
        When Kubernetes does not answer nothing is raised: the turn goes on until it runs out by
        itself. Once released it is never taken again.
        """
        with self._one_at_a_time:
            if self.seconds_until_due() == 0.0 and not self._is_released:
                self._next_look_at = self._monotonic() + self._times.look_seconds
                try:
                    self._look()
                except RetryLater as error:
                    _log.warning(
                        "Lease could not be read or written",
                        lease=str(self._address),
                        holder=self.holder,
                        error=error.message,
                    )
            return self.remaining_seconds() > 0.0

    def release(self, *, is_obsolete: bool = False) -> bool:
        """Give the Lease back for another replica to take; return whether that reached Kubernetes.

        One that `is_obsolete`, because its policy is gone, is deleted if it was ours. Call it when
        the last write has ended: from the first line of this on, this process may not write.
        Nothing is raised. A renewal under way ends first.
        """
        self._is_released = True
        with self._one_at_a_time:
            was_ours, self._held_until = self._held_until > _NEVER, _NEVER
            return was_ours and self._give_back(self._delete if is_obsolete else self._hand_over)

    def _give_back(self, part_with: Callable[[LeaseRecord], bool]) -> bool:
        try:
            if self._is_last_write_known and self._seen is not None:
                with suppress(Conflict):  # a person may have labelled it
                    return part_with(self._seen)
            present = self._read()
            return present is not None and present.holder == self._identity and part_with(present)
        except TidegateError as error:
            _log.warning(
                "Lease could not be released; it expires",
                lease=str(self._address),
                error=error.message,
            )
            return False

    def _hand_over(self, present: LeaseRecord) -> bool:
        self._seen = self._kubernetes.replace_lease(
            replace(present, holder="", renewed_at=self._wall())
        )
        return True

    def _delete(self, present: LeaseRecord) -> bool:
        self._kubernetes.delete_lease(present)
        self._seen = None
        return True

    def _read(self) -> LeaseRecord | None:
        return self._kubernetes.read_lease(self._address.namespace, self._address.name)

    def _look(self) -> None:
        if self._is_last_write_known and self._seen is not None:
            self._take(self._successor_of(self._seen), self._kubernetes.replace_lease)
            if self._is_last_write_known:
                return
        if self._is_anothers_turn_by_list():
            self._wait_for_its_end()
            return
        present = self._read()
        # A deleted Lease has no holder, but the last one may still be writing: that turn must run
        # out
        if present is not None or not self._is_anothers_turn():
            self._observe(present)
        if self._is_anothers_turn():
            self._wait_for_its_end()
        elif self._leaves_it_to_others(present):
            pass
        elif present is None:
            self._take(self._fresh(), self._kubernetes.create_lease)
        else:
            self._take(self._successor_of(present), self._kubernetes.replace_lease)

    def _wait_for_its_end(self) -> None:
        """Another one has the turn. A look a moment too early would cost a whole further period."""
        self._held_until, self._free_since = _NEVER, None
        self._next_look_at = min(self._next_look_at, self._others_turn_ends_at())

    def _leaves_it_to_others(self, present: LeaseRecord | None) -> bool:
        holder = "" if present is None else present.holder
        if holder == self._identity:
            return False
        now = self._monotonic()
        if self._free_since is None:
            self._free_since = now
        until = self._free_since + self._acquire_delay_seconds(holder)
        if now < until:
            self._next_look_at = min(self._next_look_at, until)
        return now < until

    def _observe(self, present: LeaseRecord | None) -> None:
        """Start counting again when the Lease changed.

        The clock is read after the answer came, so never too early.
        """
        if (
            present is None
            or self._seen is None
            or present.resource_version != self._seen.resource_version
        ):
            self._seen_at = self._monotonic()
        self._seen, self._answered_at = present, self._monotonic()

    def _is_anothers_turn_by_list(self) -> bool:
        """Whether a list from after the last answer about this Lease shows who holds it.

        A turn that ended, was given up or cannot be seen there is a matter for a request.
        """
        if self._listed is None or self._seen is None or self._seen.holder == self._identity:
            return False
        found = self._listed.since(self._answered_at, self._address.name)
        if found is None:
            silent_seconds = self._monotonic() - self._answered_at
            is_soon = silent_seconds < _LOOKS_WITHOUT_LIST * self._times.look_seconds
            return is_soon and self._is_anothers_turn()
        if found[0].holder in ("", self._identity):
            return False
        listed, answered_at = found
        if listed.resource_version != self._seen.resource_version:
            self._seen_at = answered_at
        self._seen, self._answered_at = listed, answered_at
        return self._is_anothers_turn()

    def _is_anothers_turn(self) -> bool:
        return self._monotonic() < self._others_turn_ends_at()

    def _others_turn_ends_at(self) -> float:
        """When the turn of the last seen holder ends; long ago without one or when it is ours."""
        if self._seen is None or self._seen.holder in ("", self._identity):
            return _NEVER
        return self._seen_at + (self._seen.duration_seconds or self._times.duration_seconds)

    def _successor_of(self, present: LeaseRecord) -> LeaseRecord:
        if present.holder == self._identity:
            return replace(present, duration_seconds=self._times.duration_seconds)
        return replace(
            self._fresh(),
            transitions=present.transitions + 1,
            resource_version=present.resource_version,
            labels={**present.labels, **self._address.labels},
        )

    def _fresh(self) -> LeaseRecord:
        now = self._wall()
        return LeaseRecord(
            self._address.namespace,
            self._address.name,
            self._identity,
            duration_seconds=self._times.duration_seconds,
            transitions=0,
            acquired_at=now,
            renewed_at=now,
            labels=self._address.labels,
        )

    def _take(self, lease: LeaseRecord, send: Callable[[LeaseRecord], LeaseRecord]) -> None:
        sent_at, self._is_last_write_known = self._monotonic(), False
        try:
            self._seen = send(replace(lease, renewed_at=self._wall()))
        except Conflict:
            return  # another writer was faster; reading shows which
        self._is_last_write_known = True
        self._free_since = None
        self._seen_at = self._monotonic()
        self._held_until = sent_at + lease.duration_seconds - self._times.margin_seconds
        self._next_look_at = sent_at + self._times.renew_seconds


_UNUSED_SECONDS = 60.0


class LeftLeases:
    """Deletes the operator's Leases of no use: their policy was let go while no replica held them.

    Another release may have policies of its own with Leases in the same namespace: those it renews.
    One that was not renewed for a minute is made again where it is needed after all.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._monotonic = monotonic
        self._seen: dict[tuple[str, str], float] = {}

    def delete(self, policies: Collection[str]) -> None:
        """Look once; `policies` are the keys of all that exist. Raises TidegateError."""
        now = self._monotonic()
        needed = {
            LeaseAddress.of_policy(key, operator_namespace=self._namespace).name for key in policies
        }
        ((label, value),) = MADE_BY_US.items()
        left = {
            (lease.name, lease.resource_version): lease
            for lease in self._kubernetes.list_leases(self._namespace, selector=f"{label}={value}")
            if lease.name not in needed
        }
        self._seen = {key: self._seen.get(key, now) for key in left}
        for key, lease in left.items():
            if now - self._seen[key] >= _UNUSED_SECONDS:
                with suppress(Conflict):  # it is needed after all
                    self._kubernetes.delete_lease(lease)
