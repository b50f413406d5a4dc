"""The custom resources: what a person may declare, what the operator reports, and how both are told to Kubernetes.

Knows pydantic and the errors; nothing of Kafka, of Kubernetes clients or of the control pass. The models convert to the
vocabulary of the core in `control/observe.py`, not here.
"""

from tidegate.resources.kinds import (
    API_VERSION,
    CATEGORIES,
    GROUP,
    KINDS,
    OVERRIDE,
    POLICY,
    TIER,
    VERSION,
    BrokerBandwidthPolicy,
    BusinessTier,
    CustomResource,
    Kind,
    ObjectMeta,
    QuotaOverride,
    parse_object,
    parse_override,
    parse_policy,
    parse_tier,
)

__all__ = [
    "API_VERSION",
    "CATEGORIES",
    "GROUP",
    "KINDS",
    "OVERRIDE",
    "POLICY",
    "TIER",
    "VERSION",
    "BrokerBandwidthPolicy",
    "BusinessTier",
    "CustomResource",
    "Kind",
    "ObjectMeta",
    "QuotaOverride",
    "parse_object",
    "parse_override",
    "parse_policy",
    "parse_tier",
]
