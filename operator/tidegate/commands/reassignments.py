"""`tidegate reassignments`: which replicas are being filled, how much is left, and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, find_policy, opened_cluster
from tidegate.commands.options import CommandOptions
from tidegate.commands.output import Column, Document, OutputFormat, Page, Sheet, publish
from tidegate.errors import UserActionRequired
from tidegate.kafka.throttle_record import record_of
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import Background
from tidegate_logic.replication.moves import Move, MoveKind, by_side, bytes_left
from tidegate_logic.replication.replication_pass import (
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    resources_of,
)
from tidegate_logic.throttle.schedules import in_force
from tidegate_logic.words import NO_VALUE, rate_words, size_words

if TYPE_CHECKING:
    from tidegate.observe.observation import KafkaCluster

_FROM_THE_TOP = "\x1b[H\x1b[J"
_TITLES = {MoveKind.REASSIGNMENT: "Reassignments", MoveKind.RECOVERY: "Recovery"}


@options.command
def reassignments(
    around: CommandContext,
    *,
    asked: CommandOptions,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
    interval: options.Interval = 5,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show partition reassignments and when they finish.

    Lists the replicas being filled, the data left for each and the replication rates in force, and
    estimates the end from the current speed. It covers every reassignment, no matter which tool
    started it. All data comes from the brokers, and nothing is written. Speeds and incoming traffic
    are known once --watch has run for a quarter of a minute. With --watch and --output json, every
    update is one line.
    """
    source = find_policy(around, asked.policy)
    in_place = around.out.isatty() and output is OutputFormat.TABLE and watch
    with suppress(KeyboardInterrupt), opened_cluster(around, source, asked.access) as cluster:
        for decision in looks(around, source, cluster):
            document = replication_document(decision)
            if output is OutputFormat.JSON and watch:
                around.out.write(json.dumps(document, ensure_ascii=False) + "\n")
            else:
                if in_place:
                    around.out.write(_FROM_THE_TOP)
                publish(around.out, output, document, show=partial(show_replication, decision))
            around.out.flush()
            if not watch or around.reader_has_left:
                return
            around.wait_seconds(interval)


def looks(
    around: CommandContext, source: PolicySource, cluster: KafkaCluster
) -> Iterator[ReplicationDecision]:
    """One decision each time, of which nothing is written."""
    memory = ReplicationMemory()
    while True:
        decision, memory = decided_now(around, source, cluster, memory)
        yield decision


def decided_now(
    around: CommandContext, source: PolicySource, cluster: KafkaCluster, memory: ReplicationMemory
) -> tuple[ReplicationDecision, ReplicationMemory]:
    """The operator's decision on what the brokers say now, without the load of NICs.

    A rate that follows the load is therefore kept where there is one, and not set where there is
    none.
    """
    from tidegate.control.replication import background_terms, nics_of, terms_of

    replication, declared = cluster.replication, source.declared
    if replication is None:
        raise UserActionRequired(
            Reason.INVALID_SPEC, "This cluster has no brokers to ask for reassignments."
        )
    record = record_of(cluster.store.throttle_record())
    seen = replication.read(with_recovery=True)
    background = Background(background_terms(declared.spec.background))
    if background.terms:
        background = replace(background, brokers=replication.tiering())
    now_seconds = around.now_seconds()
    policy = in_force(declared.policy, declared.tiers, now_seconds)
    return decide_replication(
        ReplicationInput(
            now_seconds,
            terms_of(declared.spec.replication),
            declared.policy.cut_to_percent,
            seen,
            nics_of(None, policy.limits, seen.brokers),
            replication.configs(resources_of(seen, record, background.brokers)),
            record,
            scanned=replication.scan(),
            background=background,
        ),
        memory,
    )


def show_planned_replication(decision: ReplicationDecision, page: Page) -> None:
    """Print what would be done about replication, for `tidegate plan`."""
    page.heading("Replication")
    show_replication(decision, page)
    for change in decision.changes:
        page.say(f"would {change.operation.value.lower()}: {change.resource} {change.key}")
        if change.value:
            page.say(f"  {change.value}")
    for one in decision.others:
        page.say(f"stays, because another tool set it: {one}")
    for resource in decision.unknown:
        page.say(f"waits until it answers: {resource}")
    if not decision.changes:
        page.say("No replication throttle would be changed now.")


