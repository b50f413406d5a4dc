"""Grafana's dashboards as code: the operator's and the tenant's; `tools.generate` writes them.

A roll-out has two Pods with the same series for a while, so every query takes the maximum over
Pods. Variables choose namespaces and policies. The types are those of Grafana's foundation SDK.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tidegate_logic.decision import LevelState
from tidegate_logic.throttle.decision import Phase

_CHART: Final = Path(__file__).parents[1] / "charts" / "tidegate" / "Chart.yaml"
_SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_PICKED: Final = 'policy_namespace=~"$policy_namespace", policy=~"$policy"'
_OF_POLICY: Final = "policy_namespace, policy"
_GREEN, _YELLOW, _ORANGE, _RED, _GREY = "green", "yellow", "orange", "red", "#8e8e8e"
_RATE, _SECONDS, _SHARE, _PLAIN = "Bps", "s", "percentunit", "short"
_COLOURS: Final = {
    LevelState.CONTRACT: _GREEN,
    LevelState.RELAXING: _YELLOW,
    LevelState.STEPPING: "blue",
    LevelState.THROTTLED: _RED,
    Phase.NORMAL: _GREEN,
    Phase.CUTTING: _ORANGE,
    Phase.RELAXING: _YELLOW,
    Phase.EXHAUSTED: _RED,
    Phase.UNHELPABLE: "dark-red",
    Phase.HELD: _GREY,
}

_THROTTLED: Final = 'state="Throttled"'
_BELOW: Final = 'state=~"Throttled|Relaxing"'
_STUCK: Final = 'phase=~"Exhausted|Unhelpable|Held"'
Query = tuple[str, str]  # PromQL, and its legend


def of(metric: str, labels: str = "", *, picked: str = _PICKED, more: str = "") -> str:
    """The metric of the chosen policies: one series for these labels, of all Pods together."""
    by = f"{_OF_POLICY}, {labels}" if labels else _OF_POLICY
    selector = f"{picked}, {more}" if more else picked
    return f"max by ({by}) (tidegate_{metric}{{{selector}}})"


def counted(metric: str, labels: str, *, picked: str = _PICKED, more: str = "") -> str:
    """How much a counter rose per second, over all Pods: each counts for itself."""
    by = f"{_OF_POLICY}, {labels}" if labels else _OF_POLICY
    selector = f"{picked}, {more}" if more else picked
    return f"sum by ({by}) (rate(tidegate_{metric}{{{selector}}}[$__rate_interval]))"


def states(metric: str, labels: str, name: str, values: Sequence[str], *, picked: str) -> str:
    """One series whose value is the number of the state that is 1."""
    parts = [
        f"{number} * ({of(metric, labels, picked=picked, more=more)})"
        for number, more in enumerate(f'{name}="{value}"' for value in values)
    ]
    return " + ".join(parts)


# Panels


def _target(query: Query, number: int, *, is_table: bool = False) -> prometheus.Dataquery:
    expression, legend = query
    made = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id("ABCDEFGH"[number])
    return made.instant().format(PromQueryFormat.TABLE) if is_table else made.range()


def _thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    found = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def lines(
    title: str,
    about: str,
    *queries: Query,
    unit: str = _PLAIN,
    limit: float | None = None,
    width: int = 12,
) -> timeseries.Panel:
    """Rates and ages over time; a line where the limit is."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .unit(unit)
        .span(width)
        .height(8)
        .fill_opacity(0)
        .show_points(kinds.VisibilityMode.NEVER)
        .axis_soft_min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(kinds.LegendDisplayMode.LIST)
            .placement(kinds.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if limit is not None:
        panel.thresholds(_thresholds((None, _GREEN), (limit, _RED))).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(kinds.GraphTresholdsStyleMode.DASHED)
        )
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number))
    return panel


def number(
    title: str, about: str, query: str, *, bad: float | None = 1, unit: str = _PLAIN, width: int = 4
) -> stat.Panel:
    """One number now; red from `bad` on."""
    steps: list[tuple[float | None, str]] = [(None, _GREEN if bad is not None else "text")]
    if bad is not None:
        steps.append((bad, _RED))
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .unit(unit)
        .span(width)
        .height(4)
        .thresholds(_thresholds(*steps))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target((query, ""), 0))
    )


