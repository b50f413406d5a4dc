"""The policy of a rollup or a report on a laptop, from files: without one nothing is known of tiers, contracts and limits."""

from collections.abc import Sequence

from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicyOptions, PolicySource, find_policy
from tidegate.rollup.terms.policy import PolicyTerms


def policy_of(around: Surroundings, files: Sequence[str] | None) -> PolicySource | None:
    """The one policy in the files; None without files. Raises what `find_policy` raises."""
    return find_policy(around, PolicyOptions(files=files)) if files else None


def terms_of(source: PolicySource | None) -> PolicyTerms | None:
    """What it declares, in the words of rollups."""
    if source is None:
        return None
    return PolicyTerms.of(source.declared.policy, source.declared.tiers or (), source.tier_statuses)
