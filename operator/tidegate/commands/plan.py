"""`tidegate plan`: what the operator would write now, and why; from files or from the cluster, and without writing anything."""

from dataclasses import replace
from typing import Annotated

import typer

from controller_logic.decide import decide
from controller_logic.decision import Decision, Memory
from controller_logic.model import Observation
from tidegate.commands import options
from tidegate.commands.cluster_access import AccessOptions, opened_cluster
from tidegate.commands.page import OutputFormat, Page, publish
from tidegate.commands.plan_document import plan_document
from tidegate.commands.plan_page import show_plan
from tidegate.commands.plan_rows import plan_exit_code
from tidegate.commands.policy_source import PolicyOptions, PolicySource, find_policy
from tidegate.commands.surroundings import Surroundings, surroundings_of
from tidegate.control.observe import Observer


def plan(
    context: typer.Context,
    *,
    file: options.Files = None,
    policy: options.PolicyName = None,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    namespace: options.Namespace = None,
    zookeeper: options.ZooKeeper = None,
    credentials_file: options.CredentialsFile = None,
    bootstrap_servers: options.BootstrapServers = None,
    client_credentials_file: options.ClientCredentialsFile = None,
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
    access = AccessOptions(
        zookeeper=zookeeper,
        credentials_file=credentials_file,
        bootstrap_servers=bootstrap_servers,
        client_credentials_file=client_credentials_file,
    )
    wanted = PolicyOptions(files=file or (), policy=policy, kubeconfig=kubeconfig, context=kube_context, namespace=namespace)
    source = find_policy(around, wanted)
    observation, decision = decided(around, source, access)

    def show(page: Page) -> None:
        for remark in source.remarks():
            page.warn(remark)
        show_plan(page, observation, decision, show_unchanged=everything)

    publish(around.out, output, plan_document(observation, decision), show=show)
    around.exit_code = plan_exit_code(decision)


def decided(around: Surroundings, source: PolicySource, access: AccessOptions) -> tuple[Observation, Decision]:
    """The operator's own observation and decision, made once and not carried out.

    A pause is overlooked for the decision, so that people can see what ends with it; the observation still tells of it.
    """
    with opened_cluster(around, source, access) as cluster:
        observation = Observer().observe(source.declared, cluster, now_seconds=around.now_seconds()).observation
    awake = replace(observation, policy=replace(observation.policy, paused=False))
    decision, _ = decide(awake, Memory())
    return observation, decision
