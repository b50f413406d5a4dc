"""Loads as YAML, as `tidegate simulate` and the console's tests take them."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples" / "simulate"


def evening(*, mode: str = "Enforce", duration: str = "15m") -> str:
    """The example's evening, enforced: L3 gives from 5 minutes on, L2 from 9 minutes on."""
    text = (EXAMPLES / "evening-backfill.yaml").read_text(encoding="utf-8")
    text = text.replace("mode: Observe", f"mode: {mode}")
    return text.replace(
        "spec:\n  brokers: [1, 2, 3]", f"spec:\n  duration: {duration}\n  brokers: [1, 2, 3]"
    )
