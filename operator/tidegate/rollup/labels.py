"""Labels of members as the usage tables have them: a JSON text, the same for the same labels.

Text is what every engine groups by and joins on, and SQL reads it: `labels ->> '$.team'` in DuckDB,
`get_json_object(labels, '$.team')` in Spark.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidegate_logic.model import Budget, Member, Tier

NO_LABELS: Final = "{}"
BUDGET_LABEL: Final = "tidegate.io/budget"  # the name of the BandwidthBudget that a member is in


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """`{"costCenter":"4711","team":"shop"}`, with keys in order."""
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def with_budgets(tiers: Iterable[Tier], budgets: Sequence[Budget]) -> tuple[Tier, ...]:
    """The tiers with a label of its budget at each member that is in one, the oldest first.

    So a bill can be divided by budgets as by any label: they are a fact of an hour like these.
    """
    if not budgets:
        return tuple(tiers)
    return tuple(
        replace(tier, members=tuple(_in_budget(tier, member, budgets) for member in tier.members))
        for tier in tiers
    )


def _in_budget(tier: Tier, member: Member, budgets: Sequence[Budget]) -> Member:
    names = [one.key.partition("/")[2] for one in budgets if one.names(tier, member)]
    return with_budget(member, names[0]) if names else member


def with_budget(member: Member, name: str | None) -> Member:
    """The member in the budget of this name; None = in none."""
    labels = {key: value for key, value in member.labels if key != BUDGET_LABEL}
    if name is not None:
        labels[BUDGET_LABEL] = name
    return replace(member, labels=tuple(sorted(labels.items())))


def labels_of(text: str) -> Mapping[str, str]:
    """The labels in a text of the tables."""
    return dict(json.loads(text))
