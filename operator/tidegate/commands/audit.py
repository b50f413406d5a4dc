"""`tidegate audit`: an audit trail's decisions, writes and effects, by line or summed by level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.output import Column, Document, OutputFormat, Page, Sheet, publish
from tidegate.control.audit.sink import LOST
from tidegate.errors import InvalidResource, NotFound
from tidegate.settings import STANDARD_STREAM
from tidegate_logic.model import BYTE_RATE_KEYS, Level, QuotaKey
from tidegate_logic.quota_values import KEY_WORDS, quota_words
from tidegate_logic.reasons import Reason
from tidegate_logic.words import UNKNOWN, rate_words

if TYPE_CHECKING:
    from tidegate.control.audit.lines import AuditLine, AuditLines, Wanted

# One sentence for each audit line. Every number comes from the line; no missing one is made up.


_LIMITED_BY = {
    "target": "as far as it should go",
    "maxMute": "as far as the longest mute allows",
    "floor": "as far as its clients bear",
    "headroom": "as far as there is room",
    "contract": "the whole contract",
    "ramp": "no more than eightfold at a time, double after a raise that was too much",
}
_ENDS = {"applied": "", "wouldWrite": " (mode Observe: not written)"}


def line_words(line: AuditLine) -> str:
    """The event, without its time and policy. A kind of a later version is shown as it is."""
    words = _WORDS.get(str(line.get("kind")))
    return (
        words(line)
        if words is not None
        else ", ".join(f"{name}={value}" for name, value in line.items())
    )


def _round(line: AuditLine) -> str:
    parts = [f"{line.get('dir')} {line.get('phase')}", *_broker_parts(line), *_blind_parts(line)]
    parts += [_action(action) for action in line.get("actions", ())]
    parts += [
        f"{finding['reason']}: {finding['message']}" for finding in line.get("conditions", ())
    ]
    return "; ".join(parts)


def _broker_parts(line: AuditLine) -> Iterator[str]:
    """Only the brokers that need a cut or have room: a list of all brokers would hide them."""
    for broker in line.get("brokers", ()):
        if broker.get("need"):
            yield (
                f"broker {broker['id']} carries {_rate(broker.get('nic'))} of "
                f"{_rate(broker.get('threshold'))}"
            )


def _blind_parts(line: AuditLine) -> Iterator[str]:
    if line.get("blind"):
        yield f"nothing usable of broker {', '.join(str(broker) for broker in line['blind'])}"


def _action(action: Mapping[str, Any]) -> str:
    what, mute = (
        f"{action.get('kind')} {action.get('entity')} ({action.get('tier')})",
        action.get("predictedMute_s") or 0,
    )
    if action.get("waits_s") is not None:
        return f"{what} in {action['waits_s']:.0f} s: it was lowered a moment ago"
    details = [_LIMITED_BY[action["limitedBy"]]] if action.get("limitedBy") in _LIMITED_BY else []
    details += [f"mute up to {mute:.0f} s"] if mute else []
    change = f"{_rate(action.get('from'))} -> {_rate(action.get('to'))}"
    return ", ".join([f"{what} {change}", *details])


def _write(line: AuditLine) -> str:
    outcome = str(line.get("outcome"))
    end = _ENDS.get(
        outcome, f" {outcome}: {line.get('why', '')} {line.get('message', '')}".rstrip()
    )
    return f"{line.get('entity')} {_change(line)}, {line.get('reason')}{_terms(line)}{end}"


def _change(line: AuditLine) -> str:
    key = _key(line)
    if key is None:
        return "only the ledger"
    return f"{KEY_WORDS[key]} {_value(key, line.get('from'))} -> {_value(key, line.get('to'))}"


def _terms(line: AuditLine) -> str:
    key, mute = _key(line), line.get("predictedMute_s") or 0
    terms = [str(line["level"])] if line.get("level") else []
    terms += (
        [f"contract {_value(key, line['contract'])}"]
        if key is not None and line.get("contract") is not None
        else []
    )
    terms += [f"mute up to {mute:.0f} s"] if mute else []
    return f" ({', '.join(terms)})" if terms else ""


def _effect(line: AuditLine) -> str:
    brokers = [
        (
            f"broker {broker['id']} {_rate(broker.get('nicBefore'))} -> "
            f"{_rate(broker.get('nicAfter'))} of {_rate(broker.get('threshold'))}"
        )
        for broker in line.get("brokers", ())
    ]
    return "; ".join(
        [
            f"{line.get('dir')} after {line.get('seconds', 0):.0f} s",
            *brokers,
            *map(_effect_on, line.get("entities", ())),
        ]
    )


def _effect_on(entity: Mapping[str, Any]) -> str:
    rates = f"{_rate(entity.get('rateBefore'))} -> {_rate(entity.get('rateAfter'))}"
    mutes = (
        f"mute {_seconds(entity.get('observedMute_s'))} of at most "
        f"{_seconds(entity.get('predictedMute_s'))}"
    )
    parts = [f"{entity.get('entity')} sends {rates}"]
    parts += [mutes] if entity.get("kind") == "cut" else []
    parts += ["changed again since"] if entity.get("changedSince") else []
    return ", ".join(parts)


def _hold(line: AuditLine) -> str:
    if line.get("state") == "begins":
        return f"{line.get('reason')} begins: {line.get('message')}"
    return f"{line.get('reason')} ends after {line.get('seconds', 0):.0f} s"


def _override(line: AuditLine) -> str:
    whom = ", ".join(line.get("entities", ()))
    return (
        f"override {line.get('override')} {line.get('state')} for {whom}, until "
        f"{line.get('until')}: {line.get('why')}"
    )


def _lost(line: AuditLine) -> str:
    return (
        f"{line.get('lines', UNKNOWN)} lines are missing before this one: they could not be "
        "written, and may have been of any policy"
    )


def _key(line: AuditLine) -> QuotaKey | None:
    return QuotaKey(line["key"]) if line.get("key") in set(QuotaKey) else None


def _value(key: QuotaKey, value: object) -> str:
    if value is None:
        return "unlimited"
    return _rate(value) if key in BYTE_RATE_KEYS else quota_words(key, str(value))


def _rate(value: object) -> str:
    """Of a line of the trail, so a value of a later version is shown as it is."""
    return rate_words(value) if value is None or isinstance(value, (int, float)) else str(value)


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, (int, float)) else UNKNOWN


_WORDS: Mapping[str, Callable[[AuditLine], str]] = {
    "round": _round,
    "write": _write,
    "effect": _effect,
    "hold": _hold,
    "override": _override,
    LOST: _lost,
}
KINDS = tuple(_WORDS)


# Totals by policy and level: cuts, raises, time below contract, longest mutes, and their brokers.
#
# Only quotas that were really written are counted. A period that is still running ends with the
# last line that was read.


_THROTTLING = frozenset({"Throttled", "Calendar", "Relaxing", "Released"})

Group = tuple[str, str]  # policy, level
_Rate = tuple[str, str]  # entity, key


@dataclass(slots=True)
class Tally:
    """Totals of one level of one policy. Mutes are in seconds, None = no line has one.

    `below` are the rates below their contract now.
    """

    cuts: int = 0
    raises: int = 0
    seconds_below: float = 0.0
    worst_predicted: float | None = None
    worst_observed: float | None = None
    brokers: set[str] = field(default_factory=set)
    below: set[_Rate] = field(default_factory=set)
    since_seconds: float = 0.0

    def write(self, line: AuditLine, at_seconds: float) -> None:
        """Count one quota that was written."""
        before, after, contract = (line.get(name) for name in ("from", "to", "contract"))
        if line.get("round") or line.get("reason") in _THROTTLING:
            if isinstance(after, int) and (before is None or after < before):
                self.cuts += 1
                self.worst_predicted = _larger(self.worst_predicted, line.get("predictedMute_s"))
            else:
                self.raises += 1
        is_below = isinstance(after, int) and isinstance(contract, int) and after < contract
        self._mark((str(line.get("entity")), str(line.get("key"))), at_seconds, is_below=is_below)

    def _mark(self, rate: _Rate, at_seconds: float, *, is_below: bool) -> None:
        """Start or stop the time below contract: it runs while any rate of the level is below."""
        was_below = bool(self.below)
        self.below = self.below | {rate} if is_below else self.below - {rate}
        if self.below and not was_below:
            self.since_seconds = at_seconds
        if was_below and not self.below:
            self.seconds_below += at_seconds - self.since_seconds

    def end(self, at_seconds: float) -> None:
        if self.below:
            self.seconds_below += at_seconds - self.since_seconds

    def document(self) -> Document:
        return {
            "cuts": self.cuts,
            "raises": self.raises,
            "secondsBelowContract": round(self.seconds_below, 1),
            "worstPredictedMuteSeconds": self.worst_predicted,
            "worstObservedMuteSeconds": self.worst_observed,
            "brokers": sorted(self.brokers),
        }


def summary_of(lines: Sequence[AuditLine]) -> Mapping[Group, Tally]:
    """Every level of every policy that occurs in the lines, in order."""
    from tidegate.control.audit.lines import seconds_of

    tallies: dict[Group, Tally] = {}
    for line in lines:
        _add(tallies, line)
    for tally in tallies.values():
        tally.end(seconds_of(lines[-1]))
    return dict(sorted(tallies.items()))


def _add(tallies: dict[Group, Tally], line: AuditLine) -> None:
    from tidegate.control.audit.lines import seconds_of

    policy = str(line.get("policy"))

    def of(level: object) -> Tally:
        return tallies.setdefault((policy, str(level)), Tally())

    if line.get("kind") == "write" and line.get("outcome") == "applied" and line.get("level"):
        of(line["level"]).write(line, seconds_of(line))
    if line.get("kind") == "round":
        needy = {
            f"{broker['id']} {line.get('dir')}"
            for broker in line.get("brokers", ())
            if broker.get("need")
        }
        for action in (action for action in line.get("actions", ()) if action.get("kind") == "cut"):
            of(action.get("tier")).brokers |= needy
    if line.get("kind") == "effect":
        for entity in line.get("entities", ()):
            tally = of(entity.get("tier"))
            tally.worst_observed = _larger(tally.worst_observed, entity.get("observedMute_s"))


def _larger(one: float | None, other: object) -> float | None:
    known = [value for value in (one, other) if isinstance(value, (int, float))]
    return max(known, default=None)


def summary_document(summary: Mapping[Group, Tally]) -> list[Document]:
    return [
        {"policy": policy, "level": level, **tally.document()}
        for (policy, level), tally in summary.items()
    ]


def summary_sheet(summary: Mapping[Group, Tally]) -> Sheet:
    columns = (
        *(Column("Policy"), Column("Level")),
        *(
            Column(title, right=True)
            for title in ("Cuts", "Raises", "Below contract", "Predicted mute", "Observed mute")
        ),
        Column("Brokers over", fold=True),
    )
    return Sheet(columns, [_summary_row(*group, tally) for group, tally in summary.items()])


def _summary_row(policy: str, level: str, tally: Tally) -> Sequence[str]:
    mutes = (tally.worst_predicted, tally.worst_observed)
    return (
        *(policy, level, str(tally.cuts), str(tally.raises), f"{tally.seconds_below:.0f} s"),
        *("" if mute is None else f"{mute:.1f} s" for mute in mutes),
        _brokers(tally.brokers),
    )


def _brokers(brokers: Iterable[str]) -> str:
    return ", ".join(sorted(brokers))


@options.command
def audit(
    around: CommandContext,
    *,
    audit_file: Annotated[
        list[str] | None,
        typer.Option(
            "--audit-file",
            envvar="TIDEGATE_AUDIT_FILE",
            metavar="FILE|FOLDER|-",
            help="Audit trail, or a log that contains it; may be repeated. In a folder, every "
            "*.jsonl is read: each Pod has its own. - is standard input, the default.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="[NAMESPACE/]NAME", help="Show only this policy."),
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            "-e",
            metavar="NAME",
            help="Show only this user or client id, or `user=NAME`.",
        ),
    ] = None,
    level: Annotated[
        Level | None,
        typer.Option("--level", metavar="L0|L1|L2|L3", help="Show only members of this level."),
    ] = None,
    of_pass: Annotated[
        str | None,
        typer.Option(
            "--pass",
            metavar="ID",
            help="Show only this control pass; log lines and Events have the same id.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="|".join(KINDS), help="Show only this kind; may be repeated."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help=f"Show lines from this time on. {options.TIME}"
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Show lines up to this time, in the same formats."
        ),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Show totals by level instead of lines.")
    ] = False,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show what the operator decided, and why.

    Each decision comes with its readings, what was written and what that changed. The input is an
    audit trail (`run --audit-file`) or a log that contains one: other lines are skipped, so
    `kubectl logs` can be piped in, and a line torn by a crash is reported. The observed mute is
    Kafka's throttle time, a mean over up to a minute. With --summary, a level counts as below
    contract while any of its members is.
    """
    from tidegate.control.audit.lines import Wanted, in_order
    from tidegate.resources.fields import moment

    unknown = sorted(set(kind or ()) - set(KINDS))
    if unknown:
        raise InvalidResource(
            f"There is no kind {', '.join(unknown)}: the kinds are {', '.join(KINDS)}."
        )
    now_seconds = around.now_seconds()
    wanted = Wanted(
        policy=policy,
        pass_id=of_pass,
        entity=entity,
        level=None if level is None else level.value,
        kinds=frozenset(kind or ()),
        since_seconds=None if since is None else moment(since, now_seconds=now_seconds),
        until_seconds=None if until is None else moment(until, now_seconds=now_seconds),
    )
    trails: dict[str, AuditLines] = {}
    for name in audit_file or (STANDARD_STREAM,):
        trails |= _read(name, around, wanted)
    _answer(around, in_order(trails), output, is_summary=summary)


