"""`tidegate rollup`: usage tables: `run`, `backfill` make, `show` reads, `verify` checks them."""

import re
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

import typer

from tidegate.commands import options, rollup_job
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import bounds_of, owner_of, policy_of, terms_of
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.commands.rollup_job import policy_options, require_extra, rollup_policy
from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, Preset, PrometheusServer

if TYPE_CHECKING:
    from tidegate.rollup.tables.iceberg import CatalogSettings

app = typer.Typer(
    name="rollup",
    help="Build and inspect usage tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIVE_MINUTES_MS, _HOUR_MS = 300_000, 3_600_000

Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR|URL",
        help="Store of the tables: a folder, or file://, s3://, gs://, abfs://.",
    ),
]
PolicyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="Policy and tiers as YAML, with their status if available, for the members of "
        "each tier, contracts and limits. May be repeated.",
    ),
]

Interfaces = Annotated[
    list[str] | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="Count only this network interface as a broker's NIC, as in a policy's "
        "`metrics.interfaces`; * matches any characters. May be repeated.",
    ),
]
Matchers = Annotated[
    list[str] | None,
    typer.Option(
        "--matcher",
        metavar="LABEL=VALUE",
        help="Use only series with this label, as in a policy's `metrics.matchers`; needed if "
        "Prometheus has several Kafka clusters. May be repeated.",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        "--cluster-id",
        metavar="ID",
        help="Kafka's cluster id, a column of every table. Unset: the policy's.",
    ),
]

Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        help="Iceberg catalog to register the tables in, in its namespace tidegate: http:// or "
        "https:// of a REST service, where `?namespace=NAME` names another namespace and "
        "`?warehouse=NAME` a catalog of the service; or a database such as sqlite:///FILE.",
    ),
]


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """The time whose usage is folded."""

    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help=f"Start, the first hour. {options.TIME}")
    ]
    until: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="End; hours not over by then are left out."),
    ] = "0s"

    def between_ms(self, now_seconds: float) -> tuple[int, int]:
        """Start and end in milliseconds. Raises InvalidResource for what is not a time."""
        from tidegate.resources.fields import moment

        since, until = (moment(text, now_seconds=now_seconds) for text in (self.since, self.until))
        return int(since * 1000), int(until * 1000)


app.command("job", short_help="Publish one window of a policy, as the operator's Jobs do.")(
    rollup_job.job
)


@app.command("run", short_help="Build usage tables from Prometheus history.")
@options.command
def run(
    around: CommandContext,
    *,
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus", metavar="URL", help="Prometheus server, such as http://prometheus:9090."
        ),
    ],
    history: HistorySpan,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "--store",
            metavar="DIR|URL",
            help="Store to write the tables to; earlier hours in it are kept.",
        ),
    ],
    preset: Annotated[
        Preset,
        typer.Option(
            "--preset",
            help="Exporter that measures the brokers' NICs, as in a policy's `metrics.preset`.",
        ),
    ] = Preset.NODE_EXPORTER,
    broker_label: Annotated[
        str | None,
        typer.Option(
            "--broker-label",
            metavar="NAME",
            help="Label that names the broker. Unset: the preset's.",
        ),
    ] = None,
    scrape_interval_seconds: Annotated[
        int,
        typer.Option(
            "--scrape-interval-seconds", min=1, max=300, help="The server's scrape interval."
        ),
    ] = 15,
    matcher: Matchers = None,
    interface: Interfaces = None,
    cluster_id: ClusterId = None,
    running: Annotated[
        bool,
        typer.Option(
            "--running",
            help="If --to is in the current hour, also publish its finished windows of 5 minutes.",
        ),
    ] = False,
    metrics_credentials_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-credentials-file",
            metavar="FILE",
            help="YAML file with credentials for Prometheus: `token`, or `username` and "
            "`password`, or `tls.crt` and `tls.key`; and `ca.crt`, its certificate authority.",
        ),
    ] = None,
    file: PolicyFiles = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-file",
            metavar="FILE",
            help="Operator's audit trail, for contracts and episodes where Prometheus has none of "
            "the operator's metrics.",
        ),
    ] = None,
    catalog: Catalog = None,
) -> None:
    """Build usage tables from Prometheus history.

    Folds the samples of whole hours into tables of 5 minutes, hours and days, on this machine,
    without a cluster.

    An interrupted run leaves only complete hours. Run the same command again to continue; what is
    already correct does not change.
    """
    from tidegate.commands.credentials_file import read_credentials_file
    from tidegate.control.audit.lines import lines_in

    require_extra()
    from tidegate.commands.rollup_page import shown
    from tidegate.rollup.engine import Engine, RollupRequest, Span

    now_seconds = around.now_seconds()
    start_ms, end_ms = history.between_ms(now_seconds)
    around.exit_code_of = _exit_code_of
    source = policy_of(around, file)
    policy, trail = (
        terms_of(source),
        () if audit_file is None else lines_in(audit_file),
    )
    span = span_between(start_ms, end_ms, now_ms=int(now_seconds * 1000), running=running)
    page, brokers = Page(around.err), None if broker_label is None else BrokerLabel(broker_label)
    with shown(page) as progress:
        server = PrometheusServer(prometheus)
        if metrics_credentials_file is not None:
            server = read_credentials_file(metrics_credentials_file).for_named_prometheus(
                prometheus
            )
        settings = MetricsSettings(
            server,
            preset,
            brokers=brokers,
            scrape_interval_seconds=scrape_interval_seconds,
            matchers=_matchers(matcher),
            interfaces=_interfaces(interface, preset),
        )
        request = RollupRequest(
            settings,
            store_address(out),
            policy,
            trail=trail,
            owner=owner_of(source, cluster_id),
            catalog=_catalog(catalog),
            bounds=bounds_of(source),
        )
        with Engine(request, clock_ms=around.now_ms, tell=page.say, progress=progress) as engine:
            published = engine.publish(Span(*span))
    shown_by = f"`tidegate rollup show usage_1h --store {out}` shows them."
    page.say(f"{span_words(*span)} are published in {len(published)} windows of {out}. {shown_by}")


