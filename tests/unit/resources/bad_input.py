"""What bad input gets, row by row: the field that is blamed.

The same rows are put to the models (unit tests) and to a real API server (integration tests). Both use the words of our own rules;
where only the schema speaks, the API server has words of its own (`server_says`).
"""

from tests.unit.resources.bad_overrides import BAD_OVERRIDES
from tests.unit.resources.bad_policies import BAD_POLICIES
from tests.unit.resources.bad_rollups import BAD_ROLLUPS
from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.bad_tiers import BAD_TIERS

__all__ = ["BAD_INPUT", "BadInput"]

BAD_INPUT = (*BAD_TIERS, *BAD_POLICIES, *BAD_OVERRIDES, *BAD_ROLLUPS)