def _read(name: str, around: CommandContext, wanted: Wanted) -> dict[str, AuditLines]:
    """Each file's lines. Raises NotFound for what cannot be read, or a folder without a trail.

    Raises InvalidResource if nothing is piped in.
    """
    from tidegate.control.audit.lines import TRAIL_SUFFIX, read_lines, trail_files

    if name == STANDARD_STREAM:
        if around.standard_input.isatty():
            raise InvalidResource(
                "Nothing was piped in: give the trail with --audit-file FILE, or pipe the "
                "operator's log in."
            )
        return {name: read_lines(around.standard_input, wanted)}
    trails: dict[str, AuditLines] = {}
    try:
        for path in trail_files(Path(name)):
            with path.open(encoding="utf-8", errors="replace") as stream:
                trails[str(path)] = read_lines(stream, wanted)
    except OSError as error:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"File {error.filename or name} cannot be read ({error.strerror}).",
        ) from error
    if not trails:
        raise NotFound(Reason.INVALID_SPEC, f"In folder {name} there is no file *{TRAIL_SUFFIX}.")
    return trails


def _answer(
    around: CommandContext, trail: AuditLines, output: OutputFormat, *, is_summary: bool
) -> None:
    summary = summary_of(trail.lines)
    shown: Document = (
        {"summary": summary_document(summary)} if is_summary else {"lines": trail.lines}
    )
    read = {
        "otherLines": trail.others,
        "unreadableLines": trail.unreadable,
        "lastLineTorn": trail.is_torn,
    }

    def show(page: Page) -> None:
        for warning in _warnings(trail):
            page.warn(warning)
        page.sheet(summary_sheet(summary) if is_summary else _sheet(trail.lines))
        if not trail.lines:
            page.say(_nothing(trail))

    publish(around.out, output, {**shown, **read}, show=show)


