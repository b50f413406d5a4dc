"""README's line and the page of tested versions say what the kept results say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.packages import KAFKAS
from tests.kafka_versions import AREAS, Tally
from tools import compatibility
from tools.compatibility import PAGE, README, Result, files, line, results, table

PASSED = Result("4.4-kraft", "4.4.0", False, "2026-11-26", {"Store": 3}, {"Store": []})
OLD = replace(PASSED, name="3.9-zookeeper", kafka="3.9.2", has_zookeeper=True)


def test_the_pages_are_of_the_kept_results() -> None:
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text
    assert {PAGE, README} == set(files())


def test_what_is_kept_is_of_the_labs_versions_and_of_todays_areas() -> None:
    for one in results():
        assert one.kafka == KAFKAS[one.name]
        assert set(one.passed) == set(Tally(one.name).areas.values())


def test_readme_names_versions_once_each_has_passed_everything() -> None:
    every = [replace(PASSED, name=name, kafka=version) for name, version in KAFKAS.items()]
    assert line(every) == "Kafka 3.9 to 4.4, with ZooKeeper or KRaft"
    assert line(every[:-1]) == ""
    assert line([*every[:-1], replace(every[-1], failed={"Store": ["test_x"]})]) == ""
    assert line([*every[:-1], replace(every[-1], passed={"Store": 0})]) == ""


def test_a_failure_is_shown() -> None:
    failed = replace(PASSED, failed={"Store": ["test_x"]})
    assert "| Store | 3 | **1 failed**, 3 passed |" in table([OLD, failed])


def test_an_area_of_one_kind_of_kafka_does_not_apply_to_the_other() -> None:
    other = replace(OLD, passed={"Store": 1, "Silence": 2}, failed={"Store": [], "Silence": []})
    assert "| Silence | 2 | does not apply |" in table([other, PASSED])


def test_a_test_file_has_one_area() -> None:
    for is_kraft in (False, True):
        listed = [file for area in AREAS for file in area.files(is_kraft=is_kraft)]
        assert len(listed) == len(set(listed))


def test_a_result_is_read_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tally = Tally("4.4-kraft")
    areas = tally.areas
    for area in areas.values():
        tally.passed[area] = 2
    assert tally.is_complete
    monkeypatch.setattr(compatibility, "RESULTS", tmp_path)
    (tmp_path / "4.4-kraft.json").write_text(json.dumps(tally.result()))
    (found,) = results()
    assert found.is_complete
    assert (found.name, found.kafka, found.has_zookeeper) == ("4.4-kraft", "4.4.0", False)
    assert found.passed == dict.fromkeys(areas.values(), 2)
    tally.failed[next(iter(areas.values()))] = ["test_x"]
    (tmp_path / "4.4-kraft.json").write_text(json.dumps(tally.result()))
    assert not tally.is_complete
    assert not results()[0].is_complete