def timeline(
    title: str, about: str, query: Query, values: Sequence[tuple[str, str]], *, width: int = 24
) -> statetimeline.Panel:
    """Which state each series was in; `values` has the words and colours of 0, 1, 2, ..."""
    mapped = {
        str(place): model.ValueMappingResult(text=words, color=colour, index=place)
        for place, (words, colour) in enumerate(values)
    }
    return (
        statetimeline.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .span(width)
        .height(7)
        .mappings([model.ValueMap(options=mapped)])
        .merge_values(True)
        .show_value(kinds.VisibilityMode.AUTO)
        .with_target(_target(query, 0))
    )


def rows(
    title: str, about: str, units: Sequence[tuple[str, str, str]], *, hidden: Sequence[str] = ()
) -> table.Panel:
    """A table of what is now: one column for each (query, title, unit), joined by their labels."""
    panel = table.Panel().title(title).description(about).datasource(_SOURCE).span(24).height(9)
    renamed = {}
    for place, (query, column, unit) in enumerate(units):
        panel.with_target(_target((query, ""), place, is_table=True))
        value = f"Value #{'ABCDEFGH'[place]}" if len(units) > 1 else "Value"
        renamed[value] = column
        panel.override_by_name(column, [model.DynamicConfigValue(id_val="unit", value=unit)])
    left_out = dict.fromkeys(["Time", *hidden], True)
    if len(units) > 1:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    organise = {"excludeByName": left_out, "renameByName": renamed}
    return panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options=organise)
    )


def _state_words(values: Sequence[LevelState | Phase]) -> list[tuple[str, str]]:
    return [(str(one.value), _COLOURS[one]) for one in values]


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(text="All", value="$__all", selected=True))
    )


def _dashboard(uid: str, title: str, about: str) -> dashboard.Dashboard:
    anchor = "tidegate_last_pass_timestamp_seconds"
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["tidegate", "kafka"])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    namespace = 'policy_namespace=~"$policy_namespace"'
    return made.with_variable(
        _variable("policy_namespace", "Namespace", f"label_values({anchor}, policy_namespace)")
    ).with_variable(_variable("policy", "Policy", f"label_values({anchor}{{{namespace}}}, policy)"))


_NAMED: Final = "{{policy_namespace}}/{{policy}}"


