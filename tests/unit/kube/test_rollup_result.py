"""Jobs add to the result, lose none of another Job's, and write over one that is not theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controller_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from controller_logic.rollup_schedule import Window
from tests.contract.kubernetes_contract import POLICY
from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.errors import Conflict
from tidegate.kube.api import JsonObject
from tidegate.kube.rollup_jobs import RollupResult, read_result, record_result

OURS = {**POLICY, "metadata": {**POLICY["metadata"], "namespace": "streaming"}}
FIGURES = {(Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE): DirectionUsage(1e6, 1e6, 1, 1.0, 0.0)}


def record(kubernetes: InMemoryKubernetes, start_ms: int, *, until_seconds: float | None = None, now_ms: int = 1000) -> RollupResult:
    usage = None if until_seconds is None else Usage(7, until_seconds, FIGURES)
    window = Window(start_ms, start_ms + 100)
    return record_result(kubernetes, OURS, published=[window], usage=usage, now_ms=now_ms, valid_until_ms=now_ms + 500)


def test_windows_add_up_and_the_newest_figures_stay() -> None:
    kubernetes = InMemoryKubernetes()
    record(kubernetes, 100, until_seconds=2.0, now_ms=1000)
    record(kubernetes, 0, until_seconds=1.0, now_ms=2000)
    record(kubernetes, 300)
    result, problem = read_result(kubernetes, OURS)
    assert (result, problem) == (
        RollupResult(OURS["metadata"]["uid"], 1000, 1500, (Window(0, 200), Window(300, 400)), Usage(7, 2.0, FIGURES)),
        None,
    )


def test_empty_time_adds_up_too() -> None:
    kubernetes = InMemoryKubernetes()
    for start_ms in (100, 0):
        record_result(
            kubernetes, OURS, published=(), empty=[Window(start_ms, start_ms + 100)], usage=None, now_ms=1000, valid_until_ms=1500
        )
    result, _ = read_result(kubernetes, OURS)
    assert result is not None
    assert (result.published, result.empty) == ((), (Window(0, 200),))


def test_the_slower_writer_reads_again_and_adds() -> None:
    class Raced(InMemoryKubernetes):
        raced = False

        def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
            if not self.raced:
                self.raced = True
                record(self, 500)
            return super().write_config_map(namespace, body)

    kubernetes = Raced()
    assert record(kubernetes, 0).published == (Window(0, 100), Window(500, 600))


def test_a_writer_that_is_always_slower_raises_conflict() -> None:
    class Refusing(InMemoryKubernetes):
        def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
            raise Conflict("another was faster")

    with pytest.raises(Conflict):
        record(Refusing(), 0)


@pytest.mark.parametrize("text", ["", "{}", '{"schemaVersion":99}'])
def test_an_unreadable_result_is_reported_and_written_over(text: str) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.write_config_map("streaming", {"metadata": {"name": "orders-rollup"}, "data": {"result.json": text}})
    assert read_result(kubernetes, OURS)[1]
    assert record(kubernetes, 0).published == (Window(0, 100),)
    assert read_result(kubernetes, OURS)[1] is None


def test_the_result_goes_with_its_policy(golden: Callable[[str], None]) -> None:
    kubernetes = InMemoryKubernetes()
    record(kubernetes, 0)
    written = kubernetes.read_config_map("streaming", "orders-rollup")
    assert written is not None
    assert written["metadata"]["ownerReferences"][0]["uid"] == OURS["metadata"]["uid"]
    other = {**OURS, "metadata": {**OURS["metadata"], "uid": "another"}}
    result, why = read_result(kubernetes, other)
    assert result is None
    golden(why or "")
