"""Runs a loop for each policy whose Lease this replica holds.

Why a loop for each policy, and not kopf's handlers: what a pass decides depends on all objects of a
policy at once (tiers share brokers), on leaders and on load, and most passes are caused by none of
these objects. kopf keeps the cache current; a change only wakes the loop of its policy.

Why a thread for each loop: a pass waits for Kafka, Prometheus and Kubernetes, each of which may
hang. One policy's hanging brokers must not delay another's cut.

Why a Lease for each policy, and not one for the operator: replicas share the policies, and when one
dies, each of its policies has a successor that has already read what the first pass needs
(`prepare`). A loop starts when its Lease is acquired and is asked to stop when it is lost; what is
on its way then asks the Lease once more before it is sent (`may_write`).

Why two threads here: the first has Leases renewed, beside each other, so that a call that hangs
delays no other; a Lease that is renewed late is a policy that changes hands for nothing. The second
keeps the lists of objects fresh, and starts and stops loops. The order at the end of the process
is: loops first, Leases after, so that a successor never meets a writer.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

import structlog

from tidegate.control.controller import Controller
from tidegate.control.orphans import Orphans
from tidegate.control.runtime import (
    Backoff,
    Cause,
    OperatorContext,
    PassAllowance,
    Wakeup,
)
from tidegate.errors import TidegateError
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    LEASE_CALL_SECONDS,
    ResourceKind,
)
from tidegate.kube.cache import Change
from tidegate.observe.declared import object_key, policy_name_of
from tidegate.throttle_metrics import policy_labels
from tidegate.tracing import new_pass_id

log = structlog.get_logger(__name__)

# After a broker event leaders move late and without further events, so for a bounded while the loop
# asks for them twice a second and runs a pass as soon as they differ.


LOOK_EVERY_SECONDS = 0.5
SETTLE_SECONDS = 15.0
# A reassignment is as fast as the brokers until a pass has seen it.
MOVES_EVERY_SECONDS = 1.0


class ControlLoop:
    """The thread of one policy: a pass at once, then on every wake, due step or poll interval.

    Whatever a pass raises is logged and counted here, and the loop goes on. A loop that has ended
    has finished its batch. `on_first_pass` is called when its first pass has ended.
    """

    def __init__(
        self,
        key: str,
        context: OperatorContext,
        controller: Controller,
        wakeup: Wakeup,
        on_first_pass: Callable[[], None] = lambda: None,
    ) -> None:
        self.key = key
        self._on_first_pass = on_first_pass
        self._context = context
        self._controller = controller
        self._wakeup = wakeup
        self._settled_at_seconds = float("-inf")
        self._for_changes = PassAllowance(
            distance_seconds=context.settings.least_pass_distance_seconds,
            at_once=context.settings.passes_at_once,
        )
        self._thread = threading.Thread(target=self._run, name=f"policy {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._wakeup.poke(Cause.STOP)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the loop has ended within the time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def wake(self, cause: Cause) -> None:
        self._wakeup.poke(cause)

    def _run(self) -> None:
        self._context.vital_signs.beat(self._thread.name)
        is_first = True
        try:
            while not self._wakeup.stopping:
                next_in_seconds = self._pass()
                if is_first:
                    self._on_first_pass()
                    is_first = False
                self._context.vital_signs.beat(self._thread.name)
                self._rest(next_in_seconds)
        finally:
            self._controller.close()
            self._context.vital_signs.forget(self._thread.name)
            self._context.telemetry.readings.forget(self.key)
            self._context.audit.forget(self.key)

    def _pass(self) -> float:
        pass_id = new_pass_id(self._context.settings.identity, self.key, self._context.clock.wall())
        with self._context.tracing.of_pass(self.key, pass_id) as span:
            try:
                return self._controller.pass_once()
            except Exception as error:
                span.note(broken=repr(error))
                log.exception("Pass abandoned", policy=self.key)
                return self._controller.broke(error)

    def _rest(self, seconds: float) -> None:
        """Return when a pass is due, or wanted by an event.

        A change of objects waits for the allowance of such passes. Nothing else does: how soon a
        quota follows its leaders is bounded, and readings and due steps come in a rhythm of ours.
        """
        now = self._context.clock.monotonic
        ends_at_seconds = now() + seconds
        waiting: frozenset[Cause] = frozenset()
        while (left_seconds := ends_at_seconds - now()) > 0:
            settling = now() < self._settled_at_seconds
            follows_moves = self._controller.follows_moves
            look_seconds = LOOK_EVERY_SECONDS if settling else MOVES_EVERY_SECONDS
            causes = self._wakeup.wait(
                min(left_seconds, look_seconds) if settling or follows_moves else left_seconds
            )
            if Cause.BROKERS in causes:
                self._settled_at_seconds = now() + SETTLE_SECONDS
            wait_seconds = self._for_changes.wait_seconds(now())
            if causes == {Cause.OBJECTS} and wait_seconds > 0:
                waiting, ends_at_seconds = causes, min(ends_at_seconds, now() + wait_seconds)
            elif causes != {Cause.TIMER} or (settling and self._controller.leaders_moved()):
                self._begin(causes | waiting)
                return
            elif follows_moves and self._controller.reassignments_changed():
                self._begin(waiting | {Cause.REASSIGNMENTS})
                return
        self._begin(waiting or frozenset({Cause.TIMER}))

    def _begin(self, causes: frozenset[Cause]) -> None:
        if Cause.OBJECTS in causes:
            self._for_changes.take(self._context.clock.monotonic())
        self._count(causes)

    def _count(self, causes: frozenset[Cause]) -> None:
        for cause in causes:
            self._context.telemetry.wakes.labels(*policy_labels(self.key), cause.value).inc()


_TICK_SECONDS = 1.0
_LEASE_TICK_SECONDS = 0.5
# 100 held and 100 watched at 100 ms a call are 9 at any moment; the others are for calls that hang
_LEASE_CALLS_AT_ONCE = 16
_READ_AHEAD_AT_ONCE = 2
# for optional kinds that could not be listed
_LOOK_AGAIN_SECONDS = 60.0
# by then the Lease was ours, or its holder has renewed it after all
_READ_AHEAD_SECONDS = 30.0
_OTHERS, _LIST = "the replicas", "all policies"
# What a batch of 200 entities takes, many times over. One that ZooKeeper holds up for longer may
# end after the Lease: the versions of claim, quota and ledger then decide whether it counts.
_BATCH_SECONDS = 2.0
# within the 30 s that Kubernetes gives a Pod to end
_STOP_SECONDS = 20.0


class Lease(Protocol):
    """One policy's Lease as this replica sees it; `kube.lease.SharedLease` is the real one."""

    def attend(self) -> bool:
        """Acquire, renew or watch it when that is due; whether this process may write now."""
        ...

    @property
    def holder(self) -> str:
        """Who held it when it was last looked at; "" when no one did."""
        ...

    def remaining_seconds(self) -> float:
        """How much longer this process may write; 0 when it may not."""
        ...

    def is_soon_ours(self) -> bool:
        """Whether its holder seems dead and this replica is the next."""
        ...

    def seconds_until_due(self) -> float:
        """When `attend` has something to do again; 0 when it has now."""
        ...

    def release(self, *, is_obsolete: bool = False) -> bool:
        """Give it up for others, or for good where it `is_obsolete`; whether it was ours."""
        ...