def operators() -> dashboard.Dashboard:
    """What the person on call asks of all policies: who is over, who gives, is anything missing."""
    made = _dashboard(
        "tidegate",
        "Tidegate",
        "Brokers and their limits, who is throttled, and whether everything is known.",
    )
    levels, phases = list(LevelState), list(Phase)
    made.with_row(dashboard.Row("Now"))
    for panel in (
        number(
            "Brokers over their limits",
            "In all selected policies.",
            f"sum({of('broker_over_limit', 'broker')}) or vector(0)",
        ),
        number(
            "Levels below their contracts",
            "Levels that are throttled, or returning to their contracts.",
            f"sum({of('tier_state', 'level, state', more=_BELOW)}) or vector(0)",
        ),
        number(
            "Members not at their contracts",
            "Throttled, stepping, held, contended or not found; at most 500 per policy.",
            f"count({of('member_state', 'tier, member')}) or vector(0)",
        ),
        number(
            "Quotas not at their targets",
            "Quotas that are being changed, or cannot be written.",
            f"sum({of('quotas_managed')} - {of('quotas_in_sync')}) or vector(0)",
        ),
        number(
            "Throttles that cannot help",
            "Exhausted, unhelpable or held: quotas do not bring a broker below its limit.",
            f"sum({of('throttle_phase', 'direction, phase', more=_STUCK)}) or vector(0)",
        ),
        number(
            "Oldest pass",
            "Seconds since the last control pass, for the policy that has waited longest.",
            f"max(time() - {of('last_pass_timestamp_seconds')})",
            bad=60,
            unit=_SECONDS,
        ),
    ):
        made.with_panel(panel)
    made.with_row(dashboard.Row("Brokers"))
    place = "broker, direction"
    limits = of("broker_limit_bytes_per_second", place)
    share = f"{of('broker_bytes_per_second', place)} / ({limits} > 0)"
    for each in (
        lines(
            "Brokers against their limits",
            "Each NIC's load as a share of its limit. A gap means that a broker has no reading.",
            (share, "broker {{broker}} {{direction}}"),
            unit=_SHARE,
            limit=1,
            width=16,
        ),
        lines(
            "Seconds over the limit",
            "Per second: 1 means all the time.",
            (counted("broker_over_limit_seconds_total", place), "broker {{broker}} {{direction}}"),
            unit=_SHARE,
            width=8,
        ),
        timeline(
            "Over its limit",
            "As the operator counts it, also while the load swings around the limit.",
            (of("broker_over_limit", "broker"), "broker {{broker}}"),
            [("within", _GREEN), ("over", _RED)],
        ),
    ):
        made.with_panel(each)
    made.with_row(dashboard.Row("Who is throttled"))
    contract = of("member_target_bytes_per_second", "tier, member, direction")
    held = f"and on ({_OF_POLICY}, tier, member) {of('member_state', 'tier, member')}"
    for one in (
        timeline(
            "Levels",
            "L3 is throttled first, L0 never.",
            (states("tier_state", "level", "state", levels, picked=_PICKED), "{{level}}"),
            _state_words(levels),
        ),
        timeline(
            "Throttle",
            "Exhausted: all members are at their lowest rates. Unhelpable: L0, replication or "
            "clients without a tier use the NIC. Held: an input is missing.",
            (
                states("throttle_phase", "direction", "phase", phases, picked=_PICKED),
                "{{direction}}",
            ),
            _state_words(phases),
        ),
        rows(
            "Below the contract",
            "Members that are not at their contracts: their rate over all brokers, their quota "
            "on each broker, and their contract.",
            (
                (of("member_bytes_per_second", "tier, member, direction"), "Moves", _RATE),
                (
                    f"{of('member_quota_bytes_per_second', 'tier, member, direction')} {held}",
                    "Quota, each broker",
                    _RATE,
                ),
                (f"{contract} {held}", "Contract, each broker", _RATE),
            ),
        ),
        lines(
            "Held back",
            "Estimate: bytes that throttled clients did not send, compared with their rate before.",
            (counted("deferred_bytes_total", "level"), "{{level}}"),
            unit=_RATE,
            width=8,
        ),
        lines(
            "Mutes",
            "Predicted: what the last throttles may cause. Observed: Kafka's own throttle time.",
            (of("predicted_mute_seconds", "level"), "{{level}} predicted"),
            (of("observed_mute_seconds", "level"), "{{level}} observed"),
            unit=_SECONDS,
            width=8,
        ),
        lines(
            "Decisions",
            "Cuts and raises, by what ended the step.",
            (
                counted("throttle_decisions_total", "level, kind, limited_by"),
                "{{level}} {{kind}} {{limited_by}}",
            ),
            unit="ops",
            width=8,
        ),
    ):
        made.with_panel(one)
    made.with_row(dashboard.Row("Is everything known?"))
    for shown in (
        lines(
            "Age of the inputs",
            "Quotas are held while one is missing.",
            (f"time() - {of('input_timestamp_seconds', 'input')}", f"{_NAMED} {{{{input}}}}"),
            unit=_SECONDS,
            width=8,
        ),
        lines(
            "Age of each broker's reading",
            "A broker without a fresh reading is Unknown; no quota is lowered or raised for it.",
            (
                f"time() - {of('broker_reading_timestamp_seconds', place)}",
                "broker {{broker}} {{direction}}",
            ),
            unit=_SECONDS,
            width=8,
        ),
        lines(
            "Missing since",
            "Why quotas are held, and for how long.",
            (
                f"time() - {of('hold_since_timestamp_seconds', 'reason')}",
                f"{_NAMED} {{{{reason}}}}",
            ),
            unit=_SECONDS,
            width=8,
        ),
    ):
        made.with_panel(shown)
    made.with_row(dashboard.Row("Quotas"))
    for quota in (
        lines(
            "Quotas",
            "Managed quotas, those at their targets, and those left alone because another "
            "writer keeps changing them.",
            (of("quotas_managed"), f"{_NAMED} managed"),
            (of("quotas_in_sync"), f"{_NAMED} at the target"),
            (of("quotas_contended"), f"{_NAMED} contended"),
            width=8,
        ),
        lines(
            "Quota writes",
            "By reason.",
            (counted("quota_writes_total", "reason"), "{{reason}}"),
            unit="ops",
            width=8,
        ),
        lines(
            "Write budget",
            "Changes used and allowed per period, and writes waiting for the budget.",
            (f"{of('write_budget_used')} / {of('write_budget_limit')}", f"{_NAMED} used"),
            (of("writes_deferred"), f"{_NAMED} waiting"),
            limit=1,
            width=8,
        ),
        lines(
            "Leader skew",
            "Most leaders on one broker divided by the mean; 1 is even. The ten largest.",
            (f"topk(10, {of('member_leader_skew_ratio', 'tier, member')})", "{{tier}}/{{member}}"),
            limit=2,
            width=12,
        ),
        lines(
            "Overrides end in",
            "Their members then return to what their tiers declare.",
            (f"{of('override_expires_timestamp_seconds', 'override')} - time()", "{{override}}"),
            unit=_SECONDS,
            width=12,
        ),
    ):
        made.with_panel(quota)
    made.with_row(dashboard.Row("Usage and the process"))
    for last in (
        lines(
            "Usage tables are complete until",
            "How long ago that is, and how many windows are waiting or have failed.",
            (
                f"time() - {of('rollup_published_until_timestamp_seconds')}",
                f"{_NAMED} seconds behind",
            ),
            (of("rollup_windows_waiting"), f"{_NAMED} windows waiting"),
            (of("rollup_windows_failed"), f"{_NAMED} windows failed"),
            width=8,
        ),
        lines(
            "Control passes",
            "95th percentile.",
            (
                "histogram_quantile(0.95, sum by (policy_namespace, policy, le) "
                f"(rate(tidegate_pass_duration_seconds_bucket{{{_PICKED}}}[$__rate_interval])))",
                _NAMED,
            ),
            unit=_SECONDS,
            width=8,
        ),
        lines(
            "How passes ended",
            "`broken` is a bug.",
            (counted("passes_total", "result"), f"{_NAMED} {{{{result}}}}"),
            unit="ops",
            width=8,
        ),
    ):
        made.with_panel(last)
    return made


