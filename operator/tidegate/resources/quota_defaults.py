"""The part of a policy that sets Kafka's default entities: what applies to everybody who has no quota of their own."""

from typing import Annotated

from pydantic import Field

from tidegate.resources.byte_rate import ByteRate
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel

RequestPercentage = Annotated[int, Field(ge=1, le=100_000)]
MutationsPerSecond = Annotated[int, Field(ge=1, le=1_000_000)]


class DefaultQuota(SchemaModel):
    """The quota of one default entity, on each broker."""

    fetch: ByteRate | None = Field(default=None, description="Bytes per second fetched from one broker. Unset means not managed.")
    produce: ByteRate | None = Field(default=None, description="Bytes per second produced to one broker. Unset means not managed.")
    request_percentage: RequestPercentage | None = Field(
        default=None, description="Share of one broker thread's time in percent; 200 means two threads. Unset means not managed."
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce) || has(self.requestPercentage)",
            message="must have at least one of fetch, produce and requestPercentage; leave the whole entry out to manage nothing",
            holds=lambda quota: not (quota.fetch is None and quota.produce is None and quota.request_percentage is None),
        ),
    )


class QuotaDefaults(SchemaModel):
    """Kafka's default entities. An entry that is left out is not managed."""

    user: DefaultQuota | None = Field(default=None, description="Every user without a quota of their own, each for themselves.")
    client_id: DefaultQuota | None = Field(default=None, description="Every client id without a quota of its own, each for itself.")
    user_and_client_id: DefaultQuota | None = Field(
        default=None, description="Every pair of user and client id without a quota of its own, each for itself."
    )

    rules = (
        Rule(
            cel="has(self.user) || has(self.clientId) || has(self.userAndClientId)",
            message="must have at least one of user, clientId and userAndClientId; leave defaults out to manage nothing",
            holds=lambda defaults: not (defaults.user is None and defaults.client_id is None and defaults.user_and_client_id is None),
        ),
    )