class Attended(Protocol):
    """What has a call to make now and then, such as a list of Leases (`kube.lease.LeaseList`)."""

    def attend(self) -> object: ...

    def seconds_until_due(self) -> float: ...


class Share(Attended, Protocol):
    """Which policies this replica should hold: see `control.sharing.Sharing`."""

    def alive(self) -> Mapping[int, str] | None: ...

    def ranks_first(self, policy_key: str) -> bool: ...

    def next_to_hand_over(
        self, held: Collection[str], holder_of: Callable[[str], str]
    ) -> str | None: ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A controller that reads ahead for a policy whose Lease may soon be ours."""

    lease: Lease
    controller: Controller
    wakeup: Wakeup
    work: Future[None]
    since_seconds: float

    def is_under_way(self) -> bool:
        """Whether it still reads; what has not begun is called off."""
        return not self.work.cancel() and not self.work.done()


class Manager:
    """Runs the policies that this replica holds. `make_lease` gets a policy's namespace/name.

    Without `share` it takes every Lease that is free, and keeps it. `delete_left_leases` gets all
    policies that exist, after each list; Leases of others may go.
    """

    def __init__(
        self,
        context: OperatorContext,
        make_lease: Callable[[str], Lease],
        *,
        share: Share | None = None,
        lease_list: Attended | None = None,
        delete_left_leases: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._make_lease = make_lease
        self._share = share
        # what calls for Leases are made for besides policies, whose keys have a slash
        self._besides = {
            name: one for name, one in ((_OTHERS, share), (_LIST, lease_list)) if one is not None
        }
        self._handing_over: str | None = None
        self._delete_left_leases = delete_left_leases
        self._wakeup = Wakeup()
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._loops: dict[str, ControlLoop] = {}
        self._prepared: dict[str, Prepared] = {}
        self._readers_ahead = ThreadPoolExecutor(_READ_AHEAD_AT_ONCE, "read ahead")
        self._relist_at_seconds = float("-inf")
        self._relist_backoff = Backoff()
        self._look_again_at_seconds = float("-inf")
        self._attend_now = threading.Event()
        self._lease_calls = ThreadPoolExecutor(_LEASE_CALLS_AT_ONCE, "lease")
        self._under_way: set[str] = set()
        self._held: set[str] = set()
        self._orphans = Orphans(context, self._is_ours_by_rank)
        self._threads = (
            threading.Thread(target=self._manage, name="manager", daemon=True),
            threading.Thread(target=self._keep_leases, name="leases", daemon=True),
        )

    def start(self) -> None:
        for thread in self._threads:
            self._context.vital_signs.beat(thread.name)
            thread.start()

    def changed(self, changes: Sequence[Change]) -> None:
        """Wake the policies that these objects belong to, or belonged to, and no other.

        Never blocks for long; for any thread.
        """
        if any(_comes_or_goes(change) for change in changes):
            self.look_now()
        with self._lock:
            loops = dict(self._loops)
        for key in _concerned(changes, loops):
            loops[key].wake(Cause.OBJECTS)

    def look_now(self) -> None:
        """Have the lists and Leases looked at now and not within a second. For any thread."""
        self._wakeup.poke(Cause.OBJECTS)

    def stop(self) -> None:
        """Let every loop finish its batch, then give the Leases up.

        The Lease of a loop that does not end in time is not given up: it may still be writing, so
        others wait for the Lease's end.
        """
        ends_at_seconds = self._context.clock.monotonic() + _STOP_SECONDS

        def left_seconds() -> float:
            return max(0.0, ends_at_seconds - self._context.clock.monotonic())

        self._wakeup.poke(Cause.STOP)
        self._attend_now.set()
        self._ask_loops_to_stop()
        for thread in self._threads:
            thread.join(left_seconds())
        self._context.first_passes.wait_for_their_turn(())  # there will be no more
        self._ask_loops_to_stop()  # the manager may have started one meanwhile
        hands = ThreadPoolExecutor(_LEASE_CALLS_AT_ONCE, "release")
        released: list[Future[None]] = []
        if self._share is not None:
            released.append(hands.submit(self._share.release))
        for key in list(self._leases):
            loop = self._loops.get(key)
            if loop is None or loop.wait(left_seconds()):
                released.append(hands.submit(self._release, key))
            else:
                log.warning("Loop did not end in time; its Lease ends by itself", policy=key)
        wait(released, left_seconds() + LEASE_CALL_SECONDS)
        self._orphans.close()
        for pool in (hands, self._lease_calls, self._readers_ahead):
            pool.shutdown(wait=False, cancel_futures=True)
        for prepared in self._prepared.values():
            if not prepared.is_under_way():
                prepared.controller.close()

    def _ask_loops_to_stop(self) -> None:
        with self._lock:
            loops = list(self._loops.values())
        for loop in loops:
            loop.ask_to_stop()

    def _manage(self) -> None:
        while not self._wakeup.stopping:
            try:
                self._tick()
            except Exception:
                log.exception("Tick of the manager abandoned")
            self._context.vital_signs.beat("manager")
            self._wakeup.wait(_TICK_SECONDS)

    def _tick(self) -> None:
        self._relist_when_due()
        if not self._context.list_is_fresh(BROKER_BANDWIDTH_POLICIES):
            return
        known = self._context.policies()
        self._context.telemetry.policies.set(len(known))
        for key in known.keys() - self._leases.keys():
            with self._lock:
                self._leases[key] = self._make_lease(key)
            self._attend_now.set()
        for key in self._leases.keys() - known.keys():
            if self._stop_loop(key):
                self._release(key, is_obsolete=True)
        self._read_ahead()
        self._start_and_stop_loops()
        self._hand_over_when_due()
        self._orphans.look(known.keys())

    def _relist_when_due(self) -> None:
        now_seconds = self._context.clock.monotonic()
        unlisted = self._context.unlisted_kinds
        if unlisted and now_seconds >= self._look_again_at_seconds:
            self._look_again_at_seconds = now_seconds + _LOOK_AGAIN_SECONDS
            for kind in unlisted:
                self._relist(kind)
        if now_seconds < self._relist_at_seconds:
            return
        failed = [kind for kind in self._context.kinds if not self._relist(kind)]
        if failed:
            self._relist_at_seconds = now_seconds + self._relist_backoff.next_seconds()
            return
        self._relist_backoff.reset()
        self._relist_at_seconds = now_seconds + self._context.settings.relist_seconds
        try:
            self._delete_left_leases(self._context.policies().keys())
        except TidegateError as error:
            log.warning("Leases of policies that are gone stay", error=error.message)

    def _relist(self, kind: ResourceKind) -> bool:
        self._context.vital_signs.beat("manager")
        try:
            self._context.relist(kind)
        except TidegateError as error:
            log.warning("Resources could not be listed", kind=kind.kind, error=error.message)
            self._context.telemetry.lists.labels(kind.kind, "failed").inc()
            return False
        result = "failed" if kind in self._context.unlisted_kinds else "complete"
        self._context.telemetry.lists.labels(kind.kind, result).inc()
        return True

    def _start_and_stop_loops(self) -> None:
        waiting: list[str] = []
        for key, lease in list(self._leases.items()):
            held = lease.remaining_seconds() > 0
            if key in self._loops and self._loops[key].wait(0.0):
                # it ended because the Lease was lost for a moment; it may be wanted again
                self._stop_loop(key)
            if held and key not in self._loops and key != self._handing_over:
                if not self._is_reading_ahead(key) and self._context.first_passes.begin(key):
                    self._start_loop(key, lease)
                else:
                    waiting.append(key)
            elif not held and key in self._loops:
                self._stop_loop(key)
        self._context.first_passes.wait_for_their_turn(waiting)

    def _is_reading_ahead(self, key: str) -> bool:
        """Whether a first pass would wait for the same answers as what is under way already."""
        prepared = self._prepared.get(key)
        return prepared is not None and prepared.is_under_way()

    def _read_ahead(self) -> None:
        """Get ready for policies whose holder seems dead, and drop what was not needed."""
        now_seconds = self._context.clock.monotonic()
        for key, prepared in list(self._prepared.items()):
            # A policy that was deleted and made again has another Lease; by this one no one writes.
            is_left = self._leases.get(key) is not prepared.lease
            is_left |= now_seconds - prepared.since_seconds >= _READ_AHEAD_SECONDS
            if is_left and not prepared.is_under_way():
                self._prepared.pop(key).controller.close()
        for key, lease in self._leases.items():
            if key in self._loops or key in self._prepared or not lease.is_soon_ours():
                continue
            controller, wakeup = self._make_controller(key, lease)

            def read(controller: Controller = controller, key: str = key) -> None:
                try:
                    controller.prepare()
                except Exception:
                    log.exception("Reading ahead abandoned", policy=key)
                self._wakeup.poke(Cause.LEASE)

            work = self._readers_ahead.submit(read)
            self._prepared[key] = Prepared(lease, controller, wakeup, work, now_seconds)

    def _hand_over_when_due(self) -> None:
        """Give a policy to the replica that should hold it, once its loop has ended."""
        if self._share is None:
            return
        if self._handing_over is None:
            # a policy in deletion may have lost its Secrets: a replica that has them keeps it
            going = {
                key
                for key, raw in self._context.policies().items()
                if raw["metadata"].get("deletionTimestamp")
            }
            self._handing_over = self._share.next_to_hand_over(
                self._loops.keys() - going, self._holder_of
            )
        key = self._handing_over
        if key is not None and self._stop_loop(key):
            log.info("Policy handed over", policy=key)
            self._release(key)
            self._handing_over = None

    def _is_ours_by_rank(self, key: str) -> bool:
        return self._share is None or self._share.ranks_first(key)

    def _holder_of(self, key: str) -> str:
        lease = self._leases.get(key)
        return "" if lease is None else lease.holder

    def _start_loop(self, key: str, lease: Lease) -> None:
        prepared = self._prepared.pop(key, None)
        controller, wakeup = (
            self._make_controller(key, lease)
            if prepared is None
            else (prepared.controller, prepared.wakeup)
        )

        def first_pass_ended() -> None:
            self._context.first_passes.end(key)
            self._wakeup.poke(Cause.LEASE)  # another one may start

        loop = ControlLoop(key, self._context, controller, wakeup, first_pass_ended)
        with self._lock:  # before it starts, or a change during its first pass would be lost
            self._loops[key] = loop
        try:
            loop.start()
        except Exception:  # no thread to be had: tried again at the next tick
            with self._lock:
                self._loops.pop(key, None)
            self._context.first_passes.end(key)
            raise

    def _make_controller(self, key: str, lease: Lease) -> tuple[Controller, Wakeup]:
        wakeup = Wakeup()
        controller = Controller(
            key,
            self._context,
            may_write=lambda: lease.remaining_seconds() >= _BATCH_SECONDS,
            wake=wakeup.poke,
        )
        return controller, wakeup

    def _stop_loop(self, key: str) -> bool:
        """Ask the loop to end; True once it has."""
        loop = self._loops.get(key)
        if loop is None:
            return True
        loop.ask_to_stop()
        if not loop.wait(0.0):
            return False
        with self._lock:
            self._loops.pop(key, None)
        self._context.first_passes.end(key)
        return True

    def _release(self, key: str, *, is_obsolete: bool = False) -> None:
        with self._lock:
            lease = self._leases.pop(key, None)
            self._held.discard(key)  # given up is not lost
        try:
            if lease is not None:
                lease.release(is_obsolete=is_obsolete)
        except TidegateError as error:
            log.warning(
                "Lease could not be released; others take over when it ends",
                policy=key,
                error=error.message,
            )
        self._context.vital_signs.goes_on()

    def _keep_leases(self) -> None:
        while not self._wakeup.stopping:
            try:
                self._attend_to_leases()
            except Exception:
                log.exception("Leases could not be attended to")
            self._context.vital_signs.beat("leases")
            self._attend_now.wait(_LEASE_TICK_SECONDS)
            self._attend_now.clear()

    def _attend_to_leases(self) -> None:
        with self._lock:
            leases = dict(self._leases)
            self._held &= leases.keys()
        for key in leases:
            self._note_held(key)  # a turn may run out while nothing is due
        attended: dict[str, Attended] = {**self._besides, **leases}
        for key, one in attended.items():
            if one.seconds_until_due() == 0.0 and self._begin_call(key):
                self._lease_calls.submit(self._attend, key, one)
        if self._share is not None:
            self._context.telemetry.replicas.set(len(self._share.alive() or ()))
        self._context.telemetry.leases_held.set(len(self._held))

    def _begin_call(self, key: str) -> bool:
        """Whether no call for this Lease waits or is under way; from now on one is."""
        with self._lock:
            is_free = key not in self._under_way
            self._under_way.add(key)
        return is_free

    def _attend(self, key: str, lease: Attended) -> None:
        sign = f"Lease of {key}"
        self._context.vital_signs.beat(sign)
        try:
            lease.attend()
        except TidegateError as error:
            log.warning("Lease could not be attended to", policy=key, error=error.message)
        except Exception:
            log.exception("Lease could not be attended to", policy=key)
        finally:
            with self._lock:
                self._under_way.discard(key)
            self._context.vital_signs.forget(sign)
        self._note_held(key)

    def _note_held(self, key: str) -> None:
        with self._lock:
            lease = self._leases.get(key)
            if lease is None:
                return
            is_held, was_held = lease.remaining_seconds() > 0, key in self._held
            (self._held.add if is_held else self._held.discard)(key)
        if is_held != was_held:
            log.info("Lease acquired" if is_held else "Lease lost", policy=key)
            self._wakeup.poke(Cause.LEASE)


# --- whom a changed object concerns ---------------------------------------------------------------


def _comes_or_goes(change: Change) -> bool:
    """Whether a policy appears or vanishes, which starts or ends a loop."""
    return change.kind == BROKER_BANDWIDTH_POLICIES and None in (change.before, change.after)


def _concerned(changes: Iterable[Change], keys: Iterable[str]) -> frozenset[str]:
    """Those of the policies `keys` that a changed object belongs to, or did before."""
    named: set[str] = set()
    namespaces: set[str] = set()
    for change in changes:
        for version in change.versions:
            key = (
                object_key(version)
                if change.kind == BROKER_BANDWIDTH_POLICIES
                else policy_name_of(version)
            )
            if key:
                named.add(key)
            else:  # its reference cannot be read, so it may be to any policy of its namespace
                namespaces.add(str(version["metadata"]["namespace"]))
    return frozenset(key for key in keys if key in named or key.partition("/")[0] in namespaces)
