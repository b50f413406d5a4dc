"""`tidegate simulate`: what people and programs get of a play, and what is said of wrong files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.goldens.golden import line_with
from tests.unit.pictures import without_a_colour
from tidegate.resources.kinds import parse_simulation
from tidegate.resources.simulation import (
    SIMULATION_API_VERSION,
    BackgroundTraffic,
    SimulatedLoad,
    SimulationSpec,
)

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "simulate" / "evening-backfill.yaml"
SVG = "{http://www.w3.org/2000/svg}"


def tier(name: str, level: str, user: str, throttled: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "policyRef": {"name": "orders"},
        "level": level,
        "members": [
            {
                "name": user,
                "user": user,
                "topics": ["acc"],
                "contract": {"perPartition": {"fetch": "60M"}},
            }
        ],
    }
    if throttled is not None:
        spec["throttledRates"] = {"perPartition": {"fetch": throttled}}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": name, "namespace": "streaming"},
        "spec": spec,
    }


@pytest.fixture
def documents(policy: Any) -> list[Any]:
    """One broker with a limit of 50 MB/s, an L0 and an L3 member who want 70 MB/s together."""
    policy["spec"] |= {
        "mode": "Observe",
        "metrics": {"prometheus": {"url": "http://p:9090"}, "scrapeIntervalSeconds": 5},
        "brokers": {"egress": {"limit": "50M", "capacity": "125M"}},
    }
    simulation = {
        "apiVersion": SIMULATION_API_VERSION,
        "kind": "Simulation",
        "metadata": {"name": "evening"},
        "spec": {
            "brokers": [1],
            "topics": {"acc": {1: 1}},
            "load": [
                {"user": "shop", "fetch": "30M", "to": "3m"},
                {"user": "reports", "fetch": "40M", "from": "30s", "to": "3m"},
            ],
        },
    }
    return [policy, tier("core", "L0", "shop"), tier("batch", "L3", "reports", "5M"), simulation]


def run(world: Any, documents: list[Any], *options: str) -> Any:
    return world.run("simulate", world.write_files(*documents), *options)


def test_a_play_reads_like_this(
    world: Any, documents: list[Any], golden: Callable[..., None]
) -> None:
    answer = run(world, documents)
    assert (answer.code, answer.err) == (0, "")
    golden(answer.out)


def test_a_terminal_gets_it_drawn(world: Any, documents: list[Any]) -> None:
    from tests.unit.commands.conftest import Terminal

    world.open_out = Terminal
    assert "restored to its contract" in " ".join(run(world, documents).out.split())


def test_programs_get_times_levels_and_series(world: Any, documents: list[Any]) -> None:
    answer = run(world, documents, "-o", "json")
    assert answer.code == 0
    document = json.loads(answer.out)
    lowered = [one for one in document["timeline"] if one["kind"] == "Lowered"]
    assert {(one["member"], one["level"]) for one in lowered} == {("reports", "L3")}
    first = lowered[0]
    assert 30 <= first["atSeconds"] <= 60
    assert first["before"] == first["contract"] == 60_000_000
    assert first["after"] < 60_000_000
    assert first["longestMuteSeconds"] <= first["predictedMuteSeconds"] + 1
    assert [one["kind"] for one in document["timeline"]][-1] == "AllBack"
    low, high = document["levels"]
    assert (low["level"], low["lowered"], low["firstLoweredAtSeconds"]) == ("L0", 0, None)
    assert high["lowered"] == 1
    assert high["bytes"]["heldByThrottle"] > 0
    assert high["bytes"]["wanted"] == pytest.approx(
        high["bytes"]["moved"] + high["bytes"]["heldByThrottle"] + high["bytes"]["heldByContract"],
        abs=document["seconds"],
    )
    assert document["belowContractAtEnd"] == []
    series = document["series"]
    (nic,) = series["nics"]
    points = -(-document["seconds"] // series["stepSeconds"])
    assert (
        {len(one["quota"]) for one in series["members"]} == {points} == {len(nic["bytesPerSecond"])}
    )


def test_the_timeline_and_the_table_have_one_measure_of_over(world: Any) -> None:
    document = json.loads(world.run("simulate", str(EXAMPLE), "-o", "json").out)
    over_seconds = dict.fromkeys(document["brokers"], 0.0)
    for line in document["timeline"]:
        sign = {"Over": -1, "Within": 1}.get(line["kind"], 0)
        for broker in line.get("brokers", ()) if sign else ():
            over_seconds[broker] += sign * line["atSeconds"]
    counted = {nic["broker"]: nic["overSeconds"] for nic in document["nics"]}
    assert all(counted[broker] > 0 for broker, seconds in over_seconds.items() if seconds)
    # gaps shorter than a mean are no line of their own
    assert all(0 <= seconds - counted[broker] < 30 for broker, seconds in over_seconds.items())
    lowered = [line for line in document["timeline"] if line["kind"] == "Lowered"]
    (reading,) = lowered[0]["nics"]
    assert reading["bytesPerSecond"] > reading["limit"]


def test_yaml_says_the_same_as_json(world: Any, documents: list[Any]) -> None:
    as_json = json.loads(run(world, documents, "-o", "json").out)
    assert yaml.safe_load(run(world, documents, "-o", "yaml").out) == as_json


def test_nothing_is_asked_of_any_system(
    world: Any, documents: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a system was asked")

    for opener in ("opened_kubernetes", "topology"):
        monkeypatch.setattr(world, opener, refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert run(world, documents).code == 0
    assert world.asked_as == []


def test_the_plot_is_one_file_that_needs_nothing_else(
    world: Any, documents: list[Any], tmp_path: Path
) -> None:
    documents[2]["spec"]["members"][0]["name"] = "a-reports"
    documents[3]["metadata"]["name"] = "<script>&evening"
    plot = tmp_path / "out.svg"
    answer = run(world, documents, "--plot", str(plot))
    assert answer.code == 0
    assert str(plot) in answer.out
    text = plot.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text == "Simulation <script>&evening"  # type: ignore[union-attr]
    assert "<script" not in text
    assert "href" not in text
    assert "url(" not in text
    words = {element.text for element in root.iter(f"{SVG}text")}
    assert {"broker 1 egress, MB/s", "limit 50 MB/s", "L3 a-reports fetch"} <= words
    assert {element.get("class") for element in root.iter(f"{SVG}polygon")} == {"other", "l0", "l3"}
    assert without_a_colour(text) == []  # outside a browser, too


@pytest.mark.parametrize("name", ["out.png", "no-such-folder/out.svg"])
def test_a_plot_that_cannot_be_written_is_an_error_and_nothing_is_printed(
    world: Any, documents: list[Any], tmp_path: Path, name: str
) -> None:
    answer = run(world, documents, "--plot", str(tmp_path / name))
    assert (answer.code, answer.out) == (1, "")
    assert name in answer.err


def test_the_load_may_be_in_a_file_of_its_own(world: Any, documents: list[Any]) -> None:
    together = run(world, documents, "-o", "json").out
    (world.folder / "load.yaml").write_text(yaml.safe_dump(documents[3]))
    (world.folder / "tiers.yaml").write_text(yaml.safe_dump_all(documents[:3]))
    (world.folder / "all.yaml").unlink()
    apart = world.run("simulate", str(world.folder), "-o", "json")
    assert apart.out == together
    text = (world.folder / "load.yaml").read_text()
    piped = world.run(
        "simulate", str(world.folder / "tiers.yaml"), "-", "-o", "json", standard_input=text
    )
    assert piped.out == together


def test_other_commands_skip_the_load_in_the_same_file(world: Any, documents: list[Any]) -> None:
    plan = world.plan(*documents)
    assert (plan.code, plan.err) == (2, "")


def test_overrides_count_where_the_time_of_day_is_known(world: Any, documents: list[Any]) -> None:
    override = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "QuotaOverride",
        "metadata": {"name": "spare", "namespace": "streaming"},
        "spec": {
            "policyRef": {"name": "orders"},
            "target": {"user": "reports"},
            "action": "Exempt",
            "expiresAt": "2026-12-01T00:00:00Z",
            "reason": "a test",
        },
    }
    left_out = json.loads(run(world, [*documents, override], "-o", "json").out)
    assert left_out["levels"][1]["lowered"] == 1
    assert len(left_out["warnings"]) == 1
    documents[3]["spec"]["startsAt"] = "2026-11-30T23:00:00Z"
    exempt = json.loads(run(world, [*documents, override], "-o", "json").out)
    assert exempt["levels"][1]["lowered"] == 0
    assert exempt["warnings"] == []


def test_schedules_count_where_the_time_of_day_is_known(world: Any, documents: list[Any]) -> None:
    spec = documents[0]["spec"]
    evening = {"from": "23:00", "to": "23:30"}
    spec["brokers"]["schedules"] = [{**evening, "egress": {"limit": "100M"}}]
    spec["escalation"] = {"calendar": {"entries": [{**evening, "levels": {"L3": "90%"}}]}}
    left_out = json.loads(run(world, documents, "-o", "json").out)
    assert left_out["levels"][1]["lowered"] == 1
    named = ("spec.brokers.schedules", "spec.escalation.calendar")
    assert all(name in text for name, text in zip(named, left_out["warnings"], strict=True))
    del spec["escalation"]
    documents[3]["spec"]["startsAt"] = "2026-11-30T23:00:00Z"
    evening_alone = json.loads(run(world, documents, "-o", "json").out)
    assert evening_alone["levels"][1]["lowered"] == 0
    assert evening_alone["warnings"] == []


def test_a_tier_of_another_policy_is_left_out_with_a_warning(
    world: Any, documents: list[Any]
) -> None:
    other = tier("other", "L2", "someone", "1M")
    other["spec"]["policyRef"] = {"name": "payments"}
    answer = run(world, [*documents, other])
    assert answer.code == 0
    line_with(answer.out, "warning", "document 5", "streaming/other")


def test_a_member_that_the_policy_does_not_allow_is_played_without_a_quota(
    world: Any, documents: list[Any]
) -> None:
    documents[0]["spec"]["allowedEntities"] = [{"users": ["shop"]}]
    answer = run(world, documents, "-o", "json")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert {one["level"]: one["lowered"] for one in document["levels"]} == {"L0": 0, "L3": 0}
    (refused,) = [one for one in document["members"] if one["level"] == "L3"]
    assert refused["contract"] is None
    assert refused["bytes"]["moved"] == refused["bytes"]["wanted"]
    assert ["reports" in remark for remark in document["remarks"]] == [True]


Change = Callable[[list[Any]], object]


def load(documents: list[Any], **changes: object) -> None:
    documents[3]["spec"]["load"][1] |= changes


WRONG: dict[str, Change] = {
    "no simulation": lambda docs: docs.pop(3),
    "two simulations": lambda docs: docs.append(
        {**docs[3], "metadata": {"name": "another"}},
    ),
    "no policy": lambda docs: docs.pop(0),
    "two policies": lambda docs: docs.append(
        {**docs[0], "metadata": {"name": "another", "namespace": "streaming"}}
    ),
    "no tier": lambda docs: [docs.pop(1), docs.pop(1)],
    "the same tier twice": lambda docs: docs.append(docs[2]),
    "an unknown kind": lambda docs: docs[2].update(kind="BusinesTier"),
    "an unknown kind of simulation": lambda docs: docs[3].update(kind="Simulatoin"),
    "another version": lambda docs: docs[3].update(apiVersion="simulation.tidegate.io/v2"),
    "a tier that is wrong": lambda docs: docs[2]["spec"].pop("throttledRates"),
    "a policy without limits": lambda docs: docs[0]["spec"].pop("brokers"),
    "a policy without metrics": lambda docs: docs[0]["spec"].pop("metrics"),
    "a user in no tier": lambda docs: load(docs, user="report"),
    "a user with a client id that no tier has": lambda docs: load(docs, clientId="nightly"),
    "a misspelt field": lambda docs: load(docs, fecth="10M"),
    "a rate as a number": lambda docs: load(docs, fetch=40_000_000),
    "neither fetch nor produce": lambda docs: docs[3]["spec"]["load"][1].pop("fetch"),
    "an end before the beginning": lambda docs: load(docs, to="30s"),
    "a time that is none": lambda docs: load(docs, to="soon"),
    "a load without an end": lambda docs: docs[3]["spec"]["load"][1].pop("to"),
    "a load after the end": lambda docs: docs[3]["spec"].update(duration="30s"),
    "a catch-up below the load": lambda docs: load(docs, catchUp="10M"),
    "a broker that is not there": lambda docs: load(docs, brokers=[7]),
    "a broker that leads nothing": lambda docs: [
        docs[3]["spec"].update(brokers=[1, 2]),
        load(docs, brokers=[2]),
    ],
    "a topic without leaders": lambda docs: docs[3]["spec"].pop("topics"),
    "a topic that no broker leads": lambda docs: docs[3]["spec"].update(topics={"acc": {1: 0}}),
    "a load that is too large": lambda docs: docs[3]["spec"]["load"].extend(
        {"user": "shop", "fetch": "1M", "to": "24h"} for _ in range(12)
    ),
    "a topic's broker that is not there": lambda docs: docs[3]["spec"]["topics"]["acc"].update(
        {4: 1}
    ),
    "a background's broker that is not there": lambda docs: docs[3]["spec"].update(
        background=[{"egress": "1M", "brokers": [4], "to": "1m"}]
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_named_with_its_place_and_what_to_do(
    world: Any, documents: list[Any], golden: Callable[..., None], mistake: str
) -> None:
    WRONG[mistake](documents)
    answer = run(world, documents)
    assert (answer.code, answer.out) == (1, "")
    assert "Nothing was simulated." in answer.err
    golden(answer.err.replace(str(world.folder), "FOLDER"))


def test_several_mistakes_are_named_at_once(world: Any, documents: list[Any]) -> None:
    documents[3]["spec"]["load"] += [
        {"user": f"user-{number}", "fetch": "1M", "to": "1m"} for number in range(9)
    ]
    answer = run(world, documents)
    assert answer.code == 1
    assert [f"spec.load[{number}]" in answer.err for number in range(2, 9)] == [True] * 6 + [False]
    assert "And 3 more." in answer.err


@pytest.mark.parametrize(
    "text", ["a: [", "- 1\n- 2\n", ""], ids=["no YAML", "no object", "nothing"]
)
def test_a_file_that_holds_something_else_is_an_error(world: Any, text: str) -> None:
    path = world.folder / "load.yaml"
    path.write_text(text)
    answer = world.run("simulate", str(path))
    assert (answer.code, answer.out) == (1, "")
    assert "Nothing was" in answer.err


def test_a_folder_above_the_load_says_where_it_is(
    world: Any, documents: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    path = tmp_path / "below" / "load.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    world.write_files(*documents[:-1])
    answer = world.run("simulate", str(tmp_path))
    assert answer.code == 1
    assert f"`tidegate simulate {path}` finds it." in answer.err
    assert world.run("simulate", str(path.parent)).code == 0


def test_a_file_that_is_not_there_is_an_error(world: Any) -> None:
    answer = world.run("simulate", str(world.folder / "missing.yaml"))
    assert (answer.code, answer.out) == (1, "")
    assert "missing.yaml" in answer.err


def test_objects_of_others_in_the_same_file_are_skipped(world: Any, documents: list[Any]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "streaming"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": documents[1:3]}
    answer = run(world, [namespace, documents[0], listed, documents[3]])
    assert answer.code == 0


# --- the example and the page ---------------------------------------------------------------------


def test_the_example_plays_as_its_page_says(world: Any) -> None:
    answer = world.run("simulate", str(EXAMPLE), "-o", "json")
    assert answer.code == 0
    document = json.loads(answer.out)
    first = {one["level"]: one["firstLoweredAtSeconds"] for one in document["levels"]}
    assert first["L0"] is None
    assert 300 <= first["L3"] < first["L2"] <= first["L3"] + 2
    of_l2 = [
        (one["kind"], one["atSeconds"])
        for one in document["timeline"]
        if one.get("level") == "L2" and one["kind"] in ("Lowered", "GivenBack")
    ]
    assert [kind for kind, at in of_l2 if at < 540] == ["Lowered", "GivenBack"]
    assert (of_l2[2][0], of_l2[-1][0]) == ("Lowered", "GivenBack")
    assert document["belowContractAtEnd"] == []
    assert document["levels"][0]["bytes"]["heldByThrottle"] == 0
    assert document["warnings"] == []


def test_the_page_names_every_field() -> None:
    page = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    fields = {
        field.alias or name
        for model in (SimulationSpec, SimulatedLoad, BackgroundTraffic)
        for name, field in model.model_fields.items()
    }
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []


def test_the_pages_example_is_the_one_whose_play_it_shows(documents: list[Any]) -> None:
    page = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    shown = page.partition("```yaml\n")[2].partition("```")[0]
    assert parse_simulation(yaml.safe_load(shown)) == parse_simulation(documents[3])


def test_a_plot_needs_no_package_that_only_the_rollup_has() -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('markupsafe', 'jinja2', 'numpy', "
        "'matplotlib', 'pandas', 'pyarrow'))); import tidegate.commands.simulate, "
        "tidegate.commands.simulation_plot"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd="/")
