"""What Kafka's default entities say for a bucket while its own entity has no quota: the ground that a lowering may land on.

A user without a quota of its own is held to the default user's quota in the very same bucket, so its first quota may be a
lowering, and giving its quota back may be one too. Only defaults that the observation holds are known; a default that
nobody manages and that was not read counts as absent.
"""

from collections.abc import Mapping, Set

from controller_logic.contracts.desired import Desired
from controller_logic.contracts.targets import Promise
from controller_logic.model import BYTE_RATE_KEYS, Entity, Policy, QuotaKey, StoredQuota
from controller_logic.quotas.precedence import same_bucket_fallbacks
from controller_logic.quotas.steps import Beneath

_NOTHING: Mapping[QuotaKey, Beneath] = {}


class CommonGround:
    """The default entities of one pass, as they will be when this pass has given back what it gives back.

    A default that is given back in the same pass counts as what it goes back to: it is written before the users are.
    """

    def __init__(self, quotas: Mapping[Entity, StoredQuota], policy: Policy, wanted: Desired) -> None:
        self._defaults = {
            entity: known
            for entity, stored in quotas.items()
            if entity.is_default and (known := _byte_rates(stored, policy, wanted.promise_of(entity)))
        }

    def beneath(self, entity: Entity) -> Mapping[QuotaKey, Beneath]:
        """Per byte-rate key, the strongest default that governs the entity's bucket without it; keys without one are absent."""
        if not self._defaults:
            return _NOTHING
        found: dict[QuotaKey, Beneath] = {}
        for weaker in same_bucket_fallbacks(entity):
            for key, beneath in self._defaults.get(weaker, _NOTHING).items():
                found.setdefault(key, beneath)
        return found


def _byte_rates(stored: StoredQuota, policy: Policy, promise: Promise | None) -> Mapping[QuotaKey, Beneath]:
    entries = stored.ledger.entries if stored.ledger is not None and stored.ledger.policy_key == policy.key else {}
    kept: Set[QuotaKey] = promise.keys if promise is not None else frozenset()
    known = {}
    for key in BYTE_RATE_KEYS:
        entry = entries.get(key)
        text = entry.before if entry is not None and key not in kept else stored.values.get(key)
        if text is not None:
            known[key] = Beneath(text, entry)
    return known
