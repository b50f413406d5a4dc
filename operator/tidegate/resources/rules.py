"""Rules that a schema alone cannot say, each declared once for two readers.

The API server evaluates the CEL expression at admission; the model evaluates the Python predicate when it reads an
object or a file. Both refuse the same things with the same words. Nothing here looks at more than one object.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

# FieldValueDuplicate exists too, but the API server leaves the message out with it
RuleReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that must hold for a value.

    `message` says what must hold; `message_cel` may compute a better one that names the culprit (where that fails, `message`
    stands). `field_path` (as `.throttled`) points at the field below the value that is to blame. `holds` is the same rule in
    Python; it gets the validated value. An empty `cel` means that the schema says it in another way (a list type, a pattern).
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    reason: RuleReason = "FieldValueInvalid"
    field_path: str = ""
    message_cel: str = ""

    def as_schema(self) -> dict[str, str]:
        """The rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message, "reason": self.reason}
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        if self.field_path:
            entry["fieldPath"] = self.field_path
        return entry


class BrokenRule(ValueError):
    """A value breaks a rule; `field_path` (as `.throttled`, or empty) is relative to the value."""

    def __init__(self, message: str, field_path: str) -> None:
        super().__init__(message)
        self.field_path = field_path


def enforce(rules: tuple[Rule, ...], value: Any) -> None:
    """Raise BrokenRule for the first rule that `value` breaks."""
    for rule in rules:
        if not rule.holds(value):
            raise BrokenRule(rule.message, rule.field_path)
