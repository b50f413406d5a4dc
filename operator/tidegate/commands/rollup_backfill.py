"""`tidegate rollup backfill`: computes the hours that a store lacks, oldest first; killed, the same command goes on where it was."""

from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import surroundings_of
from tidegate.commands.output import Page
from tidegate.commands.rollup_extra import require_extra
from tidegate.commands.rollup_job import policy_options
from tidegate.commands.trail import moment
from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, Preset, PrometheusServer

_TIME = "A time (2026-11-21T11:00:00Z), or how long ago (15m, 2h, 30d)."
_HOUR_MS = 3_600_000


def backfill(
    context: typer.Context,
    *,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help=f"The first hour. {_TIME}")],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="The end; an hour that is not over by then is left out.")] = "0s",
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAMESPACE/NAME", help="Fill the tables of this policy, as its Jobs would.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="Without a policy: the server, such as http://prometheus:9090.")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", "--store", metavar="DIR|URL", help="Without a policy: where the tables are.")] = None,
    preset: Annotated[Preset, typer.Option("--preset", help="Without a policy: which exporter counts the brokers' cards.")] = (
        Preset.NODE_EXPORTER
    ),
    broker_label: Annotated[
        str | None, typer.Option("--broker-label", metavar="NAME", help="Without a policy: the label that names the broker.")
    ] = None,
    scrape_interval_seconds: Annotated[
        int, typer.Option("--scrape-interval-seconds", min=1, max=300, help="Without a policy: how often the server scrapes.")
    ] = 15,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which hours are missing, and compute none.")] = False,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    debug: options.Debug = False,
) -> None:
    """Publish every hour between --from and --to that the tables lack, a day at a time, oldest first.

    Hours of which Prometheus tells nothing any more are named at the end, with exit code 1; all others are published.
    """
    around = surroundings_of(context, debug=debug)
    require_extra()
    start_ms, end_ms = (int(moment(text, now_seconds=around.now_seconds()) * 1000) for text in (since, until))
    start_ms, end_ms = start_ms - start_ms % _HOUR_MS, end_ms - end_ms % _HOUR_MS
    if (policy is None) == (prometheus is None or out is None):
        raise InvalidResource("Whose tables? Give --policy NAMESPACE/NAME, or both --prometheus URL and --out DIR.")
    if start_ms >= end_ms:
        raise InvalidResource("There is no whole hour between --from and --to. Ask for an hour that is over.")
    from tidegate.commands.rollup_backfill_run import Filling, of_policy, on_this_machine

    page = Page(around.err)
    filling = Filling(start_ms, end_ms, dry_run=dry_run)
    if policy is not None:
        of_policy(around, policy_options(policy, kubeconfig=kubeconfig, context=kube_context), filling, page=page)
        return
    metrics = MetricsSettings(
        PrometheusServer(prometheus or ""),
        preset,
        brokers=None if broker_label is None else BrokerLabel(broker_label),
        scrape_interval_seconds=scrape_interval_seconds,
    )
    on_this_machine(around, metrics, out or "", filling, page=page)
