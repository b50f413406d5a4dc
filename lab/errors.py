"""The one exception of the lab: something real did not start, build or answer.

The message says it in words a person can act on.
"""

from __future__ import annotations

import sys


def say(part: str, message: str) -> None:
    """Write one line for `part` to stderr, at once, so that a person sees what is going on."""
    print(f"lab: {part}: {message}", file=sys.stderr, flush=True)


class LabError(Exception):
    """A part of the lab failed.

    The message says what happened, to which part, and what to do; where a process was involved it
    ends with the tail of that process's log. Nothing is retried: the code that opened the lab tears
    it down.
    """