def planned_replication_document(decision: ReplicationDecision) -> Document:
    """The planned changes for programs."""
    return {
        **replication_document(decision),
        "changes": [
            {
                "resource": one.resource.kind.value,
                "name": one.resource.name,
                "key": one.key,
                "operation": one.operation.value,
                "value": one.value or None,
            }
            for one in decision.changes
        ],
        "others": [str(one) for one in decision.others],
        "waitingFor": [str(one) for one in decision.unknown],
    }


def show_replication(decision: ReplicationDecision, page: Page) -> None:
    """Print one look for people."""
    from tidegate.control.report.replication import stall_words

    if not decision.moves:
        page.say("No replica is being filled.")
    for kind in MoveKind:
        moves = decision.of(kind)
        if moves:
            page.say(_headline(decision, kind), "bold")
            page.sheet(_move_sheet(moves))
            page.say()
    rates = _rate_sheet(decision)
    if rates.rows:
        page.say("Replication rates in force", "bold")
        page.sheet(rates)
    for stall in decision.stalls:
        page.warn(f"at this rate it never ends: {stall_words(stall)}")
    for one in decision.leftovers:
        page.warn(f"left behind while nothing is reassigned: {one}")


def _headline(decision: ReplicationDecision, kind: MoveKind) -> str:
    estimate, left = decision.estimates[kind], decision.bytes_left(kind)
    text = f"{_TITLES[kind]}: {len(decision.of(kind))} replicas, {size_words(left)} left"
    if estimate.seconds is None:
        return f"{text}, end not known"
    return f"{text}, about {estimate.seconds:.0f} s by {estimate.bottleneck}"


def _move_sheet(moves: Sequence[Move]) -> Sheet:
    columns = (
        *(Column("Topic"), Column("Partition", right=True)),
        *(Column("From", right=True), Column("To", right=True)),
        *(Column(title, right=True) for title in ("Left", "Of", "Speed", "Receives")),
        Column("Waits for"),
    )
    return Sheet(columns, [_move_cells(move) for move in moves])


def _move_cells(move: Move) -> Sequence[str]:
    return (
        move.key.topic,
        str(move.key.partition),
        "" if move.source is None else str(move.source),
        str(move.destination),
        size_words(move.bytes_left, missing=NO_VALUE),
        size_words(move.size, missing=NO_VALUE),
        rate_words(move.speed(), missing=NO_VALUE),
        rate_words(move.inflow(), missing=NO_VALUE),
        "" if move.waits_for is None else f"broker {move.waits_for}",
    )


def _rate_sheet(decision: ReplicationDecision) -> Sheet:
    passing = by_side(decision.moves)
    columns = (
        Column("Broker", right=True),
        Column("Side"),
        *(Column(title, right=True) for title in ("Rate", "Replicas", "Left")),
    )
    rows = [
        (
            str(side.broker),
            side.direction.value,
            rate_words(float(rate)),
            str(len(passing.get(side, ()))),
            size_words(bytes_left(passing.get(side, ())), missing=NO_VALUE),
        )
        for side, rate in sorted(decision.in_force.items())
    ]
    return Sheet(columns, rows)


def replication_document(decision: ReplicationDecision) -> Document:
    """One look for programs."""
    from tidegate.control.report.replication import stall_words

    return {
        "kinds": [
            {
                "kind": kind.value,
                "replicas": len(decision.of(kind)),
                "bytesLeft": decision.bytes_left(kind),
                "etaSeconds": decision.estimates[kind].seconds,
                "bottleneck": None
                if decision.estimates[kind].bottleneck is None
                else str(decision.estimates[kind].bottleneck),
            }
            for kind in MoveKind
        ],
        "replicas": [_move_document(move) for move in decision.moves],
        "rates": [
            {"broker": side.broker, "direction": side.direction.value, "bytesPerSecond": rate}
            for side, rate in sorted(decision.in_force.items())
        ],
        "stalls": [stall_words(stall) for stall in decision.stalls],
        "leftovers": [str(one) for one in decision.leftovers],
    }


def _move_document(move: Move) -> Document:
    return {
        "topic": move.key.topic,
        "partition": move.key.partition,
        "kind": move.kind.value,
        "from": move.source,
        "to": move.destination,
        "bytesLeft": move.bytes_left,
        "size": move.size,
        "bytesPerSecond": move.speed(),
        "inflowBytesPerSecond": move.inflow(),
        "waitsFor": move.waits_for,
    }
