"""`tidegate audit`: what the operator decided, wrote and brought about, from its audit trail; by line, or added up by level."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from controller_logic.model import Level
from controller_logic.reasons import Reason
from tidegate.commands import options
from tidegate.commands.audit_summary import summary_document, summary_of, summary_sheet
from tidegate.commands.audit_words import KINDS, line_words
from tidegate.commands.context import Surroundings, surroundings_of
from tidegate.commands.output import Document, OutputFormat, Page, publish
from tidegate.commands.sheet import Column, Sheet
from tidegate.commands.trail import AuditLine, Trail, Wanted, moment, read_trail
from tidegate.errors import InvalidResource, NotFound
from tidegate.settings import STANDARD_STREAM

_TIME = "A time (2026-11-21T11:00:00Z), or how long ago (90s, 15m, 2h, 3d)."


def audit(
    context: typer.Context,
    *,
    audit_file: Annotated[
        str,
        typer.Option(
            "--audit-file",
            "-f",
            envvar="TIDEGATE_AUDIT_FILE",
            metavar="FILE|-",
            help="The trail, or a log that it is in; - is standard input.",
        ),
    ] = STANDARD_STREAM,
    policy: Annotated[str | None, typer.Option("--policy", metavar="[NAMESPACE/]NAME", help="Lines of this policy only.")] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", metavar="NAME", help="Lines about this user or client id, or about `user=NAME`.")
    ] = None,
    level: Annotated[Level | None, typer.Option("--level", metavar="L0|L1|L2|L3", help="Lines about members of this level.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", metavar="|".join(KINDS), help="Lines of this kind; may be repeated.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Lines from then on. {_TIME}")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Lines up to then; likewise.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Add up by level instead of showing lines.")] = False,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Show what the operator decided, on which readings, what it wrote and what that did, from its audit trail (`run --audit-file`).

    Lines of a log that are not the trail's are passed over, so `kubectl logs` can be piped in; a line that a crash tore is told of.
    The observed mute is Kafka's own, a mean over up to a minute. With --summary a level counts as below contract while any of its members
    is.
    """
    around = surroundings_of(context, debug=debug)
    unknown = sorted(set(kind or ()) - set(KINDS))
    if unknown:
        raise InvalidResource(f"There is no kind {', '.join(unknown)}: the kinds are {', '.join(KINDS)}.")
    now_seconds = around.now_seconds()
    wanted = Wanted(
        policy=policy,
        entity=entity,
        level=None if level is None else level.value,
        kinds=frozenset(kind or ()),
        since_seconds=None if since is None else moment(since, now_seconds=now_seconds),
        until_seconds=None if until is None else moment(until, now_seconds=now_seconds),
    )
    _answer(around, _read(audit_file, around, wanted), output, is_summary=summary)


def _read(name: str, around: Surroundings, wanted: Wanted) -> Trail:
    """Raises NotFound for a file that cannot be read, InvalidResource where nothing is piped in."""
    if name == STANDARD_STREAM:
        if around.standard_input.isatty():
            raise InvalidResource("Nothing is piped in: give the trail with --audit-file FILE, or pipe the operator's log in.")
        return read_trail(around.standard_input, wanted)
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as stream:
            return read_trail(stream, wanted)
    except OSError as error:
        raise NotFound(Reason.INVALID_SPEC, f"File {name} cannot be read ({error.strerror}).") from error


def _answer(around: Surroundings, trail: Trail, output: OutputFormat, *, is_summary: bool) -> None:
    summary = summary_of(trail.lines)
    told: Document = {"summary": summary_document(summary)} if is_summary else {"lines": trail.lines}
    read = {"otherLines": trail.others, "unreadableLines": trail.unreadable, "lastLineTorn": trail.is_torn}

    def show(page: Page) -> None:
        for warning in _warnings(trail):
            page.warn(warning)
        page.sheet(summary_sheet(summary) if is_summary else _sheet(trail.lines))
        if not trail.lines:
            page.say(_nothing(trail))

    publish(around.out, output, {**told, **read}, show=show)


def _warnings(trail: Trail) -> Iterator[str]:
    if trail.unreadable:
        shown = ", ".join(str(number) for number in trail.unreadable[:5])
        yield f"{len(trail.unreadable)} audit lines are torn and left out (line {shown}): the process died or the disk was full."
    if trail.is_torn:
        yield "The last line is not complete and left out: it is being written, or the process died in it."


def _nothing(trail: Trail) -> str:
    return "No line of the audit trail is like that." + (f" {trail.others} lines of other logs were passed over." if trail.others else "")


def _sheet(lines: Sequence[AuditLine]) -> Sheet:
    """Lines for people; the policy is a column only where there are several."""
    several = len({line.get("policy") for line in lines}) > 1
    columns = (Column("Time"), *((Column("Policy"),) if several else ()), Column("Kind"), Column("What", fold=True))
    return Sheet(columns, [_row(line, several=several) for line in lines])


def _row(line: AuditLine, *, several: bool) -> Sequence[str]:
    when = str(line["t"])[:19].replace("T", " ")
    return (when, *((str(line.get("policy")),) if several else ()), str(line.get("kind")), line_words(line))
