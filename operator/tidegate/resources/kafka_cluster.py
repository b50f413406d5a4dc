"""The part of a policy that says which Kafka cluster it is for and how its quotas are read and written."""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.fields import BootstrapServers, ClusterId, SecretRef, ZooKeeperConnect
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel

QuotaStoreKind = Literal["ZooKeeper", "AdminApi"]


class ZooKeeperConnection(SchemaModel):
    """Where the brokers keep their configuration in ZooKeeper mode."""

    connect: ZooKeeperConnect = Field(
        description="The brokers' own zookeeper.connect: host:port pairs separated by commas, then the chroot if they have one."
    )
    credentials_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the SASL digest login or the client certificate for ZooKeeper. New nodes copy the ACL of their parent. "
        "Unset means plain text without login.",
    )


class QuotaWindow(SchemaModel):
    """The brokers' quota window, from which every bound on a client's mute is derived."""

    samples: Annotated[int, Field(ge=1, le=600)] | None = Field(
        default=None, description="The brokers' quota.window.num. Unset means 11, which is Kafka's default."
    )
    sample_seconds: Annotated[int, Field(ge=1, le=600)] | None = Field(
        default=None, description="The brokers' quota.window.size.seconds. Unset means 1, which is Kafka's default."
    )

    @property
    def samples_or_default(self) -> int:
        """The number of samples; 11 where unset."""
        return 11 if self.samples is None else self.samples

    @property
    def sample_seconds_or_default(self) -> int:
        """The length of a sample; 1 s where unset."""
        return 1 if self.sample_seconds is None else self.sample_seconds


class KafkaCluster(SchemaModel):
    """One Kafka cluster: where leaders are read and where quotas are written."""

    bootstrap_servers: BootstrapServers = Field(
        description="Brokers to ask for partition leaders first: host:port pairs separated by commas."
    )
    cluster_id: ClusterId | None = Field(
        default=None, description="Guard: a cluster with any other id behind these addresses is refused. Unset means any id is accepted."
    )
    quota_store: QuotaStoreKind = Field(
        description="How quotas are written. ZooKeeper: directly, for clusters in ZooKeeper mode. "
        "AdminApi: through the brokers, for Kafka 2.6 and later and every KRaft cluster; it comes in a later version and is refused "
        "until then."
    )
    zookeeper: ZooKeeperConnection | None = Field(
        default=None, description="Where the quotas are kept with quotaStore ZooKeeper; required with it."
    )
    client_secret_ref: SecretRef | None = Field(
        default=None, description="Secret with the SASL login and TLS files for bootstrapServers. Unset means plain text without login."
    )
    quota_window: QuotaWindow | None = Field(
        default=None, description="The brokers' quota window, where it is not Kafka's. Unset means the defaults of its fields."
    )

    rules = (
        Rule(
            cel="self.quotaStore != 'ZooKeeper' || has(self.zookeeper)",
            message="zookeeper.connect is required with quotaStore ZooKeeper",
            reason="FieldValueRequired",
            field_path=".zookeeper",
            holds=lambda kafka: kafka.quota_store != "ZooKeeper" or kafka.zookeeper is not None,
        ),
        Rule(
            cel="self.quotaStore != 'AdminApi'",
            message="quotaStore AdminApi comes in a later version: for a cluster in ZooKeeper mode set quotaStore to ZooKeeper and "
            "give zookeeper.connect; a KRaft cluster cannot be managed yet",
            reason="FieldValueForbidden",
            field_path=".quotaStore",
            holds=lambda kafka: kafka.quota_store != "AdminApi",
        ),
    )

    @property
    def quota_window_or_default(self) -> QuotaWindow:
        """The quota window; Kafka's default where unset."""
        return QuotaWindow() if self.quota_window is None else self.quota_window
