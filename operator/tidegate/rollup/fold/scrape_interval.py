"""How often the broker is scraped, by its samples: what a lone sample stands for, and which gap is one.

A run estimates it once and gives it to each of its tasks, so that they agree. It is rounded to whole seconds, so that late scrapes and
the choice of the hour do not move it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.windows import WINDOW_MS
from tidegate.rollup.samples import SeriesSamples

_USUAL_MS: Final = 15_000  # as in metrics.scrapeIntervalSeconds of the policy
_ENOUGH_SERIES: Final = 64  # all series of an exporter have the same times


def estimated_interval_ms(series: Sequence[SeriesSamples]) -> int:
    """The median time between two samples of a series, in whole seconds from 1 s to 5 min; 15 s where no series has two samples."""
    return interval_between([one.times_ms for one in series])


def interval_between(times_of_series: Sequence[NDArray[np.int64]]) -> int:
    """The same of the rising times of each series."""
    gaps = [np.diff(times) for times in times_of_series[:_ENOUGH_SERIES] if len(times) > 1]
    if not gaps:
        return _USUAL_MS
    seconds = round(float(np.median(np.concatenate(gaps))) / 1000)
    return min(max(seconds, 1) * 1000, WINDOW_MS)
