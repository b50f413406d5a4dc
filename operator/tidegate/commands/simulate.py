"""`tidegate simulate`: what the operator would do under a load, played on a modelled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.output import Column, Document, OutputFormat, Page, Sheet, publish
from tidegate.commands.plan import entity_document
from tidegate.errors import InvalidResource
from tidegate.simulation.outcome import (
    Amounts,
    Event,
    EventKind,
    LevelOutcome,
    MemberOutcome,
    NicOutcome,
    Outcome,
    outcome_of,
)
from tidegate.simulation.play import Member, Play, play
from tidegate_logic.model import KEY_OF, Mode
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.words import elapsed_words, rate_of_words, rate_words, size_words

if TYPE_CHECKING:
    from tidegate.commands.simulation_file import SimulationInput

_SHOWN_EVENTS: Final = 150
_SHORTEST_SHOWN_SECONDS: Final = 0.5  # of a mute
_SERIES_POINTS: Final = 720
LEFT_OUT: Final = (
    "brokers that die and leaders that move, replication that follows from produce (give it as "
    "background), request sizes (each member asks ten times a second over one connection to each "
    "broker), clients that give up and reconnect, other writers of quotas, an unreachable "
    "Prometheus or operator"
)

# For people: a timeline, and sums by NIC, level and member.


def amount_words(size_bytes: float) -> str:
    """Bytes as `12.3 GB`; empty where there are none."""
    return size_words(size_bytes) if size_bytes >= 0.5 else ""


def _rate(rate: int | None) -> str:
    return rate_words(rate, missing="unlimited")


def _who(member: Member) -> str:
    return f"{member.report.level.value} {member.report.member_name} {_way(member)}"


def _way(member: Member) -> str:
    return KEY_WORDS[KEY_OF[member.direction]]


def _event_row(event: Event) -> tuple[str, ...]:
    return elapsed_words(event.at_seconds), _subject(event), _event_words(event)


def _subject(event: Event) -> str:
    if event.member is not None:
        return _who(event.member)
    if event.kind is EventKind.FINDING and event.reason is not None:
        return event.reason.value
    return ", ".join(f"broker {broker}" for broker in event.brokers) or "all levels"


def _event_words(event: Event) -> str:
    if event.member is not None:
        return _change_words(event, event.member)
    if event.kind is EventKind.FINDING:
        return event.words
    if event.kind is EventKind.ALL_BACK:
        return "back at their contracts"
    carried = ", ".join(
        f"{way.value} {rate_of_words(rate, limit)}" for way, rate, limit in event.nics
    )
    words = {EventKind.OVER: "over its limit", EventKind.WITHIN: "within its limit again"}
    return f"{words.get(event.kind, 'load not known')}{f': {carried}' if carried else ''}"


def _change_words(event: Event, member: Member) -> str:
    change = f"{_rate(event.before)} -> {_rate(event.after)}"
    if event.kind is EventKind.GIVEN_BACK:
        return f"{change}: restored to its contract"
    if event.kind is not EventKind.LOWERED:
        return f"{change} of {_rate(member.contract)}"
    brokers = ", ".join(map(str, event.brokers))
    cause = f" for broker{'s' if len(event.brokers) > 1 else ''} {brokers}" if brokers else ""
    cause += "".join(f" at {rate_of_words(rate, limit)}" for _, rate, limit in event.nics)
    longest = _mute(event.longest_mute_seconds)
    delay = f"longest throttle delay {longest}" if longest else "no throttle delay"
    return (
        f"{change} of {_rate(member.contract)}{cause}; {delay} "
        f"({event.predicted_mute_seconds:.0f} s expected at most)"
    )


_TIMELINE = (Column("time", right=True), Column("who", fold=True), Column("what", fold=True))
_NICS = (
    Column("nic"),
    Column("limit", right=True),
    Column("highest", right=True),
    Column("over the limit", right=True),
)
_AMOUNTS = (
    Column("wanted", right=True),
    Column("moved", right=True),
    Column("held by throttle", right=True),
    Column("held by contract", right=True),
    Column("held by full NIC", right=True),
    Column("caught up", right=True),
)
_LEVELS = (
    Column("level"),
    Column("members", right=True),
    Column("lowered", right=True),
    Column("first at", right=True),
    Column("all back at", right=True),
    Column("longest throttle delay", right=True),
    *_AMOUNTS,
)
_MEMBERS = (
    Column("member", fold=True),
    Column("contract", right=True),
    Column("lowest", right=True),
    Column("lowered at", right=True),
    Column("back at", right=True),
    Column("longest throttle delay", right=True),
    Column("delayed in total", right=True),
    *_AMOUNTS,
)


def _nic_row(one: NicOutcome) -> tuple[str, ...]:
    return (
        f"broker {one.broker} {one.direction.value}",
        rate_words(one.limit),
        rate_words(one.highest),
        f"{one.over_seconds} s" if one.over_seconds else "never",
    )


def _amount_cells(amounts: Amounts) -> tuple[str, ...]:
    parts = (
        *(amounts.wanted, amounts.moved, amounts.held_by_throttle),
        *(amounts.held_by_contract, amounts.held_by_nic, amounts.caught_up),
    )
    return tuple(map(amount_words, parts))


def _times(lowered_at: float | None, back_at: float | None) -> tuple[str, str]:
    if lowered_at is None:
        return "", ""
    return elapsed_words(lowered_at), "not yet" if back_at is None else elapsed_words(back_at)


def _mute(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= _SHORTEST_SHOWN_SECONDS else ""


def _level_row(one: LevelOutcome) -> tuple[str, ...]:
    return (
        one.level.value,
        str(one.members),
        str(one.lowered or ""),
        *_times(one.lowered_at, one.back_at),
        _mute(one.longest_mute_seconds),
        *_amount_cells(one.amounts),
    )


def _member_row(one: MemberOutcome) -> tuple[str, ...]:
    is_lowered = one.lowered_at is not None and one.lowest is not None
    return (
        _who(one.member),
        _rate(one.member.contract),
        _rate(one.lowest) if is_lowered else "",
        *_times(one.lowered_at, one.back_at),
        _mute(one.longest_mute_seconds),
        _mute(one.silent_seconds),
        *_amount_cells(one.amounts),
    )


def show_simulation(page: Page, given: SimulationInput, outcome: Outcome) -> None:
    """Print what happened: the timeline first, sums after it, and what was not modelled."""
    policy = given.scenario.policy
    played_as = "" if policy.mode is Mode.ENFORCE else f", simulated as {Mode.ENFORCE.value}"
    page.say(
        f"Simulation {given.name}: {elapsed_words(outcome.seconds)} of policy {policy.key} (mode "
        f"{policy.mode.value}{played_as}), brokers: {len(given.scenario.limits)}. No cluster was "
        "contacted, and nothing was written.",
        "bold",
    )
    for warning in given.warnings:
        page.warn(warning)
    page.heading("What Tidegate would do")
    if not outcome.events:
        page.say("Nothing: no broker goes over its limit, and no quota changes.")
    page.sheet(Sheet(_TIMELINE, [_event_row(one) for one in outcome.events[:_SHOWN_EVENTS]]))
    if len(outcome.events) > _SHOWN_EVENTS:
        page.say(
            f"{len(outcome.events) - _SHOWN_EVENTS} more lines are left out here; --output json "
            "has them all."
        )
    page.heading("Brokers, by means of 10 s")
    page.sheet(Sheet(_NICS, [_nic_row(one) for one in outcome.nics]))
    page.heading("Levels")
    page.sheet(Sheet(_LEVELS, [_level_row(one) for one in outcome.levels]))
    page.heading("Members with load")
    page.sheet(Sheet(_MEMBERS, [_member_row(one) for one in outcome.members]))
    if outcome.remarks:
        page.heading("Notes")
        for remark in outcome.remarks:
            page.say(f"- {remark}")
    page.heading(_summary_line(outcome))
    page.say(f"Not modelled: {LEFT_OUT}.")


def _summary_line(outcome: Outcome) -> str:
    lowered = sum(one.lowered for one in outcome.levels)
    over = [one for one in outcome.nics if one.over_seconds]
    if not lowered:
        although = f", although {len(over)} NICs are over their limits" if over else ""
        return f"No quota is lowered{although}."
    held = sum(one.amounts.held_by_throttle for one in outcome.levels)
    longest = max(one.longest_mute_seconds for one in outcome.levels)
    left = len({one.report.entity for one in outcome.below_at_end})
    end = (
        f"still below the contract at the end: {left}"
        if left
        else "at the end all members are back at their contracted rates"
    )
    return (
        f"{lowered} {'member is' if lowered == 1 else 'members are'} lowered, the longest throttle "
        f"delay is {longest:.0f} s, throttles hold back {amount_words(held) or 'nothing'}; {end}."
    )


# For programs. Rates are bytes per second, amounts bytes, times seconds from the start.


def simulation_document(given: SimulationInput, played: Play, outcome: Outcome) -> Document:
    """Everything that is shown to people, and the rates of NICs and members over time."""
    return {
        "simulation": given.name,
        "policy": given.scenario.policy.key,
        "mode": given.scenario.policy.mode.value,
        "seconds": outcome.seconds,
        "brokers": sorted(given.scenario.limits),
        "timeline": [_event_document(one) for one in outcome.events],
        "nics": [
            {
                "broker": one.broker,
                "direction": one.direction.value,
                "limit": one.limit,
                "highest": round(one.highest),
                "overSeconds": one.over_seconds,
            }
            for one in outcome.nics
        ],
        "levels": [_level_document(one) for one in outcome.levels],
        "members": [_member_document(one) for one in outcome.members],
        "belowContractAtEnd": [_member_name(one) for one in outcome.below_at_end],
        "series": _series(played, outcome),
        "remarks": list(outcome.remarks),
        "warnings": list(given.warnings),
        "notModelled": LEFT_OUT,
    }


def _member_name(member: Member) -> dict[str, object]:
    report = member.report
    return {
        "tier": report.tier_key,
        "member": report.member_name,
        "level": report.level.value,
        "entity": entity_document(report.entity),
        "key": KEY_OF[member.direction].value,
    }


def _event_document(event: Event) -> Document:
    document: dict[str, object] = {
        "atSeconds": round(event.at_seconds, 1),
        "kind": event.kind.value,
    }
    if event.member is not None:
        document |= _member_name(event.member)
        document |= {
            "before": event.before,
            "after": event.after,
            "contract": event.member.contract,
            "belowContract": event.is_below_contract,
            "predictedMuteSeconds": round(event.predicted_mute_seconds, 1),
            "longestMuteSeconds": round(event.longest_mute_seconds, 1),
        }
    if event.brokers:
        document["brokers"] = list(event.brokers)
    if event.nics:
        document["nics"] = [
            {"direction": way.value, "bytesPerSecond": round(rate), "limit": limit}
            for way, rate, limit in event.nics
        ]
    if event.reason is not None:
        document |= {"reason": event.reason.value, "message": event.words}
    return document


def _amounts_document(amounts: Amounts) -> Document:
    return {
        "wanted": round(amounts.wanted),
        "moved": round(amounts.moved),
        "heldByThrottle": round(amounts.held_by_throttle),
        "heldByContract": round(amounts.held_by_contract),
        "heldByFullNic": round(amounts.held_by_nic),
        "caughtUp": round(amounts.caught_up),
    }


def _level_document(one: LevelOutcome) -> Document:
    return {
        "level": one.level.value,
        "members": one.members,
        "lowered": one.lowered,
        "firstLoweredAtSeconds": one.lowered_at,
        "allBackAtSeconds": one.back_at,
        "longestMuteSeconds": round(one.longest_mute_seconds, 1),
        "bytes": _amounts_document(one.amounts),
    }


def _member_document(one: MemberOutcome) -> Document:
    return {
        **_member_name(one.member),
        "contract": one.member.contract,
        "lowest": one.lowest,
        "firstLoweredAtSeconds": one.lowered_at,
        "backAtSeconds": one.back_at,
        "longestMuteSeconds": round(one.longest_mute_seconds, 1),
        "silentSeconds": round(one.silent_seconds, 1),
        "bytes": _amounts_document(one.amounts),
    }


def _series(played: Play, outcome: Outcome) -> Document:
    """Means of equal spans, so few that a document stays small; a quota is that of a span's end."""
    step = max(1, -(-outcome.seconds // _SERIES_POINTS))
    begins = range(0, outcome.seconds, step)

    def means(values: list[float]) -> list[int]:
        parts = (values[begin : begin + step] for begin in begins)
        return [round(sum(part) / len(part)) for part in parts]

    moved: dict[object, list[float]] = {
        one.member.key: [0.0] * outcome.seconds for one in outcome.members
    }
    for row, second in enumerate(played.seconds):
        for (key, _), flow in second.flows.items():
            moved[key][row] += flow.moved
    return {
        "stepSeconds": step,
        "nics": [
            {
                "broker": one.broker,
                "direction": one.direction.value,
                "bytesPerSecond": means(
                    [second.through(one.broker, one.direction) for second in played.seconds]
                ),
            }
            for one in outcome.nics
        ],
        "members": [
            {
                **_member_name(one.member),
                "bytesPerSecond": means(moved[one.member.key]),
                "quota": [
                    played.quotas[one.member.key][min(begin + step, outcome.seconds) - 1]
                    for begin in begins
                ],
            }
            for one in outcome.members
        ],
    }


@options.command
def simulate(
    around: CommandContext,
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="YAML with the policy, its tiers and one Simulation, in one or several files; a "
            "directory means every .yaml and .yml in it (not deeper), - is standard input.",
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="[NAMESPACE/]NAME",
            help="Policy to simulate; required if there are several.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE.svg", help="Also plot the simulation into this SVG file."
        ),
    ] = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Simulate throttling under a given load.

    Try a policy before it enforces: the output shows when a broker is over its limit, which members
    are lowered when and to what, how long clients are delayed, when everything is restored, and how
    much traffic of each level is held back. Neither a cluster nor a network is needed.

    The input is the manifests that you apply, plus one document of kind Simulation with the load:
    who sends or reads how much, from when to when. docs/simulate.md lists its fields,
    examples/simulate/ has an example.

    The decisions come from the operator's own code, in mode Enforce whatever the policy says. The
    cluster is a model: Kafka's quota windows and throttle delays second by second, Prometheus
    scrapes, and NICs. Not modelled: brokers that die, leaders that move, replication that follows
    from produce (give it as background), request sizes, clients that give up and reconnect, other
    writers, and unreachable parts. Contracts are in force from the start. So times and bytes are
    close to a real episode, not equal to it.
    """
    from tidegate.commands.simulation_file import read_simulation

    if plot is not None and plot.suffix != ".svg":
        raise InvalidResource(f"--plot draws SVG: give a file that ends in .svg, not {plot}.")
    given = read_simulation(files, policy=policy, standard_input=around.standard_input)
    played = play(given.scenario)
    outcome = outcome_of(played)
    drawn = _drawn(plot, given, played, outcome)

    def show(page: Page) -> None:
        show_simulation(page, given, outcome)
        for words in drawn:
            page.say(words)

    publish(around.out, output, simulation_document(given, played, outcome), show=show)


def _drawn(
    plot: Path | None, given: SimulationInput, played: Play, outcome: Outcome
) -> tuple[str, ...]:
    """Draw it, and say so. Raises InvalidResource if the file cannot be written."""
    if plot is None:
        return ()
    from tidegate.commands.simulation_plot import simulation_svg

    try:
        plot.write_text(simulation_svg(given.name, played, outcome), encoding="utf-8")
    except OSError as error:
        raise InvalidResource(
            f"The plot cannot be written to {plot} ({error.strerror}). Name a file in a folder "
            "that exists and that you may write to."
        ) from error
    return (f"Drawn into {plot}.",)
