"""The one exception of the lab: something real did not start, build or answer, said in words a person can act on."""

from __future__ import annotations


class LabError(Exception):
    """A part of the lab failed.

    The message says what happened, to which part, and what to do; where a process was involved it ends with the tail of that
    process's log. Nothing is retried: the lab is torn down by whoever opened it.
    """
