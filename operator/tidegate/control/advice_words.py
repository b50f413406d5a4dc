"""What usage says of contracts, in the words of a tier's status and of `tidegate plan`. It judges nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from controller_logic.model import Advice, QuotaKey
from controller_logic.quotas.values import KEY_WORDS
from controller_logic.reasons import Reason
from tidegate.control.verdict import shortened
from tidegate.resources.status import Recommendation, TotalRates

_FETCH, _PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE


def recommendation(advice: Sequence[Advice]) -> Recommendation | None:
    """One member's advice, both ways; None without any. A contract that fits is said without its figures, which change by the hour."""
    if not advice:
        return None
    rates = {one.key: one.recommended for one in advice}
    applied = {one.key: one.applied for one in advice if one.applied is not None}
    telling = [one for one in advice if one.reason is not Reason.CONTRACT_FITS]
    told = "; ".join(f"{KEY_WORDS[one.key]}: {one.message}" for one in telling)
    return Recommendation(
        fetch=rates.get(_FETCH),
        produce=rates.get(_PRODUCE),
        applied=TotalRates(fetch=applied.get(_FETCH), produce=applied.get(_PRODUCE)) if applied else None,
        reason=_first_reason(advice).value,
        message=shortened(told) if told else None,
    )


def advice_remarks(advice: Mapping[tuple[str, str], Iterable[Advice]]) -> Iterator[str]:
    """A sentence for every rate that is recommended or applied, for a plan."""
    for (tier_key, member), said in advice.items():
        for one in said:
            if one.recommended is not None:
                yield f"{tier_key} / {member} ({one.reason.value}): {KEY_WORDS[one.key]}: {one.message}"


def _first_reason(advice: Sequence[Advice]) -> Reason:
    """What recommends comes before what does not, and a contract that fits comes last."""
    reasons = [one.reason for one in advice]
    order = (Reason.RECOMMENDATION_APPLIED, Reason.RECOMMENDED)
    first = next((reason for reason in order if reason in reasons), None)
    return first or next((reason for reason in reasons if reason is not Reason.CONTRACT_FITS), Reason.CONTRACT_FITS)
