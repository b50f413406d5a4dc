"""The chart's README describes every value by the comment above it."""

from pathlib import Path

import pytest
import yaml

from tools.generate import ALERTS, CHART_README, CHART_README_HEAD, VALUES, Undescribed, Value, described_values, readme

CHECKOUT = Path(__file__).parents[2]


def text_of(path: Path) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


def test_the_committed_page_is_that_of_its_sources() -> None:
    assert text_of(CHART_README) == readme(head=text_of(CHART_README_HEAD), values=text_of(VALUES), alerts=text_of(ALERTS))


def test_a_key_is_described_by_the_lines_of_comment_right_above_it() -> None:
    text = "# a title\n\n# Not this.\n\n# How many,\n# in all.\ncount: 2\n"
    assert described_values(text) == (Value("count", "How many, in all.", "2"),)


def test_a_group_comes_before_its_values() -> None:
    text = "# The image.\nimage:\n  # Its name.\n  name: a\n  # Its tag.\n  tag: ''\n"
    assert described_values(text) == (
        Value("image", "The image.", None),
        Value("image.name", "Its name.", '"a"'),
        Value("image.tag", "Its tag.", '""'),
    )


def test_what_no_comment_takes_apart_is_one_value() -> None:
    text = "# What it takes.\nresources:\n  requests: {cpu: 50m}\n"
    assert described_values(text) == (Value("resources", "What it takes.", '{"requests": {"cpu": "50m"}}'),)


@pytest.mark.parametrize("text", ["count: 2\n", "# A group.\nimage:\n  # Its name.\n  name: a\n  tag: b\n", "# Far away.\n\ncount: 2\n"])
def test_a_value_without_a_comment_is_refused(text: str) -> None:
    with pytest.raises(Undescribed, match=r"count|image\.tag"):
        described_values(text)


def test_no_values_are_no_rows() -> None:
    assert described_values("# nothing yet\n") == ()


def test_every_alert_has_a_row_without_the_templates_of_prometheus() -> None:
    page = readme(head="# T\n", values="", alerts=text_of(ALERTS))
    for rule in yaml.safe_load(text_of(ALERTS))["groups"][0]["rules"]:
        assert f"| `{rule['alert']}` | {rule['labels']['severity']} |" in page
    assert "{{" not in page
