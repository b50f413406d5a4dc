"""docs/concepts.md: the steps that its picture draws are those of the product."""

import re
from pathlib import Path

from tidegate_logic.model import QuotaWindow
from tidegate_logic.quotas.mute import largest_safe_step, predicted_mute_seconds

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "concept-steps.svg"
WINDOW = QuotaWindow(11, 1)
FROM, DOWN_TO, MAX_MUTE_SECONDS = 50_000_000, 1_000_000, 12


def silences_seconds() -> list[float]:
    """The bars of the picture, by its own time axis."""
    drawn = PICTURE.read_text(encoding="utf-8")
    ticks = re.findall(r'<text x="([\d.]+)" [^>]*text-anchor="middle"[^>]*>(\d+)</text>', drawn)
    at = {int(label): float(x) for x, label in ticks}
    second = (at[600] - at[0]) / 600
    widths = re.findall(r'width="([\d.]+)" height="13" fill="#b3261e"', drawn)
    return [float(width) / second for width in widths]


def test_the_picture_has_the_pauses_that_are_predicted() -> None:
    predicted = [predicted_mute_seconds(FROM, DOWN_TO, WINDOW)]
    quota = FROM
    while quota > DOWN_TO:
        lower = max(DOWN_TO, largest_safe_step(quota, MAX_MUTE_SECONDS, WINDOW))
        predicted.append(predicted_mute_seconds(quota, lower, WINDOW))
        quota = lower
    drawn = silences_seconds()
    assert len(drawn) == len(predicted)
    assert all(abs(one - other) < 0.5 for one, other in zip(drawn, predicted, strict=True))
    assert f"silent for {predicted[0]:.0f} s" in PICTURE.read_text(encoding="utf-8")
