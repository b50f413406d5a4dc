"""The world of one run: Kafka clusters, Kubernetes clusters, processes of the operator, the weather."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.simulation import process as processes
from tests.simulation import virtual_time
from tests.simulation.invariants import Invariants
from tests.simulation.lease_watch import LeaseWatch
from tests.simulation.load import Load, Reader
from tests.simulation.moves import Moves
from tests.simulation.plan import NAMESPACE, Act, Plan, PolicyPlan
from tests.simulation.process import Process
from tests.simulation.systems import QUOTA_KEYS, STANDS_STILL_SECONDS, Fault, Kafka
from tests.simulation.virtual_time import Scheduler, VirtualTime
from tidegate.errors import TidegateError
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    JsonObject,
    ObjectRef,
    ResourceKind,
)
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.replication.throttles import ConfigChange

LOGIN = "zookeeper-login"


class World:
    """Everything of one run. `trace` has each step, `violations` what must never be."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed)
        virtual_time.use(self.scheduler)
        self.random = Random(f"world {plan.seed}")
        self.began_at = self.scheduler.now
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.tracebacks: list[BaseException | None] = []
        self.is_fair = False
        self._uids = iter(range(1, 1_000_000))
        self._armed: list[Fault] = []
        self._meddlers: list[tuple[str, str, str, int | None]] = []
        self.override_ends: list[float] = []
        self._takeovers: dict[str, Callable[[], None]] = {}  # by user: what is undone meanwhile
        self.kafkas = {
            policy.kafka: Kafka(policy.kafka, plan.before[policy.kafka]) for policy in plan.policies
        }
        self.loads = {
            policy.kafka: Load(
                self,
                self.kafkas[policy.kafka],
                float(policy.spec["metrics"]["scrapeIntervalSeconds"]),
            )
            for policy in plan.policies
            if "metrics" in policy.spec
        }
        self.moves = {
            policy.kafka: Moves(self, self.kafkas[policy.kafka])
            for policy in plan.policies
            if "replication" in policy.spec
        }
        self.kubernetes = {name: self._kubernetes(name) for name in plan.clusters}
        self.invariants = Invariants(self)
        self.leases = LeaseWatch(self)
        self.processes: dict[str, Process] = {}
        self._incarnations = dict.fromkeys(plan.slots, 0)
        self._is_over = False

    # --- the log ----------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        scheduler = self.scheduler
        who = (
            scheduler.current.name
            if scheduler.current is scheduler.world
            else (f"{scheduler.group.name} {scheduler.current.name}")
        )
        self.trace.append(f"{scheduler.now - self.began_at:9.3f} {who}: {what}")

    def violated(self, what: str) -> None:
        if what not in self.violations:
            self.note(f"VIOLATION {what}")
            self.violations.append(what)

    def digest(self) -> str:
        """The same for two runs that did the same, step by step."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    # --- the systems ------------------------------------------------------------------------------

    def _kubernetes(self, name: str) -> InMemoryKubernetes:
        return InMemoryKubernetes(
            new_uid=lambda: f"{name}-uid-{next(self._uids)}",
            created_at=lambda: self._rfc3339(0.0),
            watcher=lambda event, kind, raw: self._changed(name, event, kind, raw),
        )

    def _rfc3339(self, after_seconds: float) -> str:
        moment = VirtualTime.EPOCH_SECONDS + self.scheduler.now + after_seconds
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _changed(self, where: str, event: str, kind: ResourceKind, raw: JsonObject) -> None:
        """Let every watch of this Kubernetes bring the change, each in its own time."""
        self.invariants.declared(where, event, kind, raw)
        scheduler = self.scheduler
        for process in self.processes.values():
            if (
                process.where != where
                or process.group.is_dead
                or scheduler.now < process.watch_gap_until
            ):
                continue
            at = scheduler.now + scheduler.random.random() * (self.plan.latency_seconds + 0.001)
            process.delivers_at = max(at, process.delivers_at + 1e-6)
            scheduler.at(
                process.delivers_at,
                lambda process=process: process.deliver(event, kind, raw),  # type: ignore[misc]
            )

    def open_reader(self, process: Process, settings: Any) -> Any:
        """The reader of one policy's metrics."""
        return Reader(process, settings)

    # --- processes --------------------------------------------------------------------------------

    def start_process(self, slot: str) -> None:
        if self._is_over or slot in self.processes:
            return
        self._incarnations[slot] += 1
        process = Process(self, slot, self._incarnations[slot])
        processes.know(process)
        self.processes[slot] = process
        self.note(f"{process.name} starts")
        process.start()

    def ended(self, process: Process) -> None:
        """Restart a process, as the kubelet does."""
        if self.processes.get(process.slot) is process:
            del self.processes[process.slot]
            self.scheduler.after(
                self.random.choice((0.5, 2.0, 10.0)), lambda: self.start_process(process.slot)
            )

    # --- faults -----------------------------------------------------------------------------------

    def fault_at(self, slot: str, system: str, is_write: bool) -> Fault | None:
        for fault in self._armed:
            if (fault.slot, fault.system) == (slot, system) and (is_write or not fault.writes_only):
                if fault.skip:
                    fault.skip -= 1
                    return None
                self._armed.remove(fault)
                self.invariants.budgets.unsteady(fault.seconds)
                return fault
        return None

    def fair_weather(self) -> None:
        """End every fault."""
        self.is_fair = True
        self._armed.clear()
        self._meddlers.clear()
        self._takeovers.clear()
        self.leases.fair_weather()
        for process in self.processes.values():
            process.away_until.clear()
            process.group.wall_offset_seconds = 0.0
        for load in self.loads.values():
            load.want(0.0, 0.0)
            load.is_frozen_until = 0.0
        for moves in self.moves.values():
            moves.end()
        for kafka in self.kafkas.values():
            kafka.brokers.update(kafka.replicas[next(iter(kafka.replicas))])
            kafka.elect_leaders()
        for where, kubernetes in self.kubernetes.items():
            self._put_secrets(where)
            self.delete_budgets(where)
            for raw in kubernetes.list_all(BROKER_BANDWIDTH_POLICIES):
                if raw["spec"].get("suspend") or raw["spec"]["mode"] == "Observe":
                    self._edit_policy(where, raw["metadata"]["name"], suspend=False, mode="Enforce")

    # --- what happens -----------------------------------------------------------------------------

    def install_everything(self) -> None:
        """Apply all policies and tiers, then start the operators."""
        for where in self.kubernetes:
            self._put_secrets(where)
            for policy in self.plan.policies:
                self.create_policy(where, policy)
                for name in policy.tiers:
                    self._create_tier(where, name)
                self.create_budgets(where, policy)
        for load in self.loads.values():
            self.scheduler.after(self.random.random() * load.scrape_seconds, load.scrape)
        late = min(10.0, self.plan.storm_seconds / 4)  # a day without any operator shows nothing
        for slot in self.plan.slots:
            self.scheduler.after(
                self.random.choice((0.0, 0.0, 1.0, late)),
                lambda slot=slot: self.start_process(slot),
            )  # type: ignore[misc]

    def play(self, act: Act) -> None:
        self.note(f"ACT {act}")
        if act.is_fault:
            self.invariants.budgets.troubled(act)
        method: Callable[..., None] = getattr(self, "_" + act.kind.replace(" ", "_"))
        with suppress(
            TidegateError
        ):  # a person meets an object that is not there, or there already
            method(**act.args)

    def ref(self, where: str, kind: ResourceKind, name: str) -> ObjectRef | None:
        for raw in self.kubernetes[where].list_all(kind):
            if raw["metadata"]["name"] == name:
                return ObjectRef.of(kind, raw)
        return None

    def create_policy(self, where: str, policy: PolicyPlan) -> None:
        zookeeper: dict[str, Any] = {"connect": f"{policy.kafka}-zk:2181"}
        if self.plan.has_login:
            secret = {"secretName": f"{LOGIN}-{policy.kafka}", "password": "password"}
            zookeeper["authentication"] = {
                "type": "digest",
                "username": "tidegate",
                "passwordSecret": secret,
            }
        kafka = {
            "bootstrapServers": f"{policy.kafka}:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": zookeeper,
        }
        self._create(where, BROKER_BANDWIDTH_POLICIES, policy.name, {**policy.spec, "kafka": kafka})

    def _create(self, where: str, kind: ResourceKind, name: str, spec: JsonObject) -> None:
        self.kubernetes[where].create(
            kind, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        )

    def _create_tier(self, where: str, tier: str, policy: str = "") -> None:
        spec = next(plan.tiers[tier] for plan in self.plan.policies if tier in plan.tiers)
        self._create(where, BUSINESS_TIERS, tier, spec)

    def _create_policy(self, where: str, policy: str) -> None:
        self.create_policy(where, next(plan for plan in self.plan.policies if plan.name == policy))

    def _delete(self, where: str, kind: ResourceKind, name: str) -> None:
        ref = self.ref(where, kind, name)
        if ref is not None:
            self.kubernetes[where].delete(ref)

    def _delete_tier(self, where: str, tier: str, policy: str = "") -> None:
        self._delete(where, BUSINESS_TIERS, tier)

    def _delete_policy(self, where: str, policy: str) -> None:
        self._delete(where, BROKER_BANDWIDTH_POLICIES, policy)

    def _edit_tier(self, where: str, tier: str, change: Callable[[JsonObject], object]) -> None:
        ref = self.ref(where, BUSINESS_TIERS, tier)
        if ref is not None:
            self.kubernetes[where].edit(ref, change)

    def _edit_contract(
        self, where: str, tier: str, user: str, contract: JsonObject, policy: str = ""
    ) -> None:
        def change(raw: JsonObject) -> None:
            for member in raw["spec"]["members"]:
                if member["user"] == user:
                    member["contract"] = contract

        self._edit_tier(where, tier, change)

    def _delete_member(self, where: str, tier: str, user: str, policy: str = "") -> None:
        def change(raw: JsonObject) -> None:
            left = [member for member in raw["spec"]["members"] if member["user"] != user]
            raw["spec"]["members"] = left or raw["spec"]["members"]

        self._edit_tier(where, tier, change)

    def _touch_tier(self, where: str, tier: str, policy: str = "") -> None:
        self._edit_tier(
            where, tier, lambda raw: raw["metadata"].setdefault("labels", {}).update(seen="1")
        )

    def _create_override(
        self, where: str, policy: str, user: str, rates: str, lasts: float, tier: str = ""
    ) -> None:
        spec = {
            "policyRef": {"name": policy},
            "target": {"user": user},
            "action": "SetRates",
            "rates": {"perBroker": {"fetch": rates, "produce": rates}},
            "expiresAt": self._rfc3339(lasts),
            "reason": "a bad day",
        }
        self.override_ends.append(self.scheduler.now + lasts)
        self._create(where, QUOTA_OVERRIDES, f"{policy}-{user}", spec)

    def _delete_override(self, where: str, policy: str, tier: str = "") -> None:
        for raw in self.kubernetes[where].list_all(QUOTA_OVERRIDES):
            if raw["spec"]["policyRef"]["name"] == policy:
                self.kubernetes[where].delete(ObjectRef.of(QUOTA_OVERRIDES, raw))

    def create_budgets(self, where: str, policy: PolicyPlan) -> None:
        """All budgets of the policy; two are of one second, as two of one file are."""
        for name, spec in policy.budgets.items():
            self._create(where, BANDWIDTH_BUDGETS, name, spec)

    def delete_budgets(self, where: str) -> None:
        """No budget limits anybody any more."""
        for raw in self.kubernetes[where].list_all(BANDWIDTH_BUDGETS):
            self.kubernetes[where].delete(ObjectRef.of(BANDWIDTH_BUDGETS, raw))

    def _create_budget(self, where: str, policy: str, budget: str) -> None:
        plan = next(one for one in self.plan.policies if one.name == policy)
        self._create(where, BANDWIDTH_BUDGETS, budget, plan.budgets[budget])

    def _delete_budget(self, where: str, policy: str, budget: str) -> None:
        self._delete(where, BANDWIDTH_BUDGETS, budget)

    def _edit_budget(self, where: str, policy: str, budget: str, **fields: Any) -> None:
        ref = self.ref(where, BANDWIDTH_BUDGETS, budget)
        if ref is not None:
            self.kubernetes[where].edit(ref, lambda raw: raw["spec"].update(fields))

    def _reparent_budget(self, where: str, policy: str, budget: str, parent: str | None) -> None:
        def change(raw: JsonObject) -> None:
            raw["spec"].pop("parent", None)
            if parent is not None:
                raw["spec"]["parent"] = {"name": parent}

        ref = self.ref(where, BANDWIDTH_BUDGETS, budget)
        if ref is not None:
            self.kubernetes[where].edit(ref, change)

    def _rename_budget(self, where: str, policy: str, budget: str) -> None:
        """As people rename an object: with another name it is another one, and the younger."""
        ref = self.ref(where, BANDWIDTH_BUDGETS, budget)
        if ref is not None:
            spec = self.kubernetes[where].get(ref)["spec"]
            self.kubernetes[where].delete(ref)
            self._create(where, BANDWIDTH_BUDGETS, f"{budget}-again", spec)

    def _lose_labels(self, where: str, policy: str) -> None:
        """Half of all members are of no team any more, in one edit of each tier."""

        def change(raw: JsonObject) -> None:
            for member in raw["spec"]["members"][::2]:
                member.pop("labels", None)

        for tier in next(one for one in self.plan.policies if one.name == policy).tiers:
            self._edit_tier(where, tier, change)

    def _demand(self, kafka: str, wants: dict[str, float]) -> None:
        self.loads[kafka].demand(wants)

    def _edit_policy(self, where: str, policy: str, **fields: Any) -> None:
        ref = self.ref(where, BROKER_BANDWIDTH_POLICIES, policy)
        if ref is not None:
            self.kubernetes[where].edit(ref, lambda raw: raw["spec"].update(fields))

    def _edit_limit(self, where: str, policy: str, limit: str) -> None:
        self._edit_policy(where, policy, brokers={"egress": {"limit": limit}})

    def _suspend(self, where: str, policy: str, seconds: float) -> None:
        self._edit_policy(where, policy, suspend=True)
        self.scheduler.after(seconds, lambda: self._edit_policy(where, policy, suspend=False))

    def _observe(self, where: str, policy: str, seconds: float) -> None:
        self._edit_policy(where, policy, mode="Observe")
        self.scheduler.after(seconds, lambda: self._edit_policy(where, policy, mode="Enforce"))

    def _confirm_removal(self, where: str, policy: str, once: bool = False) -> None:
        self.confirm_removal(where, policy)

    def confirm_removal(self, where: str, policy: str) -> bool:
        """Do what the message of Ready asks a person for, where it asks; whether it did."""
        return self.invariants.confirm(where, policy)

    def _replace_claim(self, where: str, policy: str) -> None:
        self.invariants.replace_claim(where, policy)

    def _at_a_call(self, **what: Any) -> None:
        self._armed.append(Fault(**what))

    def _kill(self, slot: str, back_in: float) -> None:
        if slot in self.processes:
            self.processes[slot].crash("killed")

    def _restart(self, slot: str, back_in: float) -> None:
        if slot in self.processes:
            self.processes[slot].stop()

    def _pause(self, slot: str, seconds: float) -> None:
        if slot in self.processes:
            self.scheduler.pause(self.processes[slot].group, seconds)

    def _clock_jump(self, slot: str, by: float, seconds: float) -> None:
        if slot in self.processes:
            group = self.processes[slot].group
            group.wall_offset_seconds += by
            self.scheduler.after(seconds, lambda: setattr(group, "wall_offset_seconds", 0.0))

    def _session_loss(self, slot: str, seconds: float) -> None:
        self._outage(slot, "zookeeper", seconds)

    def _outage(self, slot: str, system: str, seconds: float) -> None:
        if slot not in self.processes:
            return
        process = self.processes[slot]
        process.away_until[system] = self.scheduler.now + seconds
        if system == "zookeeper":
            self.scheduler.after(seconds, lambda: [wake() for wake in process.on_reconnect])

    def _load(self, kafka: str, factor: float, other: float) -> None:
        if kafka in self.loads:
            self.loads[kafka].want(factor, other)

    def _move(self, kafka: str, is_move: bool, **what: Any) -> None:
        self.moves[kafka].begin(**what, is_move=is_move)

    def _cancel_moves(self, kafka: str) -> None:
        self.moves[kafka].end()

    def _throttle_by_others(self, kafka: str, change: ConfigChange) -> None:
        self.moves[kafka].set_by_others(change)

    def _edit_replication(self, where: str, policy: str, replication: JsonObject | None) -> None:
        def change(raw: JsonObject) -> None:
            raw["spec"].pop("replication", None)
            if replication is not None:
                raw["spec"]["replication"] = replication

        ref = self.ref(where, BROKER_BANDWIDTH_POLICIES, policy)
        if ref is not None:
            self.kubernetes[where].edit(ref, change)

    def _frozen_samples(self, kafka: str, seconds: float) -> None:
        if kafka in self.loads:
            self.loads[kafka].is_frozen_until = self.scheduler.now + seconds

    def _watch_gap(self, slot: str, seconds: float) -> None:
        if slot not in self.processes:
            return
        process = self.processes[slot]
        process.watch_gap_until = self.scheduler.now + seconds
        self.scheduler.after(seconds, lambda: self._watch_again(process))

    def _watch_again(self, process: Process) -> None:
        """What kopf does after a gap: it brings all that is there; deletions are lost."""
        for kind in (
            BROKER_BANDWIDTH_POLICIES,
            BUSINESS_TIERS,
            QUOTA_OVERRIDES,
            BANDWIDTH_BUDGETS,
        ):
            for raw in process.kubernetes.list_all(kind):
                process.deliver("PUT", kind, raw)

    def _broker_dies(self, kafka: str, broker: int, seconds: float) -> None:
        cluster = self.kafkas[kafka]
        if broker not in cluster.brokers or len(cluster.brokers) == 1:
            return
        cluster.lose_leaders_of(broker)
        if self.random.random() < 0.4:
            cluster.store.elect_controller()
        self.scheduler.after(self.random.choice((0.1, 1.0, 4.0)), cluster.elect_leaders)

        def back() -> None:
            cluster.brokers.add(broker)
            cluster.tree.wake_all()
            self.scheduler.after(self.random.choice((1.0, 20.0)), cluster.elect_leaders)

        self.scheduler.after(seconds, back)

    def _no_controller(self, kafka: str, seconds: float) -> None:
        store = self.kafkas[kafka].store
        store.remove_controller()
        self.scheduler.after(seconds, store.elect_controller)

    def _second_writer(self, kafka: str, user: str, key: str, value: int | None) -> None:
        text = None if value is None else str(value)
        self.kafkas[kafka].store.put(Entity(user), {QuotaKey(QUOTA_KEYS[key]): text})
        self.invariants.foreign_write(kafka, user, QUOTA_KEYS[key], text)

    def _writer_inside(self, kafka: str, when: str, key: str, value: int | None) -> None:
        self._meddlers.append((kafka, when, key, value))

    def meddle(self, kafka: Kafka, when: str, users: Sequence[str]) -> None:
        """Let a second writer come in at this moment, where the day has one in store for it."""
        for meddler in self._meddlers:
            if users and meddler[:2] == (kafka.name, when):
                self._meddlers.remove(meddler)
                user, (_, _, key, value) = self.random.choice(sorted(users)), meddler
                self.note(f"second writer {when}: {user} {key} {value}")
                self._second_writer(kafka.name, user, key, value)
                return

    def _taken_over(
        self, where: str, policy: str, tier: str, user: str, contract: JsonObject
    ) -> None:
        edit = partial(self._edit_contract, where=where, tier=tier, user=user)
        tiers = self.kubernetes[where].list_all(BUSINESS_TIERS)
        found = [
            member["contract"]
            for raw in tiers
            if raw["metadata"]["name"] == tier
            for member in raw["spec"]["members"]
            if member["user"] == user
        ]
        if found:
            self._takeovers[user] = partial(edit, contract=found[0])
            edit(contract=contract)

    def let_another_take_over(self, process: Process, users: Sequence[str]) -> None:
        """Stop a process before a transaction, where the day says so, until another one was there.

        What it is about to write is undone meanwhile. The other one claims, finds nothing to do and
        ends in order; then the first one gets its Lease back, before its transaction is sent.
        """
        undo = next((self._takeovers.pop(user) for user in users if user in self._takeovers), None)
        if undo is None:
            return
        self.note(f"{process.name} stands still before it writes {' '.join(users)}")
        self.scheduler.after(1.0, undo)
        others = [one for one in self.processes.values() if one.where == process.where]
        for other in others:
            if other is not process:
                self.scheduler.after(STANDS_STILL_SECONDS - 2.0, other.stop)
        self.scheduler.pause(process.group, STANDS_STILL_SECONDS)
        self.scheduler.sleep(0.001)  # it goes on from here, and its connection comes back later
        self.scheduler.sleep(5.0)

    def _ledger_vanishes(self, kafka: str) -> None:
        if self.kafkas[kafka].lose_ledger():
            self.invariants.rules.ledger_lost(kafka)

    def _lease_stolen(self, where: str, policy: str) -> None:
        self.leases.steal(where, policy)

    def _lease_deleted(self, where: str, policy: str) -> None:
        self.leases.delete(where, policy)

    def _slow_lease(self, where: str, policy: str, seconds: float, by: float) -> None:
        self.leases.slow_down(where, policy, seconds, by)

    def _newer_version(self, slot: str, seconds: float) -> None:
        if slot not in self.processes:
            return
        process = self.processes[slot]
        process.is_newer = True
        self.scheduler.after(seconds, process.stop)  # the rollback

    def _credentials_expire(self, kafka: str, where: str, seconds: float) -> None:
        self.kafkas[kafka].password += " and another"
        self.scheduler.after(seconds, lambda: self._put_secrets(where))

    def _put_secrets(self, where: str) -> None:
        for name, kafka in self.kafkas.items():
            self.kubernetes[where].put_secret(
                NAMESPACE, f"{LOGIN}-{name}", {"password": kafka.password.encode()}
            )

    def end(self) -> None:
        """Let every thread end, so that the next run starts clean."""
        self._is_over = True
        for process in list(self.processes.values()):
            self.scheduler.kill(process.group)
        self.scheduler.run_until(self.scheduler.now + 1.0)
