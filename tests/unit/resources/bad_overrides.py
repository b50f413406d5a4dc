"""What bad input gets in a QuotaOverride."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, override

EXEMPT = {"action": "Exempt", "rates": ABSENT}


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
    BadInput("override without a target", override({"target": {}}), "spec.target"),
    BadInput("override for a level and a user", override({"target": {"level": "L2", "user": "a"}}), "spec.target"),
    BadInput("override for a level and a client id", override({"target": {"level": "L2", "clientId": "a"}}), "spec.target"),
    BadInput("override without a target", override({"target": ABSENT}), "spec.target", server_says="Required value"),
    BadInput("override without an action", override({"action": ABSENT}), "spec.action", server_says="Required value"),
    BadInput(
        "unknown action",
        override({"action": "Mute"}),
        "spec.action",
        server_says='supported values: "SetRates", "Exempt"',
    ),
    BadInput("SetRates without rates", override({"rates": ABSENT}), "spec.rates"),
    BadInput("Exempt with rates", override({"action": "Exempt"}), "spec.rates"),
    BadInput(
        "Exempt for L0",
        override({**EXEMPT, "target": {"level": "L0"}}),
        "spec.action",
    ),
    BadInput("rates without a form", override({"rates": {}}), "spec.rates"),
    BadInput("rates in two forms", override({"rates.total": {"fetch": "1Mi"}}), "spec.rates"),
    BadInput("rates without a direction", override({"rates": {"total": {}}}), "spec.rates.total"),
    BadInput("rates of 0", override({"rates.perPartition.fetch": "0"}), "spec.rates.perPartition.fetch"),
    BadInput(
        "rates with a request percentage",
        override({"rates.requestPercentage": 200}),
        "spec.rates.requestPercentage",
        server_says='unknown field "spec.rates.requestPercentage"',
    ),
    BadInput(
        "unknown level of an override",
        override({"target": {"level": "L4"}}),
        "spec.target.level",
        server_says='supported values: "L0", "L1", "L2", "L3"',
    ),
    BadInput("override of the default user", override({"target.user": "<default>"}), "spec.target.user"),
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
