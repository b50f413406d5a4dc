"""Selections say in PromQL what they are, and what presets and policies say in PromQL becomes a
selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidResource
from tidegate.prometheus.queries import queries_of
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate.rollup.samples import Selection, promql, selection_of

matchers = st.dictionaries(
    st.text("abc_", min_size=1, max_size=3), st.text(max_size=20), max_size=3
)


@given(st.from_regex("[a-z_:]{0,5}", fullmatch=True), matchers, matchers, matchers)
def test_a_selection_comes_back(
    metric: str, equal: dict[str, str], matching: dict[str, str], excluding: dict[str, str]
) -> None:
    selection = Selection(metric, equal, matching, excluding)
    if metric or equal or matching or excluding:
        assert selection_of(promql(selection)) == selection


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR, Preset.JMX_EXPORTER])
def test_every_query_of_the_presets_is_a_selection(preset: Preset) -> None:
    for query in astuple(queries_of(MetricsSettings(PrometheusServer("http://x"), preset))):
        assert selection_of(query).matching or selection_of(query).metric


@pytest.mark.parametrize(
    ("query", "selection"),
    [
        ("up", Selection("up")),
        (' up { a = "x" , b =~ "y.*", } ', Selection("up", {"a": "x"}, {"b": "y.*"})),
        ("{__name__='up',a!='x.y'}", Selection("up", {}, {}, {"a": r"x\.y"})),
        (
            r'up{a="tab\t \x41\u00e9\101 \\ \" \n"}',
            Selection("up", {"a": 'tab\t A\u00e9A \\ " \n'}),
        ),
        (r"up{a=`\d`}", Selection("up", {"a": r"\d"})),
        ('up{a!~"x",a!~"y|z"}', Selection("up", {}, {}, {"a": "(?:x)|(?:y|z)"})),
        ('up{a="}"}', Selection("up", {"a": "}"})),
    ],
)
def test_plain_selectors_are_understood(query: str, selection: Selection) -> None:
    assert selection_of(query) == selection


@pytest.mark.parametrize(
    "query",
    [
        "",
        "{}",
        "rate(up[5m])",
        "up[5m]",
        "up offset 5m",
        "up + up",
        'up{a="x"',
        'up{a="x" b="y"}',
        'up{a="x",a="y"}',
        "up{a=x}",
        "1",
    ],
)
def test_anything_else_is_refused_with_advice(query: str) -> None:
    with pytest.raises(InvalidResource):
        selection_of(query)


def test_what_is_no_selector_reads_like_this(golden: Callable[[str], None]) -> None:
    with pytest.raises(InvalidResource) as refused:
        selection_of("rate(up[5m])")
    golden(refused.value.message)
