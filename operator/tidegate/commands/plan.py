"""`tidegate plan`: what the operator would write now, and why; from files or from the cluster, and without writing anything."""

from dataclasses import replace
from typing import Annotated

import typer

from controller_logic.decide import decide
from controller_logic.decision import Decision, Memory
from tidegate.commands import options
from tidegate.commands.asked import Asked, takes_policy_and_cluster
from tidegate.commands.cluster_access import AccessOptions, observed, opened_cluster
from tidegate.commands.context import Surroundings, surroundings_of
from tidegate.commands.inputs import PolicySource, find_policy
from tidegate.commands.output import OutputFormat, Page, publish
from tidegate.commands.plan_document import plan_document
from tidegate.commands.plan_page import show_plan
from tidegate.commands.plan_rows import plan_exit_code
from tidegate.control.observe import Seen


@takes_policy_and_cluster
def plan(
    context: typer.Context,
    *,
    asked: Asked,
    everything: Annotated[bool, typer.Option("--all", help="Show also what would stay as it is.")] = False,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Show what the operator would write to Kafka now: every quota before and after, why, for whom, and at what price.

    With --file no Kubernetes is needed; the files must then hold the policy and all its tiers, because what the ledger
    shows as ours and no file claims would be given back. Nothing is written, neither to Kafka nor to the ledger.

    Exit code 2 means that something would change, 0 that nothing would, 1 that it cannot be told.
    """
    around = surroundings_of(context, debug=debug)
    source = find_policy(around, asked.policy)
    seen, decision = decided(around, source, asked.access)
    warnings = (*source.remarks(), *(warning.message for warning in seen.warnings))

    def show(page: Page) -> None:
        for warning in warnings:
            page.warn(warning)
        show_plan(page, seen.observation, decision, show_unchanged=everything)

    publish(around.out, output, plan_document(seen.observation, decision, warnings=warnings), show=show)
    around.exit_code = plan_exit_code(decision)


def decided(around: Surroundings, source: PolicySource, access: AccessOptions) -> tuple[Seen, Decision]:
    """The operator's own observation and decision, made once and not carried out.

    A pause is overlooked for the decision, so that people can see what ends with it; the observation still tells of it.
    """
    with opened_cluster(around, source, access) as cluster:
        seen = observed(around, source, cluster)
    awake = replace(seen.observation, policy=replace(seen.observation.policy, paused=False))
    decision, _ = decide(awake, Memory())
    return seen, decision
