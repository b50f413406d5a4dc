"""The report's colours by role, for a light and a dark page. matplotlib draws with the light ones; in the SVG they become CSS variables,
so that one picture follows the reader's choice.
"""

import re
from enum import StrEnum

from demo.script import Regime


class Role(StrEnum):
    """What a colour stands for. The value is the light page's colour, and no two are the same."""

    PAGE = "#ffffff"
    INK = "#1f2933"
    FAINT = "#52606d"
    RULE = "#d5dbe1"
    TOTAL = "#34495e"
    KILL = "#c0392b"
    RETURN = "#2e7d32"
    QUOTA = "#6c3483"
    ON_BAR = "#fffffe"
    PARTITION_0 = "#0072b2"
    PARTITION_1 = "#b96b00"
    PARTITION_2 = "#00835f"
    LEVEL_0 = "#1b4f8f"
    LEVEL_1 = "#2a9187"
    LEVEL_2 = "#c77f0a"
    LEVEL_3 = "#a83a6b"
    LIMIT = "#c0392c"
    CARD = "#34495d"
    STEPPING = "#e9a23b"
    THROTTLED = "#b5523f"
    RELAXING = "#5c9e6a"
    AT_CONTRACT = "#c9d3dc"
    FIXED = "#f3f0ea"
    MAX = "#e6f1f8"
    MEAN = "#eaf5ea"
    KEPT = "#e3f4e6"
    MISSED = "#fbe4e1"


_DARK = {
    Role.PAGE: "#14181d",
    Role.INK: "#e4e8ec",
    Role.FAINT: "#a3afba",
    Role.RULE: "#3a444e",
    Role.TOTAL: "#c5d3e0",
    Role.KILL: "#ff7b6b",
    Role.RETURN: "#7bd389",
    Role.QUOTA: "#cf9bea",
    Role.ON_BAR: "#10151a",
    Role.PARTITION_0: "#56b4e9",
    Role.PARTITION_1: "#f0a030",
    Role.PARTITION_2: "#35c79a",
    Role.LEVEL_0: "#6ea6e8",
    Role.LEVEL_1: "#4fc2b5",
    Role.LEVEL_2: "#f0b04c",
    Role.LEVEL_3: "#e77fae",
    Role.LIMIT: "#ff7b6c",
    Role.CARD: "#c5d3e1",
    Role.STEPPING: "#d99a3e",
    Role.THROTTLED: "#d9705b",
    Role.RELAXING: "#6fbf80",
    Role.AT_CONTRACT: "#46525e",
    Role.FIXED: "#26241f",
    Role.MAX: "#1a2731",
    Role.MEAN: "#1b2a1f",
    Role.KEPT: "#1c3a24",
    Role.MISSED: "#4a211c",
}
PARTITIONS = {0: Role.PARTITION_0, 1: Role.PARTITION_1, 2: Role.PARTITION_2}
LEVELS = {"L0": Role.LEVEL_0, "L1": Role.LEVEL_1, "L2": Role.LEVEL_2, "L3": Role.LEVEL_3}
TIER_STATES = {"Contract": Role.AT_CONTRACT, "Stepping": Role.STEPPING, "Throttled": Role.THROTTLED, "Relaxing": Role.RELAXING}
REGIMES = {Regime.FIXED: Role.FIXED, Regime.MAX: Role.MAX, Regime.MEAN: Role.MEAN}
_COLOUR = re.compile("|".join(re.escape(role.value) for role in Role))


def light_variables() -> str:
    """The CSS declarations of every role on a light page."""
    return _declarations({role: role.value for role in Role})


def dark_variables() -> str:
    """The same on a dark page."""
    return _declarations(_DARK)


def themed(svg: str) -> str:
    """The picture with every role's colour replaced by its variable; other colours stay."""
    return _COLOUR.sub(lambda match: f"var({_variable(Role(match[0]))})", svg)


def _declarations(colours: dict[Role, str]) -> str:
    return " ".join(f"{_variable(role)}: {colour};" for role, colour in colours.items())


def _variable(role: Role) -> str:
    return "--" + role.name.lower().replace("_", "-")
