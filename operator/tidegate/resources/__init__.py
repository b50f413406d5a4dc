"""The custom resources: specs, statuses, and their CustomResourceDefinitions.

They depend on pydantic and the errors, not on Kafka, Kubernetes clients or the control pass.
`observe/declared.py` converts them to the types of the core.
"""

from tidegate.resources.kinds import (
    API_VERSION,
    BUDGET,
    CATEGORY,
    GROUP,
    KINDS,
    OVERRIDE,
    POLICY,
    QUEUE,
    TIER,
    VERSION,
    BandwidthBudget,
    BrokerBandwidthPolicy,
    BusinessTier,
    CustomResource,
    DelayQueue,
    Kind,
    ObjectMeta,
    QuotaOverride,
    parse_budget,
    parse_object,
    parse_override,
    parse_policy,
    parse_queue,
    parse_tier,
)

__all__ = [
    "API_VERSION",
    "BUDGET",
    "CATEGORY",
    "GROUP",
    "KINDS",
    "OVERRIDE",
    "POLICY",
    "QUEUE",
    "TIER",
    "VERSION",
    "BandwidthBudget",
    "BrokerBandwidthPolicy",
    "BusinessTier",
    "CustomResource",
    "DelayQueue",
    "Kind",
    "ObjectMeta",
    "QuotaOverride",
    "parse_budget",
    "parse_object",
    "parse_override",
    "parse_policy",
    "parse_queue",
    "parse_tier",
]
