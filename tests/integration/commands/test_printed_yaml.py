"""What commands print as YAML, as kubectl and a real API server read it, and the other way round."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lab.kubernetes.api import KubeApi
from tidegate.commands.import_tiers import Proposals, text_of, tiers_of
from tidegate.commands.inputs import yaml_documents
from tidegate.yaml_text import yaml_text
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration

# bare words that Go's YAML or PyYAML reads as something else than text, and their neighbours
WORDS = (
    *("y", "Y", "n", "N", "yes", "No", "ON", "off", "true", "False", "~", "null", "NULL", "", "<<"),
    *(
        "0",
        "007",
        "08",
        "0o7",
        "0O7",
        "0b1",
        "0x1F",
        "1_000",
        "_1",
        "+1",
        "-1",
        "1e5",
        "1E+5",
        "5.",
    ),
    *(".5", "-.5", "1.5e3", ".inf", "-.INF", ".NaN", "1:30", "190:20:30", "2024-01-01", "=", "-"),
    *("2024-01-01T00:00:00Z", "10M", "5Mi", "1e", "1k", "1E", "99999999999999999999", "1e400"),
    *(
        "- a",
        "a: b",
        "a #b",
        "#a",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "?",
        "? a",
        "{a",
        "[",
    ),
    *(" a", "a ", "a  b", "a\tb", "a\nb", "\n", "a\r\nb", "'", '"', "\\", "---", "...", "a:", ":a"),
    *(
        "\x85",
        "\u2028",
        "\ufeff",
        "\U0001f600",
        "\x7f",
        "\x00",
        "grüße 日本",
        "x" * 200,
        "a b " * 60,
    ),
)
texts = st.one_of(
    st.sampled_from(WORDS),
    st.text("01_.eEoOxXbB+-:yYnN~", max_size=6),
    st.text(st.characters(codec="utf-8"), max_size=12),
)
slow = settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def as_kubectl_reads(api: KubeApi, text: str) -> Any:
    """kubectl's own reading; `data` is not checked, so that nothing hides what it became."""
    return json.loads(
        api.kubectl(
            *("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"), input=text
        )
    )


@slow
@given(found=st.lists(texts, min_size=50, max_size=200))
@example(found=list(WORDS))
def test_every_text_comes_back_from_the_api_server_as_it_was(
    kube_api: KubeApi, found: list[str]
) -> None:
    values = {f"k{number}": text for number, text in enumerate(found)}
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "printed", "namespace": "default"},
        "data": values,
    }
    stored = json.loads(
        kube_api.kubectl("apply", "-o", "json", "-f", "-", input=yaml_text(document))
    )
    assert stored["data"] == values
    # names are keys, too
    document["data"] = {text: [{text: text}] for text in found}
    assert as_kubectl_reads(kube_api, yaml_text(document))["data"] == document["data"]


NAMES = [
    word for word in WORDS if 0 < len(word) < 100 and word.isprintable() and word == word.strip()
]


def test_tiers_that_import_prints_are_taken_whatever_their_members_are_called(
    crds: KubeApi,
) -> None:
    rate = {"perBroker": {"fetch": "10M"}}
    made = Proposals()
    for name in NAMES:
        made.add(
            Entity(name, name), rate, {"fetch": 10_000_000}, levels=(), comments=("a comment",)
        )
    assert not made.notes
    tiers = tiers_of(made.members, "default/y", throttled_percent=10, prefix="imported")
    printed = text_of(tiers)
    out = json.loads(
        crds.kubectl(
            "apply", "--dry-run=server", "-n", "default", "-o", "json", "-f", "-", input=printed
        )
    )
    taken = [member for one in out.get("items", [out]) for member in one["spec"]["members"]]
    assert [(one["user"], one["clientId"]) for one in taken] == [(name, name) for name in NAMES]
    assert yaml_documents("printed", printed) == [tier for tier, _ in tiers]


@slow
@given(
    found=st.lists(
        st.text("01_.eEoOxXbB+-:yYnN~", min_size=1, max_size=6), min_size=200, max_size=400
    )
)
@example(found=[word for word in WORDS if word.isascii() and word.isprintable()])
def test_bare_words_of_a_file_are_read_as_kubectl_reads_them(
    kube_api: KubeApi, found: list[str]
) -> None:
    bare = [word for word in found if _is_one_scalar(word)]
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"
    text += "".join(f"- {word}\n" for word in bare)
    ours = yaml_documents("file", text)[0]["data"] or []
    theirs = as_kubectl_reads(kube_api, text)["data"] or []
    assert [_kind(one) for one in ours] == [_kind(one) for one in theirs]
    assert [float(one) if _kind(one) == "number" else one for one in ours] == pytest.approx(
        [float(one) if _kind(one) == "number" else one for one in theirs]
    )


def _is_one_scalar(word: str) -> bool:
    # infinite and NaN are numbers to both, which JSON, and so kubectl, cannot hold
    endless = word.lower().lstrip("+-") in (".inf", ".nan") or word == "1e400"
    plain = word[:1] not in "#&*!%@`|>'\"{[?" and not word.startswith(("- ", ":", "---", "..."))
    return (
        plain
        and word != "-"
        and word.strip() == word
        and not endless
        and ":" not in word[-1:]
        and (": " not in word and " #" not in word)
    )


def _kind(value: object) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"