@app.command("backfill", short_help="Publish missing hours of the usage tables.")
@options.command
def backfill(
    around: CommandContext,
    *,
    history: HistorySpan,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAMESPACE/NAME",
            help="Fill the tables of this policy, as its Jobs would.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Without a policy: Prometheus server, such as http://prometheus:9090.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "--store", metavar="DIR|URL", help="Without a policy: store of the tables."
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            "--preset", help="Without a policy: exporter that measures the brokers' NICs."
        ),
    ] = (Preset.NODE_EXPORTER),
    broker_label: Annotated[
        str | None,
        typer.Option(
            "--broker-label",
            metavar="NAME",
            help="Without a policy: label that names the broker.",
        ),
    ] = None,
    scrape_interval_seconds: Annotated[
        int,
        typer.Option(
            "--scrape-interval-seconds",
            min=1,
            max=300,
            help="Without a policy: the server's scrape interval.",
        ),
    ] = 15,
    matcher: Matchers = None,
    interface: Interfaces = None,
    cluster_id: ClusterId = None,
    file: PolicyFiles = None,
    catalog: Catalog = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Recompute every hour, published or not, for example after late samples. An hour "
            "is kept if Prometheus now has fewer samples of it.",
        ),
    ] = False,
    dry_run: Annotated[
        options.DryRun,
        typer.Option(
            "--dry-run",
            metavar="none|client",
            help="client: list missing and changed hours without computing them.",
        ),
    ] = options.DryRun.NONE,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
) -> None:
    """Publish missing hours of the usage tables.

    Fills every missing hour between --from and --to, a day at a time, oldest first.

    Hours whose samples Prometheus no longer has are listed at the end, with exit code 1; all others
    are published.
    """
    around.exit_code_of = _exit_code_of
    require_extra()
    start_ms, end_ms = history.between_ms(around.now_seconds())
    start_ms, end_ms = start_ms - start_ms % _HOUR_MS, end_ms - end_ms % _HOUR_MS
    if (policy is None) == (prometheus is None or out is None):
        raise InvalidResource(
            "It is not clear which tables to fill: give --policy NAMESPACE/NAME, or both "
            "--prometheus URL and --out DIR."
        )
    if start_ms >= end_ms:
        raise InvalidResource(
            "There is no whole hour between --from and --to. Ask for an hour that is over."
        )
    from tidegate.rollup.backfill import Backfill
    from tidegate.rollup.engine import RollupRequest

    page = Page(around.err)
    filling = Backfill(
        start_ms,
        end_ms,
        dry_run=dry_run is options.DryRun.CLIENT,
        clock_ms=around.now_ms,
        tell=page.say,
        warn=page.warn,
        again=again,
    )
    if policy is not None:
        with tempfile.TemporaryDirectory(prefix="tidegate-backfill-") as folder:
            asked = policy_options(policy, kubeconfig=kubeconfig, context=kube_context)
            lost = filling.of_policy(rollup_policy(around, asked), Path(folder))
    else:
        brokers = None if broker_label is None else BrokerLabel(broker_label)
        server = PrometheusServer(prometheus or "")
        metrics = MetricsSettings(
            server,
            preset,
            brokers=brokers,
            scrape_interval_seconds=scrape_interval_seconds,
            matchers=_matchers(matcher),
            interfaces=_interfaces(interface, preset),
        )
        source = policy_of(around, file)
        request = RollupRequest(
            metrics,
            store_address(out or ""),
            terms_of(source),
            owner=owner_of(source, cluster_id),
            bounds=bounds_of(source),
            catalog=_catalog(catalog),
        )
        lost = filling.on_this_machine(request)
    if lost:
        page.say(
            f"Not published, because Prometheus has no samples of it: {', '.join(map(str, lost))}.",
            "red",
        )
        around.exit_code = ExitCode.ERROR


