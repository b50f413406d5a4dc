"""An answer of Prometheus' query API, read as it arrives, each series handed on at once and then forgotten.

The API's shape: `{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {...}, "values": [[time, "value"], ...]}]},
"warnings": [...]}`, in any order of members. It says what is wrong with an answer; what that means for a reading is said elsewhere.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, TypeVar

from tidegate.prometheus.arriving_json import ArrivingJson, NotJson
from tidegate.prometheus.series import Series

Item = TypeVar("Item")

_TEXT = {str}


@dataclass(slots=True)
class Answer(Generic[Item]):
    """What was made of each series, and why the server says that something may be missing (empty = it does not)."""

    items: list[Item] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class NotSamples(ValueError):
    """JSON came, but no samples over a range; the message completes "Prometheus answered, but ..."."""


def read_answer(chunks: Iterator[bytes], each: Callable[[Series], Item]) -> Answer[Item]:
    """The answer that these bytes spell, with `each` applied to every series that has a sample.

    Raises NotJson or NotSamples when it is anything else than a whole, successful answer with samples over a range.
    """
    text, answer, envelope = ArrivingJson(chunks), Answer[Item](), dict[str, object]()
    if text.peek() != "{":
        raise NotJson("it is a web page" if text.peek() == "<" else "it is no JSON object")
    result_type: object = None
    for name in text.members():
        if name == "data" and text.peek() == "{":
            result_type = _read_data(text, answer, each)
        else:
            envelope[name] = text.value()
    text.end()
    _refuse_anything_but_samples(envelope, result_type)
    answer.warnings = _warnings(envelope)
    return answer


def _read_data(text: ArrivingJson, answer: Answer[Item], each: Callable[[Series], Item]) -> object:
    result_type: object = None
    for name in text.members():
        if name == "result" and text.peek() == "[":
            answer.items.extend(each(series) for item in text.items() if (series := _series(item)).samples)
        elif name == "resultType":
            result_type = text.value()
        else:
            text.value()
    return result_type


def _refuse_anything_but_samples(envelope: dict[str, object], result_type: object) -> None:
    if envelope.get("status") != "success":
        raise NotSamples(f"it says status {envelope.get('status')!r} ({envelope.get('error') or 'without saying why'})")
    if result_type != "matrix":
        raise NotSamples(f"with a result of type {result_type!r} instead of samples over a range")


def _warnings(envelope: dict[str, object]) -> list[str]:
    said = envelope.get("warnings") or []
    warnings = [str(warning) for warning in said] if isinstance(said, list) else [str(said)]
    if envelope.get("isPartial"):  # how VictoriaMetrics says it
        warnings.append("isPartial: some of its storage nodes did not answer")
    return warnings


def _series(item: Any) -> Series:
    # Written for speed: a large answer has 100,000 of them.
    try:
        labels, values = item["metric"], item.get("values", ())  # native histograms have none; they are missed where a number was wanted
        samples = tuple([(float(at), float(amount)) for at, amount in values])
        labels_are_text = set(map(type, labels.values())) <= _TEXT
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise NotSamples("a series in it has no labels, or a sample that is not a time with a value") from None
    if not labels_are_text:
        raise NotSamples("a label in it is no text")
    if samples and not (math.isfinite(samples[0][0]) and math.isfinite(samples[-1][0])):
        raise NotSamples("a sample in it has no time")
    for earlier, later in pairwise(samples):
        if not later[0] > earlier[0]:
            raise NotSamples("the samples of a series in it do not follow each other in time")
    return Series(labels, samples)
