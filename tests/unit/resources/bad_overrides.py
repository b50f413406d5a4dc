"""What bad input gets in a QuotaOverride."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, override

NO_CLIENT = {"clientId": ABSENT}
NOBODY = {"user": ABSENT, **NO_CLIENT}
EXEMPT = {"set": ABSENT, "exempt": True}


def _moment(name: str, value: str) -> BadInput:
    return BadInput(f"expiresAt {name}", override({"expiresAt": value}), "spec.expiresAt")


MOMENTS = (
    _moment("in a word", "tomorrow"),
    _moment("without a time", "2026-11-30"),
    _moment("with a space", "2026-11-30 06:00:00Z"),
    _moment("without seconds", "2026-11-30T06:00Z"),
    _moment("in month 13", "2026-13-01T06:00:00Z"),
    _moment("on 31 November", "2026-11-31T06:00:00Z"),
    _moment("on 29 February of a common year", "2027-02-29T06:00:00Z"),
    _moment("on 29 February 2100", "2100-02-29T06:00:00Z"),
    _moment("in hour 24", "2026-11-30T24:00:00Z"),
    _moment("without an offset", "2026-11-30T06:00:00"),
    _moment("with small letters", "2026-11-30t06:00:00z"),
    _moment("with a leap second", "2026-11-30T06:00:60Z"),
    _moment("with an offset of 25 hours", "2026-11-30T06:00:00+25:00"),
    _moment("with a comma", "2026-11-30T06:00:00,5Z"),
    _moment("in the year 1999", "1999-11-30T06:00:00Z"),
    _moment("with a newline", "2026-11-30T06:00:00Z\n"),
    _moment("in other digits", "٢٠٢٦-11-30T06:00:00Z"),
)

BAD_OVERRIDES = (
    BadInput("override for nobody", override(NOBODY), "spec"),
    BadInput("override for a level and a user", override({"level": "L2", **NO_CLIENT}), "spec"),
    BadInput("override for a level and a client id", override({"level": "L2", "user": ABSENT}), "spec"),
    BadInput("override that does nothing", override({"set": ABSENT}), "spec"),
    BadInput("override that sets and exempts", override({"exempt": True}), "spec"),
    BadInput("exempt false", override({**EXEMPT, "exempt": False}), "spec.exempt"),
    BadInput(
        "exempt on L0",
        override({**NOBODY, **EXEMPT, "level": "L0"}),
        "spec.exempt",
    ),
    BadInput("set without a form", override({"set": {}}), "spec.set"),
    BadInput("set in two forms", override({"set.total": {"fetch": "1Mi"}}), "spec.set"),
    BadInput("set without a direction", override({"set": {"total": {}}}), "spec.set.total"),
    BadInput("set to 0", override({"set.perPartition.fetch": 0}), "spec.set.perPartition.fetch"),
    BadInput(
        "set a request percentage",
        override({"set.requestPercentage": 200}),
        "spec.set.requestPercentage",
        server_says='unknown field "spec.set.requestPercentage"',
    ),
    BadInput(
        "unknown level of an override",
        override({**NOBODY, "level": "L4"}),
        "spec.level",
        server_says='supported values: "L0", "L1", "L2", "L3"',
    ),
    BadInput("override of the default user", override({"user": "<default>"}), "spec.user"),
    BadInput("override without a policy", override({"policyRef": ABSENT}), "spec.policyRef", server_says="Required value"),
    BadInput("override without an end", override({"expiresAt": ABSENT}), "spec.expiresAt", server_says="Required value"),
    BadInput("list for an end", override({"expiresAt": []}), "spec.expiresAt", server_says="must be of type string"),
    BadInput("empty end", override({"expiresAt": ""}), "spec.expiresAt", server_says="at least 1 chars long"),
    BadInput("override without a reason", override({"reason": ABSENT}), "spec.reason", server_says="Required value"),
    BadInput("blank reason", override({"reason": "   "}), "spec.reason"),
    BadInput("empty reason", override({"reason": ""}), "spec.reason", server_says="at least 1 chars long"),
    BadInput("reason of two lines", override({"reason": "a\nb"}), "spec.reason"),
    BadInput("endless reason", override({"reason": "x" * 513}), "spec.reason", server_says="Too long"),
    *MOMENTS,
)
