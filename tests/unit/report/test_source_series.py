"""Selectors of series, as PromQL has them."""

from __future__ import annotations

from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer, Queries
from tidegate.report.request import source_series
from tidegate.rollup.samples import Selection, selection_of, selector_text


def test_every_selector_means_what_is_read() -> None:
    for preset in (Preset.NODE_EXPORTER, Preset.CADVISOR, Preset.JMX_EXPORTER):
        for series in source_series(MetricsSettings(PrometheusServer("http://p:9090"), preset)):
            assert selector_text(selection_of(series.selector)) == series.selector


def test_a_query_of_the_policy_replaces_the_presets() -> None:
    settings = MetricsSettings(
        PrometheusServer("http://p:9090"), queries=Queries(egress='my_nic{way="out"}')
    )
    found = {series.what: series.selector for series in source_series(settings)}
    assert found["fetch, NIC"] == 'my_nic{way="out"}'


def test_signs_that_promql_needs_escaped_are() -> None:
    assert selector_text(Selection("m", {"user": 'a"b\\c'})) == 'm{user="a\\"b\\\\c"}'