_MINE: Final = f'{_PICKED}, tier=~"$tier", member=~"$member"'
_OF_MEMBER: Final = "tier, member"


def tenants() -> dashboard.Dashboard:
    """What the owner of a tier asks: my rate, my contract, was I throttled."""
    made = _dashboard(
        "tidegate-tenant",
        "Tidegate: my contracts",
        "My rate, my contract, and whether I was throttled.",
    )
    anchor = "tidegate_member_quota_bytes_per_second"
    made.with_variable(_variable("tier", "Tier", f"label_values({anchor}{{{_PICKED}}}, tier)"))
    made.with_variable(
        _variable("member", "Member", f'label_values({anchor}{{{_PICKED}, tier=~"$tier"}}, member)')
    )

    def mine(metric: str, labels: str = "", more: str = "") -> str:
        by = f"{_OF_MEMBER}, {labels}" if labels else _OF_MEMBER
        return of(metric, by, picked=_MINE, more=more)

    name = "{{tier}}/{{member}}"
    quota = mine("member_quota_bytes_per_second", "direction")
    target = mine("member_target_bytes_per_second", "direction")
    for panel in (
        number(
            "Throttled now",
            "How many of my members have less than their contracts because a broker is over its "
            "limit.",
            f"count({mine('member_state', more=_THROTTLED)}) or vector(0)",
            width=6,
        ),
        number(
            "Lowest share of a contract",
            "The lowest quota of any of my members, compared with its contract.",
            f"min({quota} / {target})",
            bad=None,
            unit=_SHARE,
            width=6,
        ),
        number(
            "Throttled for",
            "The longest time that a member which is throttled now has been below its contract.",
            f"max({mine('member_throttle_seconds_total')}) or vector(0)",
            bad=None,
            unit=_SECONDS,
            width=6,
        ),
        number(
            "Brokers over their limits",
            "In the whole policy: the reason for throttling.",
            f"sum({of('broker_over_limit', 'broker')}) or vector(0)",
            width=6,
        ),
    ):
        made.with_panel(panel)
    throttled = (
        f"({mine('member_state', more=_THROTTLED)}) or 0 * {mine('member_quota_bytes_per_second')}"
    )
    made.with_panel(
        timeline(
            "Was I throttled?",
            "Red: below the contract, because a broker was over its limit.",
            (throttled, name),
            [("at the contracted rate", _GREEN), ("throttled", _RED)],
        )
    )
    made.with_panel(
        lines(
            "My quota on each broker",
            "My quota and my contract on each broker. A broker slows clients down above the "
            "quota; nothing is lost.",
            (quota, f"{name} {{{{direction}}}} quota"),
            (target, f"{name} {{{{direction}}}} contract"),
            unit=_RATE,
        )
    )
    made.with_panel(
        lines(
            "My rate while I am below my contract",
            "Over all brokers. These series exist only then; otherwise see Kafka's own metrics.",
            (mine("member_bytes_per_second", "direction"), f"{name} {{{{direction}}}}"),
            unit=_RATE,
        )
    )
    made.with_panel(
        lines(
            "My leaders",
            "Most leaders on one broker divided by the mean; 1 is even. A contract per partition "
            "follows leaders, so uneven leaders make it uneven.",
            (mine("member_leader_skew_ratio"), name),
            limit=2,
            width=24,
        )
    )
    return made


