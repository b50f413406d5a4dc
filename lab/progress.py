"""Progress lines for slow work of the lab (downloads, builds, starts). It writes to stderr and decides nothing."""

from __future__ import annotations

import sys


def say(part: str, message: str) -> None:
    """Write one line for `part` to stderr, at once, so that a person sees why nothing else moves."""
    print(f"lab: {part}: {message}", file=sys.stderr, flush=True)
