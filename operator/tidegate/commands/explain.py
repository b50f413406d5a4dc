"""`tidegate explain`: which quota a client really gets, at which of Kafka's eight levels, who set it, why, and what hides behind it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from controller_logic.decide import decide
from controller_logic.decision import MemberReport, Memory
from controller_logic.model import Entity, Override, StoredQuota
from tidegate.commands import options
from tidegate.commands.asked import Asked, takes_policy_and_cluster
from tidegate.commands.cluster_access import AccessOptions, live_brokers, observed, opened_cluster, opened_tree
from tidegate.commands.context import Surroundings, surroundings_of
from tidegate.commands.explain_document import explain_document
from tidegate.commands.explain_page import show_explanation
from tidegate.commands.explanation import Subject, explain_client, nothing_is_metered, unreadable
from tidegate.commands.inputs import find_policy
from tidegate.commands.output import OutputFormat, Page, publish
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

ANONYMOUS = "ANONYMOUS"  # what Kafka calls every client that did not log in


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the cluster: its quotas, how many brokers live, what the policy decides, what is amiss, which overrides apply."""

    quotas: Mapping[Entity, StoredQuota]
    brokers: int | None
    reports: tuple[MemberReport, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    overrides: Mapping[Entity, Override] = field(default_factory=dict)


@takes_policy_and_cluster
def explain(
    context: typer.Context,
    *,
    user: Annotated[
        str, typer.Option("--user", "-u", help="Principal name without 'User:'; clients without a login are ANONYMOUS.")
    ] = ANONYMOUS,
    client_id: Annotated[str, typer.Option("--client-id", "-c", help="Client id as the client sends it; leave out for none.")] = "",
    asked: Asked,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Say which quota applies to a client, key by key: level, value, who set it and why, what it shadows, and the total over all brokers.

    With --zookeeper alone nothing else is asked, and the ledger tells who set a value. With a policy (--file, or Kubernetes)
    the answer also has tiers, totals over the brokers that lead, and what happens next. Nothing is written.
    """
    around = surroundings_of(context, debug=debug)
    known = _from_zookeeper(around, asked.access) if asked.names_no_policy else _from_policy(around, asked)
    _answer(around, Subject(user, client_id), known, output=output)


def _answer(around: Surroundings, subject: Subject, known: Known, *, output: OutputFormat) -> None:
    explanations = explain_client(known.quotas, subject, known.reports, known.overrides)
    warnings = (*known.warnings, *_general_warnings(known.quotas, subject))

    def show(page: Page) -> None:
        now_seconds = around.now_seconds()
        show_explanation(page, subject, explanations, brokers=known.brokers, warnings=warnings, now_seconds=now_seconds)

    publish(around.out, output, explain_document(subject, explanations, brokers=known.brokers, warnings=warnings), show=show)


def _from_zookeeper(around: Surroundings, access: AccessOptions) -> Known:
    with opened_tree(around, None, access) as tree:
        return Known(ZooKeeperQuotaStore(tree).read_everything(), live_brokers(tree))


def _from_policy(around: Surroundings, asked: Asked) -> Known:
    source = find_policy(around, asked.policy)
    with opened_cluster(around, source, asked.access) as cluster:
        seen = observed(around, source, cluster)
        decision, _ = decide(seen.observation, Memory())
        warnings = (
            *(f"{hold.reason.value}: {hold.message}" for hold in decision.holds),
            *source.remarks(),
            *(warning.message for warning in seen.warnings),
        )
        brokers = len(seen.observation.topology.brokers) if seen.observation.topology else None
        return Known(cluster.store.read_everything(), brokers, decision.members, warnings, decision.overridden.applied)


def _general_warnings(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> Iterator[str]:
    for stored in unreadable(quotas, subject):
        yield (
            f"The znode of {stored.entity} cannot be read safely ({stored.problem}). What brokers make of it depends on their version, "
            "so the answer below may be wrong. Mend it with Kafka's own kafka-configs."
        )
    if nothing_is_metered(quotas):
        yield "No user or client id has a quota on this cluster, so its brokers measure nobody: rates per user do not exist either."