DASHBOARDS: Final[dict[str, Callable[[], dashboard.Dashboard]]] = {
    "tidegate": operators,
    "tidegate-tenant": tenants,
}


# What is marked in all panels of a dashboard while it lasts: name, PromQL, words, colour.
_MARKED: Final = {
    "tidegate": [
        ("Throttled", of("tier_state", "level, state", more=_THROTTLED), "{{level}}", _RED),
        (
            "Quotas held",
            of("hold_since_timestamp_seconds", "reason"),
            f"{_NAMED}: {{{{reason}}}}",
            _GREY,
        ),
    ],
    "tidegate-tenant": [
        (
            "Throttled",
            of("member_state", _OF_MEMBER, picked=_MINE, more=_THROTTLED),
            "{{tier}}/{{member}}",
            _RED,
        ),
    ],
}
# The chart puts the page of `runbookBase` there.
RUNBOOK: Final = f"{yaml.safe_load(_CHART.read_text())['home']}/src/main/docs/operations.md"
_LINKS: Final = [
    {
        "type": "dashboards",
        "title": "Tidegate",
        "tags": ["tidegate"],
        "icon": "dashboard",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    },
    {
        "type": "link",
        "title": "What to do when",
        "icon": "doc",
        "tags": [],
        "url": f"{RUNBOOK}#what-to-do-when",
        "targetBlank": True,
    },
]


def dashboard_json(build: Callable[[], dashboard.Dashboard]) -> str:
    """The dashboard as Grafana imports it, with the ids of its panels in their order, with marks
    of what happened, and links. The SDK's annotations lack their words.
    """
    document: dict[str, Any] = json.loads(json.dumps(build().build(), cls=JSONEncoder))
    document["links"] = _LINKS
    document["annotations"] = {
        "list": [
            {
                "name": name,
                "expr": f"{query} > 0",
                "titleFormat": words,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "enable": True,
                "iconColor": colour,
                "step": "30s",
            }
            for name, query, words, colour in _MARKED[document["uid"]]
        ]
    }
    for place, panel in enumerate(document["panels"], start=1):
        panel["id"] = place
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def queries(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """The title of each mark and panel with its PromQL, and whether it is asked for one moment
    only.
    """
    marks = [(f"mark {one['name']}", one["expr"], False) for one in document["annotations"]["list"]]
    return marks + [
        (panel["title"], target["expr"], bool(target.get("instant")))
        for panel in document["panels"]
        for target in panel.get("targets") or ()
    ]
