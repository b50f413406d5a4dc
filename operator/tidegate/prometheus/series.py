"""One series of an answer: its labels and its samples with their own times. It knows nothing of brokers, cards or clients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_SHOWN_LABELS = 6


@dataclass(frozen=True, slots=True)
class Series:
    """`samples` are (seconds since the epoch, value), in rising order of time; values may be NaN or infinite, as the exporter said them."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def first_at_seconds(self) -> float:
        """When its first sample was taken."""
        return self.samples[0][0]

    @property
    def last_at_seconds(self) -> float:
        """When its newest sample was taken."""
        return self.samples[-1][0]

    def __str__(self) -> str:
        named = [f'{name}="{value}"' for name, value in self.labels.items() if name != "__name__"]
        more = ["..."] if len(named) > _SHOWN_LABELS else []
        shown = f"{self.labels.get('__name__', '')}{{{', '.join(named[:_SHOWN_LABELS] + more)}}}"
        return shown.encode("utf-8", "replace").decode()  # half a surrogate pair would break whoever writes the message down


def is_amount(value: float) -> bool:
    """Whether a sample can be a number of bytes or milliseconds: finite and not negative."""
    return 0.0 <= value < math.inf
