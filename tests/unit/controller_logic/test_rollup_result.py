"""What a Job writes down is what the operator reads, it fits into a ConfigMap, and what is no
result is said to be none.
"""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tidegate.kube.rollup_jobs import MOST_BYTES, RollupResult, decode, encode
from tidegate_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from tidegate_logic.rollup_schedule import Window

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
FIGURES = DirectionUsage(30e6, 12e6, 3, 0.99, 0.125)


def result(usage: Usage | None) -> RollupResult:
    return RollupResult(
        "uid-1", 1_000, 2_000, (Window(0, 300_000), Window(600_000, 900_000)), usage
    )


def test_a_result_survives_being_written_down() -> None:
    entities = (Entity("alice"), Entity(client_id="reports"), Entity("bob", "nightly"))
    figures = {(entity, key): FIGURES for entity in entities for key in (FETCH, PRODUCE)}
    for usage in (None, Usage(7, 1_795_000_000.5, figures)):
        assert decode(encode(result(usage))) == result(usage)


def test_what_would_not_fit_leaves_out_those_who_move_least_and_says_how_many() -> None:
    figures = {
        (Entity(f"user-{number:05}", "c" * 120), FETCH): DirectionUsage(
            number * 1e3, 0.0, 1, 1.0, 0.0
        )
        for number in range(10_000)
    }
    text = encode(result(Usage(7, 0.0, figures)))
    kept = {entity.user for entity, _ in decode(text).usage.figures}  # type: ignore[union-attr]
    assert MOST_BYTES - 200 < len(text) <= MOST_BYTES
    assert kept == {f"user-{number:05}" for number in range(10_000 - len(kept), 10_000)}
    assert json.loads(text)["usage"]["omitted"] == 10_000 - len(kept)


def test_a_result_of_before_there_was_empty_time_is_read() -> None:
    reported = result(None)
    with_empty = replace(reported, empty=(Window(300_000, 600_000),))
    assert decode(encode(with_empty)) == with_empty
    document = json.loads(encode(with_empty))
    del document["emptyMs"]
    assert decode(json.dumps(document)) == reported


BROKEN_FIGURES = ([1, 1, 1, 1, -1], ["x", 1, 1, 1, 1], [1])
GOOD = json.loads(encode(result(Usage(7, 0.0, {(Entity("alice"), FETCH): FIGURES}))))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param(json.dumps({**GOOD, "schemaVersion": 2}), id="another version"),
        pytest.param(
            json.dumps({key: value for key, value in GOOD.items() if key != "validUntilMs"}),
            id="a part is missing",
        ),
        pytest.param(
            json.dumps({**GOOD, "publishedMs": [[300_000, 0]]}),
            id="a window that ends before it starts",
        ),
        pytest.param(json.dumps({**GOOD, "publishedMs": [7]}), id="no pair"),
    ],
)
def test_what_is_no_result_is_refused_with_a_reason(
    text: str, golden: Callable[[str], None]
) -> None:
    with pytest.raises(ValueError) as refused:
        decode(text)
    golden(str(refused.value))


@pytest.mark.parametrize("figures", BROKEN_FIGURES)
def test_figures_that_are_no_amounts_are_refused(figures: list[object]) -> None:
    rows = [{"user": "alice", "clientId": "", "fetch": figures}]
    with pytest.raises(ValueError):
        decode(json.dumps({**GOOD, "usage": {**GOOD["usage"], "entities": rows}}))