def _warnings(trail: AuditLines) -> Iterator[str]:
    if trail.unreadable:
        shown = ", ".join(str(number) for number in trail.unreadable[:5])
        yield (
            f"Torn audit lines that are left out: {len(trail.unreadable)} (line {shown}). The "
            f"process died or the disk was full."
        )
    if trail.is_torn:
        yield (
            "The last line is not complete and left out: it is being written, or the process "
            "died in it."
        )


def _nothing(trail: AuditLines) -> str:
    return "No line of the audit trail matches." + (
        f" Lines of other logs that were passed over: {trail.others}." if trail.others else ""
    )


def _sheet(lines: Sequence[AuditLine]) -> Sheet:
    """Lines for people; the policy is a column only where there are several."""
    several = len({line["policy"] for line in lines if "policy" in line}) > 1
    columns = (
        Column("Time"),
        *((Column("Policy"),) if several else ()),
        Column("Kind"),
        Column("What", fold=True),
    )
    return Sheet(columns, [_row(line, several=several) for line in lines])


def _row(line: AuditLine, *, several: bool) -> Sequence[str]:
    when = str(line["t"])[:19].replace("T", " ")
    return (
        when,
        *((str(line.get("policy", "every policy")),) if several else ()),
        str(line.get("kind")),
        line_words(line),
    )
