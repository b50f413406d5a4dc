"""The query API's usual answer, read in bulk: labels as JSON, but times and values of a series as one run of numbers, by numpy.

Two to three times as fast as reading it as JSON, which is what servers without remote read live on. It takes the layout that Prometheus
and its relatives write, and nothing else: whatever differs (white space, another order, warnings, an error) is left to who reads JSON
properly.
"""

import json
import re
import warnings

import numpy as np

from tidegate.rollup.samples import SeriesSamples

_BEGIN = re.compile(rb'\{"status":"success",(?:"isPartial":false,)?"data":\{"resultType":"matrix","result":\[')
_END = re.compile(rb"\]\}\}\s*")
_FIRST, _FURTHER, _VALUES, _NEXT = b'{"metric":', b',{"metric":', b',"values":[[', b"],["
_ONLY_NUMBERS = bytes.maketrans(b'[]",', b"    ")


def read_usual(body: bytes) -> list[SeriesSamples] | None:
    """Each series with all that came, NaN too; None when the answer is not laid out as usual."""
    begin = _BEGIN.match(body)
    if begin is None:
        return None
    found: list[SeriesSamples] = []
    at = begin.end()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's for text that is no number
        try:
            while _END.fullmatch(body, at) is None:
                series, at = _series(body, at, mark=_FURTHER if found else _FIRST)
                found.append(series)
        except (ValueError, DeprecationWarning):
            return None
    return found


def _series(body: bytes, at: int, *, mark: bytes) -> tuple[SeriesSamples, int]:
    """The series that begins at `at` with this mark, and where it ends; raises ValueError where there is none."""
    if not body.startswith(mark, at):
        raise ValueError("no series begins here")
    values_at = body.index(_VALUES, at)  # no part of a label, in which the quotes would be escaped
    end = body.index(b"]]}", values_at)
    labels = json.loads(body[at + len(mark) : values_at])
    text = body[values_at + len(_VALUES) : end]
    numbers = np.fromstring(text.translate(_ONLY_NUMBERS), np.float64, sep=" ").reshape(-1, 2)
    if not isinstance(labels, dict) or len(numbers) != text.count(_NEXT) + 1:
        raise ValueError("these are no samples")
    return SeriesSamples(labels, np.rint(numbers[:, 0] * 1000).astype(np.int64), numbers[:, 1].copy()), end + 3
