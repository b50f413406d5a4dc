"""Grafana's dashboards out of dashboards.yaml: the operator's and the tenant's.

`tools.generate` writes them. A roll-out has two Pods with the same series for a while, so every
query takes the maximum over Pods. Variables choose namespaces and policies. The types are those of
Grafana's foundation SDK.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

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
_MINE: Final = f'{_PICKED}, tier=~"$tier", member=~"$member"'
_COLOURS: Final = {
    LevelState.CONTRACT: "green",
    LevelState.RELAXING: "yellow",
    LevelState.STEPPING: "blue",
    LevelState.THROTTLED: "red",
    Phase.NORMAL: "green",
    Phase.CUTTING: "orange",
    Phase.RELAXING: "yellow",
    Phase.EXHAUSTED: "red",
    Phase.UNHELPABLE: "dark-red",
    Phase.HELD: "#8e8e8e",
}
_STATES: Final[Mapping[str, Sequence[LevelState | Phase]]] = {
    "levels": list(LevelState),
    "phases": list(Phase),
}
_MACRO: Final = re.compile(
    r"@(?:(?P<way>\w+):)?(?P<metric>\w+)\((?P<by>[^();]*)(?:; ?(?P<more>[^()]*))?\)"
)
Declared = Mapping[str, Any]  # a panel, as dashboards.yaml has it


@cache
def declared() -> Mapping[str, Declared]:
    """dashboards.yaml, by the name of each dashboard's file."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return cast(Mapping[str, Declared], yaml.safe_load(text))


def promql(query: str, states: Sequence[LevelState | Phase] = ()) -> str:
    """The query with its macros written out."""

    def written(macro: re.Match[str]) -> str:
        way, metric, by, more = macro["way"], macro["metric"], macro["by"], macro["more"] or ""
        if way == "states":
            parts = (_series("max", metric, by, f'{more}="{one.value}"') for one in states)
            return " + ".join(f"{number} * ({part})" for number, part in enumerate(parts))
        if way == "mine":
            return _series("max", metric, f"tier, member, {by}".removesuffix(", "), more, _MINE)
        return _series("sum" if way == "rate" else "max", metric, by, more)

    return _MACRO.sub(written, query)


def _series(together: str, metric: str, by: str, more: str, picked: str = _PICKED) -> str:
    """The metric of all Pods `together`. A counter's is its rise: each Pod counts for itself."""
    labels = ", ".join(filter(None, ["policy_namespace, policy", by]))
    one = f"tidegate_{metric}{{{', '.join(filter(None, [picked, more]))}}}"
    risen = f"rate({one}[$__rate_interval])" if together == "sum" else one
    return f"{together} by ({labels}) ({risen})"


def _target(
    query: str, legend: str, number: int, *, is_table: bool = False
) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query).legend_format(legend).ref_id("ABCDEFGH"[number])
    return made.instant().format(PromQueryFormat.TABLE) if is_table else made.range()


def _thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    found = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def _lines(one: Declared) -> timeseries.Panel:
    """Rates and ages over time; a line where the limit is."""
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST)
    panel = (
        timeseries.Panel()
        .unit(one.get("unit", "short"))
        .span(one.get("width", 12))
        .height(8)
        .fill_opacity(0)
        .show_points(kinds.VisibilityMode.NEVER)
        .axis_soft_min(0)
        .legend(legend.placement(kinds.LegendPlacement.BOTTOM).show_legend(True))
    )
    if "limit" in one:
        dashed = common.GraphThresholdsStyleConfig().mode(kinds.GraphTresholdsStyleMode.DASHED)
        limit = _thresholds((None, "green"), (one["limit"], "red"))
        panel.thresholds(limit).thresholds_style(dashed)
    for number, (query, words) in enumerate(one["queries"]):
        panel.with_target(_target(promql(query), words, number))
    return panel