@app.command("show", short_help="Show the top rows of a usage table.")
@options.command
def show(
    around: CommandContext,
    *,
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="Table: usage_5m, usage_1h, usage_1d, broker_1h, tier_1d, ..."
        ),
    ],
    store: Store,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help=f"Start. {options.TIME}")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End, in the same formats.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="Column to rank by. Unset: bytes."),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", min=0, help="Maximum number of rows; 0 = all.")
    ] = 20,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show the top rows of a usage table.

    Adds up the table over the requested time and ranks the result.
    """
    require_extra()
    from tidegate.commands.rollup_page import show_top
    from tidegate.rollup.show import Question, top
    from tidegate.rollup.tables.store import UsageStore

    question = Question(
        table=table, start_ms=_ms(around, since), end_ms=_ms(around, until), by=by, most=most
    )
    answer = top(UsageStore.at(store_address(store)), question)
    publish(around.out, output, answer.document(), show=partial(show_top, answer))


@app.command("verify", short_help="Verify the published usage tables.")
@options.command
def verify(
    around: CommandContext,
    *,
    store: Store,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Verify the published usage tables.

    Reads everything, compares it with the sums recorded at publication, and each table with the
    finer ones. An empty store exits with 1: nothing was verified.
    """
    require_extra()
    from tidegate.commands.rollup_page import is_empty, show_verdict
    from tidegate.rollup.tables.store import UsageStore
    from tidegate.rollup.tables.verify import verify as verified

    verdict = verified(UsageStore.at(store_address(store)))
    publish(around.out, output, verdict.document(), show=partial(show_verdict, verdict))
    is_proven = verdict.is_sound and not is_empty(verdict)
    around.exit_code = ExitCode.OK if is_proven else ExitCode.ERROR


def _exit_code_of(error: Exception) -> int:
    """1, but 64 as of a Job for tables that belong to another policy."""
    from tidegate.kube.rollup_jobs import EXIT_BAD_CONFIGURATION
    from tidegate.rollup.tables.format import OtherOwner

    return EXIT_BAD_CONFIGURATION if isinstance(error, OtherOwner) else ExitCode.ERROR


def _interfaces(given: list[str] | None, preset: Preset) -> tuple[str, ...]:
    if given and preset not in (Preset.NODE_EXPORTER, Preset.CADVISOR):
        raise InvalidResource(
            f"--interface is of presets NodeExporter and Cadvisor: {preset} counts no interfaces "
            "by name."
        )
    return tuple(given or ())


def _matchers(given: list[str] | None) -> dict[str, str]:
    found = {}
    for text in given or ():
        name, is_given, value = text.partition("=")
        if not is_given or not _LABEL.fullmatch(name):
            raise InvalidResource(f"--matcher {text} is not LABEL=VALUE, such as cluster=a.")
        found[name] = value
    return found


def _catalog(uri: str | None) -> "CatalogSettings | None":
    from tidegate.rollup.tables.iceberg import CatalogSettings

    if uri is None:
        return None
    if not uri.startswith(("http://", "https://")):
        return CatalogSettings("sql", uri)
    address, _, query = uri.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = options.keys() - {"namespace", "warehouse"}
    if unknown or "" in options.values():
        raise InvalidResource(
            f"--catalog {uri}: after `?` it has namespace=NAME and warehouse=NAME, and nothing "
            "else. A login is in the variables ICEBERG_TOKEN or ICEBERG_CREDENTIAL."
        )
    return CatalogSettings("rest", address, **options)


def store_address(given: str) -> str:
    """A folder as people name it becomes an absolute one; an address stays."""
    return given if "://" in given else f"file://{Path(given).absolute()}"


def _ms(around: CommandContext, text: str | None) -> int | None:
    from tidegate.resources.fields import moment

    return None if text is None else int(moment(text, now_seconds=around.now_seconds()) * 1000)


def span_between(start_ms: int, end_ms: int, *, now_ms: int, running: bool) -> tuple[int, int]:
    """[start, end) in ms: whole hours, or with `running` up to the last 5 minutes that are over.

    Only the hour under way is ever cut, and never at another time than now: publishing an hour as
    far as an earlier time would take rows out of the tables. Raises InvalidResource if nothing
    is over between the two.
    """
    first_ms, last_ms = start_ms - start_ms % _HOUR_MS, end_ms - end_ms % _HOUR_MS
    this_hour_ms = now_ms - now_ms % _HOUR_MS
    if running and end_ms > this_hour_ms:
        last_ms = now_ms - now_ms % _FIVE_MINUTES_MS
    if first_ms >= last_ms:
        raise InvalidResource(_nothing_over(running=running))
    return first_ms, last_ms


def span_words(start_ms: int, end_ms: int) -> str:
    """`3 hours`, or `3 hours and 25 minutes of the one under way`."""
    hours, rest_ms = divmod(end_ms - start_ms, _HOUR_MS)
    return f"{hours} hours" + (
        f" and {rest_ms // 60_000} minutes of the one under way" if rest_ms else ""
    )


def _nothing_over(*, running: bool) -> str:
    if running:
        return (
            "No window of 5 minutes is over between --from and --to, so nothing was rolled up. "
            "Ask for an earlier time, or again later."
        )
    return (
        "There is no whole hour between --from and --to, so nothing was rolled up. Ask for an hour "
        "that is over, or for the one under way with --running."
    )
