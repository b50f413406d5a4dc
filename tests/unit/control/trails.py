"""An audit trail in memory, with the simulated cluster whose throttle it records."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.unit.controller_logic.plant import SimulatedCluster, actor, simulated_cluster, want
from tidegate.control.audit.sink import AuditQueue
from tidegate.control.audit.trail import AuditTrail
from tidegate.control.reconcile import Applied
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    Entity,
    Level,
    Member,
    QuotaKey,
    QuotaWrite,
    RateKey,
    Readings,
    StoredQuota,
    Tier,
    WriteKind,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import ThrottleDecision

FETCH = QuotaKey.CONSUMER_BYTE_RATE
ETL = Entity("etl")
NOTHING = Applied()


@dataclass
class Shelf:
    """A sink that keeps lines for the test."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def append(self, text: str) -> None:
        self.lines += [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        """Nothing to close: the lines stay for the test."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


@dataclass
class Trail:
    """A trail with its sink, and the simulated cluster whose rounds it notes."""

    played: SimulatedCluster
    shelf: Shelf = field(default_factory=Shelf)

    def __post_init__(self) -> None:
        self.trail = AuditTrail(AuditQueue(self.shelf, "-", count=lambda *_: None, beside=False))

    def note(
        self, decision: Decision, applied: Applied = NOTHING, readings: Readings | None = None
    ) -> None:
        self.trail.note(
            "streaming/orders",
            "c1",
            decision=decision,
            applied=applied,
            readings=readings,
            now_seconds=self.played.now_seconds,
        )

    def play(self, seconds: float = 15.0) -> ThrottleDecision:
        """Let time pass, decide, write and note what was written, as a pass of the operator
        does.
        """
        self.played.pass_time(seconds)
        throttle, before = self.played.decide(), dict(self.played.in_force)
        writes = tuple(
            write_of(key, before[key], step.value)
            for key, step in throttle.steps.items()
            if step.value != before[key]
        )
        for key, step in throttle.steps.items():
            self.played.apply(key, step.value)
        decision = Decision(writes=writes, members=(report(ETL, Level.L3),), throttle=throttle)
        self.note(decision, Applied(done=writes), self.played.given().readings)
        return throttle


def calm_trail() -> Trail:
    """One broker with a limit of 50 MB/s; etl (L3, contract of 60 MB/s) and pay (L0) send nothing
    yet.
    """
    return Trail(
        simulated_cluster(
            actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=50, capacity_mb=200
        )
    )


def write_of(
    key: RateKey, before: int, value: int, reason: Reason = Reason.THROTTLED
) -> QuotaWrite:
    seen = StoredQuota(key[0], {FETCH: str(before)}, 1)
    kind = WriteKind.LOWERING if value < before else WriteKind.RAISE
    return QuotaWrite(
        key[0],
        {FETCH: str(value)},
        seen,
        None,
        kind,
        reason,
        "",
        charged=True,
        predicted_mute_seconds=12.0,
    )


def report(entity: Entity, level: Level) -> MemberReport:
    member = Member(str(entity.user), entity)
    return MemberReport(
        Tier("streaming/batch", level, (member,)),
        member,
        None,
        MemberState.CONTRACT,
        Reason.CONTRACT,
    )


def overload(trail: Trail) -> ThrottleDecision:
    want(trail.played, etl=40, pay=25)
    return trail.play()