def _number(one: Declared) -> stat.Panel:
    """One number now; red from `bad` on, which is 1 unless it says otherwise."""
    bad = one.get("bad", 1)
    steps = [(None, "text")] if bad is None else [(None, "green"), (bad, "red")]
    return (
        stat.Panel()
        .unit(one.get("unit", "short"))
        .span(one.get("width", 4))
        .height(4)
        .thresholds(_thresholds(*steps))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(promql(one["query"]), "", 0))
    )


def _timeline(one: Declared) -> statetimeline.Panel:
    """Which state each series was in; `values` has the words and colours of 0, 1, 2, ..."""
    query, words = one["query"]
    values, states = one["values"], _STATES.get(str(one["values"]), ())
    if states:
        values = [(str(state.value), _COLOURS[state]) for state in states]
    mapped = {
        str(place): model.ValueMappingResult(text=text, color=colour, index=place)
        for place, (text, colour) in enumerate(values)
    }
    return (
        statetimeline.Panel()
        .span(24)
        .height(7)
        .mappings([model.ValueMap(options=mapped)])
        .merge_values(True)
        .show_value(kinds.VisibilityMode.AUTO)
        .with_target(_target(promql(query, states), words, 0))
    )


def _table(one: Declared) -> table.Panel:
    """A table of what is now: one column for each title, unit and query, joined by their labels."""
    panel = table.Panel().span(24).height(9)
    renamed = {}
    for place, (title, unit, query) in enumerate(one["columns"]):
        panel.with_target(_target(promql(query), "", place, is_table=True))
        renamed[f"Value #{'ABCDEFGH'[place]}"] = title
        panel.override_by_name(title, [model.DynamicConfigValue(id_val="unit", value=unit)])
    organise = {"excludeByName": {"Time": True}, "renameByName": renamed}
    for name, options in (("merge", {}), ("organize", organise)):
        panel.with_transformation(model.DataTransformerConfig(id_val=name, options=options))
    return panel


_PANELS: Final[Mapping[str, Callable[[Declared], Any]]] = {
    "lines": _lines,
    "number": _number,
    "timeline": _timeline,
    "table": _table,
}


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


def _dashboard(uid: str, of: Declared) -> dashboard.Dashboard:
    anchor = "tidegate_last_pass_timestamp_seconds"
    namespace = 'policy_namespace=~"$policy_namespace"'
    made = (
        dashboard.Dashboard(of["title"])
        .uid(uid)
        .description(of["about"])
        .tags(["tidegate", "kafka"])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            _variable("policy_namespace", "Namespace", f"label_values({anchor}, policy_namespace)")
        )
        .with_variable(
            _variable("policy", "Policy", f"label_values({anchor}{{{namespace}}}, policy)")
        )
    )
    if of.get("of_members"):
        quota = "tidegate_member_quota_bytes_per_second"
        in_tier = f'{quota}{{{_PICKED}, tier=~"$tier"}}'
        made.with_variable(_variable("tier", "Tier", f"label_values({quota}{{{_PICKED}}}, tier)"))
        made.with_variable(_variable("member", "Member", f"label_values({in_tier}, member)"))
    for title, panels in of["rows"].items():
        if title:
            made.with_row(dashboard.Row(title))
        for one in panels:
            (kind,) = one.keys() & _PANELS.keys()
            panel = _PANELS[kind](one).title(one[kind]).description(one["about"])
            made.with_panel(panel.datasource(_SOURCE))
    return made


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


def dashboard_json(name: str) -> str:
    """The dashboard as Grafana imports it, with the ids of its panels in their order, with marks
    of what happened, and links. The SDK's annotations lack their words.
    """
    of = declared()[name]
    document: dict[str, Any] = json.loads(json.dumps(_dashboard(name, of).build(), cls=JSONEncoder))
    document["links"] = _LINKS
    document["annotations"] = {
        "list": [
            {
                "name": mark["name"],
                "expr": f"{promql(mark['query'])} > 0",
                "titleFormat": mark["words"],
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "enable": True,
                "iconColor": mark["colour"],
                "step": "30s",
            }
            for mark in of["marks"]
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
