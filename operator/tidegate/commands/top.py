"""`tidegate top`: brokers against their limits, levels and members, and who is held and why; again and again, and read only."""

import json
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.asked import Asked, takes_policy_and_cluster
from tidegate.commands.context import Surroundings, surroundings_of
from tidegate.commands.inputs import PolicySource, find_policy
from tidegate.commands.manifests import STANDARD_INPUT
from tidegate.commands.output import OutputFormat, Page, publish
from tidegate.commands.sight import Sight, opened_lookout
from tidegate.commands.top_document import sight_document
from tidegate.commands.top_page import show_sight
from tidegate.errors import InvalidResource, TidegateError

_FROM_THE_TOP = "\x1b[H\x1b[J"  # the cursor home, and everything below it cleared: less flicker than clearing first


@takes_policy_and_cluster
def top(
    context: typer.Context,
    *,
    asked: Asked,
    metrics_credentials_file: Annotated[
        Path | None,
        typer.Option("--metrics-credentials-file", metavar="FILE", help="YAML file with the keys of the policy's Secrets for Prometheus."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    interval: Annotated[int, typer.Option("--interval", min=1, max=3600, help="Seconds between two looks.")] = 5,
    members: Annotated[int, typer.Option("--members", min=0, help="How many rates of members to show at most; 0 = all.")] = 15,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Show brokers against their limits, levels and members, who is below its contract and why, every few seconds until Ctrl-C.

    The policy, the brokers, the quotas and Prometheus are read anew for every look, and nothing is written. What is not known is shown as
    unknown, with why. A member's rate is over all brokers, its quota and contract are per broker, and Delayed is the highest throttle time
    that Kafka tells of any broker, a mean over up to a minute. On a terminal the table stays in place; with --output json every look is
    one line.
    """
    around = surroundings_of(context, debug=debug)
    if not once and STANDARD_INPUT in asked.policy.files:
        raise InvalidResource("Standard input can be read only once: add --once, or give the policy in a file.")
    in_place = around.out.isatty() and output is OutputFormat.TABLE and not once
    with suppress(KeyboardInterrupt), closing(_looks(around, asked, metrics_credentials_file)) as looks:  # this is how people end it
        for sight in looks:
            _show(around, sight, output, most_members=members, once=once, in_place=in_place)
            if once:
                return
            around.wait_seconds(interval)


def _looks(around: Surroundings, asked: Asked, metrics_file: Path | None) -> Generator[Sight, None, None]:
    """A look whenever it is asked for, always by the policy as it is now. Connections are kept for as long as the policy names the same."""
    source = find_policy(around, asked.policy)
    while True:
        with opened_lookout(around, source, asked.access, metrics_file=metrics_file) as lookout:
            opened = source
            while _names_the_same(source, opened):
                yield lookout.look(source)
                source = _newest(around, asked, source)


def _names_the_same(one: PolicySource, other: PolicySource) -> bool:
    return (one.declared.spec.kafka, one.declared.spec.metrics) == (other.declared.spec.kafka, other.declared.spec.metrics)


def _newest(around: Surroundings, asked: Asked, known: PolicySource) -> PolicySource:
    """The policy as it is now; as it was known where it cannot be read just now."""
    try:
        return find_policy(around, asked.policy)
    except TidegateError as error:
        Page(around.err).warn(f"{error.message} The policy is taken as it was known before.")
        return known


def _show(around: Surroundings, sight: Sight, output: OutputFormat, *, most_members: int, once: bool, in_place: bool) -> None:
    document = sight_document(sight)
    if output is OutputFormat.JSON and not once:
        around.out.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        if in_place:
            around.out.write(_FROM_THE_TOP)
        publish(around.out, output, document, show=lambda page: show_sight(page, sight, most_members=most_members))
        if not in_place and not once:
            around.out.write("---\n" if output is OutputFormat.YAML else "\n")
    around.out.flush()
