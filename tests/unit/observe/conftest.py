"""The same operator in memory as for `control`."""

from tests.unit.control.conftest import log, stage

__all__ = ["log", "stage"]
