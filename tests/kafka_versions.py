"""Run on one version of Kafka what every version must pass:

    python -m tests.kafka_versions 4.4-kraft [options of pytest]

The result is `out/kafka-versions/<name>.json`; `make compatibility` takes it into docs/. Exit code
0 = everything passed, 1 = something did not, 2 = there is no Kafka of that name.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.__main__ import prepare
from lab.packages import CHOSEN, KAFKAS

OUTPUT = Path("out/kafka-versions")
_TESTS = Path("tests/integration")
# fixtures that start a Kafka of one kind; a test with neither uses `three_brokers`, or its own
_WITH_ZOOKEEPER = {"kafka", "zookeeper", "racks_with_zookeeper"}
_WITHOUT = {"kraft", "kraft_of_three", "racks_in_kraft"}


@dataclass(frozen=True, slots=True)
class Area:
    """A row of the page: files below tests/integration for both kinds of Kafka, or for one."""

    title: str
    both: tuple[str, ...] = ()
    zookeeper: tuple[str, ...] = ()
    kraft: tuple[str, ...] = ()

    def files(self, *, is_kraft: bool) -> tuple[str, ...]:
        """The files of one kind."""
        return (*self.both, *(self.kraft if is_kraft else self.zookeeper))


AREAS = (
    Area(
        "Brokers report leaders, and apply and keep quotas and logins through a restart",
        ("kafka/test_brokers.py",),
        kraft=("test_lab_kraft.py",),
    ),
    Area(
        "Quota store and ledger: the contract, kills, lost answers, other writers",
        ("kafka/test_admin_store.py",),
        zookeeper=("kafka/test_zookeeper_store.py",),
        kraft=("kafka/test_admin_interleavings.py",),
    ),
    Area(
        "The operator as a process: a contract follows leaders, and the quota of before is restored",
        zookeeper=("operator/test_operator.py",),
        kraft=("operator/test_kraft.py",),
    ),
    Area("Quotas that brokers were not notified of", zookeeper=("kafka/test_silent_quotas.py",)),
    Area("Replication: moves, catching up, throttles, `restore`", ("kafka/test_replication.py",)),
    Area("Reads from followers are detected", ("kafka/test_follower_reads.py",)),
    Area(
        "`plan`, `explain`, `restore`",
        zookeeper=("commands/test_real_cluster.py",),
        kraft=("commands/test_kraft_cluster.py",),
    ),
    Area(
        "`doctor` on a sound installation and on broken ones",
        zookeeper=("commands/test_doctor.py",),
        kraft=("commands/test_doctor_kraft.py",),
    ),
    Area(
        "Delay queues: topics, forwarder",
        ("kafka/test_delay_queues.py", "forwarder/test_forwarding.py"),
        kraft=("forwarder/test_broker_deaths.py", "forwarder/test_rights.py"),
    ),
)


@dataclass
class Tally:
    """A plugin of pytest: leaves out tests of other Kafkas, and counts results by area."""

    name: str
    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_kraft(self) -> bool:
        """Whether it has no ZooKeeper."""
        return self.name.endswith("-kraft")

    @property
    def areas(self) -> Mapping[str, str]:
        """File -> the title of its area."""
        return {
            str(_TESTS / file): area.title
            for area in AREAS
            for file in area.files(is_kraft=self.is_kraft)
        }

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what starts another Kafka."""
        others = [item for item in items if self._is_of_another(item)]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)

    def _is_of_another(self, item: pytest.Item) -> bool:
        fixtures = set(getattr(item, "fixturenames", ()))
        version = getattr(getattr(item, "callspec", None), "params", {}).get("version")
        unwanted = _WITH_ZOOKEEPER if self.is_kraft else _WITHOUT
        starts_kraft = not self.is_kraft and item.get_closest_marker("kraft") is not None
        return bool(fixtures & unwanted) or starts_kraft or version not in (None, KAFKAS[self.name])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: where it passed, or whatever part of it failed or was skipped."""
        area = self.areas[report.nodeid.partition("::")[0]]
        if report.when == "call" and report.passed:
            self.passed[area] = self.passed.get(area, 0) + 1
        elif not report.passed:
            self.failed.setdefault(area, []).append(report.nodeid)

    def result(self) -> dict[str, object]:
        """What is kept of the run."""
        areas = dict.fromkeys(self.areas.values())
        return {
            "kafka": KAFKAS[self.name],
            "zookeeper": not self.is_kraft,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "areas": {
                area: {"passed": self.passed.get(area, 0), "failed": self.failed.get(area, [])}
                for area in areas
            },
        }

    @property
    def is_complete(self) -> bool:
        """Whether each area has tests that passed, and none that did not."""
        return not self.failed and set(self.passed) == set(self.areas.values())


def main(arguments: list[str]) -> int:
    """Run them; returns the exit code."""
    name, *options = arguments or [""]
    if name not in KAFKAS:
        print(f"There is no Kafka named {name!r} here. KAFKA is one of {', '.join(KAFKAS)}.")
        return 2
    os.environ[CHOSEN] = name
    prepare()
    tally = Tally(name)
    code = pytest.main([*tally.areas, *options], plugins=[tally])
    OUTPUT.mkdir(parents=True, exist_ok=True)
    file = OUTPUT / f"{name}.json"
    file.write_text(json.dumps(tally.result(), indent=2) + "\n", encoding="utf-8")
    total = sum(tally.passed.values())
    print(f"Kafka {KAFKAS[name]} ({name}): {total} tests passed; {file} has the result.")
    return 0 if code == pytest.ExitCode.OK and tally.is_complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
