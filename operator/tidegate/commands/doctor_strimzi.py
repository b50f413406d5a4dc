"""What `tidegate doctor` finds beside Strimzi: whose quotas its User Operator owns or removes."""

from collections.abc import Iterator

from controller_logic.model import Entity, StrimziUsers
from controller_logic.quotas.strimzi import (
    IGNORED_USERS,
    declaring,
    is_within_reach,
    kafka_user_of,
    removal_words,
)
from controller_logic.reasons import Reason
from tidegate.commands.findings import Finding, counted, ok, warning
from tidegate.commands.inputs import PolicySource

_CHECK = "strimzi"
_SHOWN = 5
_FOUGHT = "The User Operator removes the quota every two minutes, and Tidegate leaves it alone."


def examine_strimzi(source: PolicySource) -> Iterator[Finding]:
    """Findings where the policy's Kafka cluster is one of Strimzi's; none elsewhere."""
    strimzi = source.declared.strimzi
    if strimzi is None:
        return
    users = {entity for entity in source.declared.entities if is_within_reach(entity)}
    if strimzi.users is None:
        yield _unread(strimzi)
        return
    owned = {entity for entity in users if declaring(strimzi, entity) is not None}
    without = {entity for entity in users if kafka_user_of(strimzi, entity) is None}
    removed = {entity for entity in users - without if removal_words(strimzi, entity)}
    if owned:
        yield warning(
            _CHECK,
            Reason.OWNED_BY_STRIMZI,
            f"KafkaUsers of {strimzi.cluster} declare the quotas of {_names(owned)}.",
            "These quotas are Strimzi's: members of tiers with these users change nothing.",
            "Take the members out of the tiers, or spec.quotas out of the KafkaUsers "
            "(docs/strimzi.md).",
        )
    for entity in sorted(removed, key=lambda one: one.sort_key)[:_SHOWN]:
        yield warning(
            _CHECK, Reason.CONTENDED, f"{removal_words(strimzi, entity)}.", _FOUGHT, _CURE
        )
    if without:
        yield warning(
            _CHECK,
            Reason.CONTENDED,
            f"{_names(without)} {'has' if len(without) == 1 else 'have'} no KafkaUser in "
            f"{strimzi.cluster}. Whether {IGNORED_USERS} of the User Operator fits the name cannot "
            "be asked.",
            "Where it does not, the User Operator removes such a user's quotas every two minutes, "
            "with its ACLs, its SCRAM credentials and the Secret of that name.",
            f"Set {IGNORED_USERS} before a tier names such a user (docs/strimzi.md).",
        )
    if not owned and not removed and not without:
        yield ok(
            _CHECK,
            f"Strimzi's cluster {strimzi.cluster} has {counted(len(strimzi.users), 'KafkaUser')}; "
            "none owns or removes a quota that the tiers name.",
        )


_CURE = "Do what the finding says, or give the quota to Strimzi (docs/strimzi.md)."


def _unread(strimzi: StrimziUsers) -> Finding:
    why = strimzi.unread or "this login may not list them"
    return warning(
        _CHECK,
        Reason.KAFKA_USERS_UNREAD,
        f"The KafkaUsers of Strimzi's cluster {strimzi.cluster} could not be read: "
        f"{why.rstrip('.')}.",
        "An operator with this login does not know which quotas Strimzi declares, and those are "
        "changed by both.",
        "Grant list on kafkausers.kafka.strimzi.io: strimzi.enabled of the chart, or "
        "examples/strimzi/rights.yaml.",
    )


def _names(entities: set[Entity]) -> str:
    shown = sorted(str(one.user) for one in entities)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{', '.join(shown[:_SHOWN])}{more}"
