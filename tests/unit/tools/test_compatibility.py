"""README's line and the page of tested versions say what the kept results say."""

import json
from collections.abc import Mapping
from dataclasses import replace

from lab.packages import KAFKAS
from tests.kafka_versions import AREAS, Tally
from tools.compatibility import PAGE, README, RESULTS, Result, files, line, results, table

PASSED = Result("4.4-kraft", "4.4.0", False, "2026-11-26", {"Store": 3}, {"Store": []})
OLD = replace(PASSED, name="3.9-zookeeper", kafka="3.9.2", has_zookeeper=True)


def test_the_pages_are_of_the_kept_results() -> None:
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text
    assert {PAGE, README} == set(files())


def test_each_version_of_the_lab_has_a_whole_result() -> None:
    kept = results()
    assert {one.name: one.kafka for one in kept} == KAFKAS
    assert [one.name for one in kept if not one.is_complete] == []
    for one in kept:
        assert set(one.passed) == set(Tally(one.name).areas.values())


def test_a_version_with_a_failure_is_shown_and_not_promised() -> None:
    failed = replace(PASSED, failed={"Store": ["test_x"]})
    assert line([OLD, PASSED]) == "Kafka 3.9 to 4.4, with ZooKeeper or KRaft"
    assert line([OLD, failed]) == "Kafka 3.9 to 3.9, with ZooKeeper"
    assert "**1 failed**, 3 passed" in table([OLD, failed])
    assert line([OLD, replace(PASSED, passed={"Store": 0})]) == line([OLD, failed])


def test_an_area_of_one_kind_of_kafka_does_not_apply_to_the_other() -> None:
    other = replace(OLD, passed={"Store": 1, "Silence": 2}, failed={"Store": [], "Silence": []})
    assert "| Silence | 2 | does not apply |" in table([other, PASSED])


def test_a_test_file_has_one_area() -> None:
    for is_kraft in (False, True):
        listed = [file for area in AREAS for file in area.files(is_kraft=is_kraft)]
        assert len(listed) == len(set(listed))


def test_a_result_is_kept_as_it_is_read() -> None:
    tally = Tally("4.4-kraft", dict.fromkeys(Tally("4.4-kraft").areas.values(), 1))
    raw: Mapping[str, object] = json.loads(json.dumps(tally.result()))
    assert tally.is_complete
    assert raw.keys() == json.loads((RESULTS / "4.4-kraft.json").read_text()).keys()
    assert raw["kafka"] == "4.4.0"
