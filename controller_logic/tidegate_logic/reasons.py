"""The one list of reasons, for conditions, events, audit lines, ledger records and metric labels.

A reason is a stable CamelCase word; what it means for a person is its `meaning`, from which the
table in the documentation is generated. Nothing here formats messages: those carry numbers and are
made where the numbers are.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A stable CamelCase word (the value) with its meaning for people (`meaning`, one sentence)."""

    meaning: str
    __hash__ = str.__hash__

    def __new__(cls, word: str, meaning: str) -> "Reason":
        """Make a member that is its own word as a string and carries its meaning beside it."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    # everything is as it should be
    IN_SYNC = "InSync", "Every managed quota in Kafka is what it should be."
    CONTRACT = "Contract", "The quota is the contract, scaled by partition leaders."
    OBSERVING = (
        "Observing",
        "mode is Observe: decisions are made and shown, nothing is written to Kafka.",
    )
    WITHIN_CONTRACT = "WithinContract", "No tier is below its contract."
    METRICS_FRESH = "MetricsFresh", "The load of every live broker is known."
    REACHABLE = "Reachable", "ZooKeeper, the brokers and the cluster id all answered."

    # why a quota is changed
    FIRST_QUOTA = "FirstQuota", "The entity had no such quota before."
    ADOPTED = (
        "Adopted",
        (
            "A quota that another writer had set was taken over; the ledger keeps its value, to "
            "give it back."
        ),
    )
    CONTRACT_CHANGED = (
        "ContractChanged",
        "The contract, the scaling or a default was edited, or an override began or ended.",
    )
    LEADERS_MOVED = (
        "LeadersMoved",
        "Partition leaders moved, so the contract needs another number per broker.",
    )
    ADAPTED = (
        "Adapted",
        "Scaling method Adaptive: measured rates ask for another number between Mean and Max.",
    )
    STEPPING = "Stepping", "The quota goes down in safe steps, so that no client is muted for long."
    BROKERS_NOTIFIED = (
        "BrokersNotified",
        (
            "The quota is right in ZooKeeper, but it was not known that brokers had been notified "
            "of it; they are notified once."
        ),
    )
    REPAIRED = "Repaired", "Another writer changed the quota; it was put back."
    GIVEN_BACK = (
        "GivenBack",
        "The entity is no longer managed; what it had before Tidegate was put back.",
    )

    RESTORE_WAITS = (
        "RestoreWaits",
        (
            "No member names the quota any more; it is restored after a grace of 30 s, unless one "
            "names it again."
        ),
    )

    CLIENT_RATES_AWAITED = (
        "ClientRatesAwaited",
        "A first quota waits for the first reading of what its clients send, 30 s at most.",
    )

    # why a byte rate is below its contract, or on its way back
    THROTTLED = (
        "Throttled",
        (
            "The quota is below the contract, because a broker is over its limit and this entity "
            "moves its bytes."
        ),
    )
    RELAXING = (
        "Relaxing",
        "The brokers are within their limits again; the quota goes up into measured headroom.",
    )
    RELEASED = "Released", "The quota is exactly the contract again."

    # a human's decision that ends by itself
    OVERRIDDEN = (
        "Overridden",
        "A QuotaOverride is in force for the member; it is never throttled meanwhile.",
    )
    OVERRIDE_EXPIRED = (
        "OverrideExpired",
        "The override is over and changes nothing any more; it may be deleted.",
    )
    OVERRULED = (
        "Overruled",
        (
            "Another override for the same member goes before this one: one for the member itself, "
            "or an older one."
        ),
    )
    NO_SUCH_MEMBER = (
        "NoSuchMember",
        "No BusinessTier of the policy has a member as the override names it; it changes nothing.",
    )
    OVERRIDE_UNFIT = (
        "OverrideUnfit",
        (
            "The override's rates cannot stand in place of the member's contract; it changes "
            "nothing there."
        ),
    )

    # what is seen of the brokers' load
    BROKER_OVER_LIMIT = (
        "BrokerOverLimit",
        "A broker's NIC carries more than the policy's limit for it.",
    )
    BROKER_WITHIN_LIMIT = (
        "BrokerWithinLimit",
        "A broker that was over its limit is within it again.",
    )

    # why nothing is changed although something could be
    PAUSED = (
        "Paused",
        "spec.suspend or the annotation tidegate.io/paused freezes everything as it is.",
    )
    STARTING = "Starting", "First pass not finished yet."
    LIST_INCOMPLETE = "ListIncomplete", "The custom resources could not be listed in full."
    NAMESPACES_UNREAD = (
        "NamespacesUnread",
        "Labels of the tier's namespace are not known, nor whether the policy lets it in.",
    )
    KUBERNETES_UNREACHABLE = (
        "KubernetesUnreachable",
        "The Kubernetes API did not answer; every quota stays as it is.",
    )
    ZOOKEEPER_UNREACHABLE = (
        "ZooKeeperUnreachable",
        "ZooKeeper did not answer; every quota stays as it is.",
    )
    BROKERS_UNREACHABLE = (
        "BrokersUnreachable",
        "No broker answered the Metadata request; every quota stays as it is.",
    )
    PROMETHEUS_UNREACHABLE = (
        "PrometheusUnreachable",
        "Prometheus did not answer; nothing is throttled further or given back on load.",
    )
    TOPOLOGY_INCOMPLETE = (
        "TopologyIncomplete",
        "Leaders are not known in full; no quota is lowered on such knowledge.",
    )
    CONTROLLER_ABSENT = (
        "ControllerAbsent",
        "Kafka has no controller at the moment; nothing is written until it has one.",
    )
    WRONG_CLUSTER = (
        "WrongCluster",
        (
            "Another Kafka cluster answers at this address, or two different ones do; nothing is "
            "written."
        ),
    )
    MIGRATION_PREPARED = (
        "MigrationPrepared",
        "A move to KRaft has left its mark in ZooKeeper; once it runs, nothing is written.",
    )
    QUOTAS_IGNORED = (
        "QuotasIgnored",
        (
            "Brokers decide quotas by a plugin (client.quota.callback.class) and may ignore what "
            "is written."
        ),
    )
    MIGRATION_RUNNING = (
        "MigrationRunning",
        "Kafka moves to KRaft, or did while the ledger is in ZooKeeper; nothing is written.",
    )
    LEDGER_MOVED = (
        "LedgerMoved",
        "The ledger went from ZooKeeper to a topic, after Kafka moved to KRaft.",
    )
    LEDGER_LOST = (
        "LedgerLost",
        (
            "The ledger that the policy's status remembers is gone, or a part of it; nothing is "
            "written until a person answers with `tidegate ledger rebuild` or `tidegate ledger "
            "accept`."
        ),
    )
    LEDGER_NOT_FOUND = (
        "LedgerNotFound",
        (
            "The ledger that the policy's status remembers cannot be read in full; nothing is "
            "written, and it counts as lost if that lasts for 10 s."
        ),
    )
    LEDGER_AT_RISK = (
        "LedgerAtRisk",
        "Kafka will delete the ledger, for its topic is not only compacted; nothing is written.",
    )
    LEDGER_REBUILT = (
        "LedgerRebuilt",
        "A person answered for a lost ledger, and there is one again.",
    )
    CLUSTER_ALREADY_MANAGED = (
        "ClusterAlreadyManaged",
        "Another policy manages this Kafka cluster already.",
    )
    CLAIMED_ELSEWHERE = (
        "ClaimedElsewhere",
        (
            "Another policy of the same name, in another Kubernetes cluster or from before, or "
            "another operator for this one, has the claim on this Kafka cluster; nothing is "
            "written here."
        ),
    )
    RESYNCED = (
        "Resynced",
        (
            "The annotation tidegate.io/resync asked to forget which entities are left alone, and "
            "to compare every quota anew."
        ),
    )
    CLAIM_TAKEN_OVER = (
        "ClaimTakenOver",
        (
            "The claim on the Kafka cluster was another policy's of the same name, which the "
            "annotation tidegate.io/replace-claim names; now it is this one's."
        ),
    )
    REMOVAL_HELD = (
        "RemovalHeld",
        (
            "More quotas would be given back within a quarter of an hour than the policy allows "
            "without confirmation."
        ),
    )
    WRITE_BUDGET_SPENT = (
        "WriteBudgetSpent",
        "The write budget is spent for now; the rest follows later.",
    )
    NOT_LEADER = "NotLeader", "Another replica of the operator holds this policy's Lease."
    STALE_DATA = (
        "StaleData",
        "A broker's NIC reports nothing usable: nothing is raised on it, and it justifies no cut.",
    )
    RELEASED_UNMEASURED = (
        "ReleasedUnmeasured",
        (
            "A broker's load has been unknown for metrics.whenStale.afterSeconds, and the policy "
            "releases throttled quotas then."
        ),
    )
    CLIENT_RATES_UNKNOWN = (
        "ClientRatesUnknown",
        "A broker over its limit reports no client rates; the lowest tier goes down step by step.",
    )
    REPLICATION_IDLE = (
        "ReplicationIdle",
        "No replica is being filled, and no replication throttle of Tidegate is set.",
    )
    REPLICATION_THROTTLED = (
        "ReplicationThrottled",
        "Replicas are being filled, within the rates that the policy gives them.",
    )
    REPLICATION_RELEASED = (
        "ReplicationReleased",
        "Nothing is being filled any more; lists and rates of Tidegate are taken away.",
    )
    REASSIGNMENT_STALLS = (
        "ReassignmentStalls",
        (
            "The rate leaves the replicas that are being filled no more than their partitions "
            "receive, so they never catch up; Kafka counts replicas in sync in it too. Raise "
            "rate.min or rate.max, or move them when less is produced."
        ),
    )
    REPLICATION_BY_OTHERS = (
        "ReplicationThrottledByOthers",
        (
            "Another tool set a replication throttle where Tidegate would set its own; it stays. "
            "Start that tool without a throttle."
        ),
    )
    REPLICATION_LEFTOVER = (
        "ReplicationLeftover",
        (
            "A replication throttle was left behind by a tool and would slow the next recovery; "
            "cleanUpLeftovers removes such."
        ),
    )
    LEFTOVER_REMOVED = (
        "LeftoverRemoved",
        "Replication throttles that a tool had left behind were removed.",
    )
    REPLICATION_INCOMPLETE = (
        "ReplicationIncomplete",
        "A replication throttle could not be set or taken away; it is tried again.",
    )
    QUOTA_CANNOT_HELP = (
        "QuotaCannotHelp",
        (
            "A broker is over its limit by traffic that no tier below L0 could give back; nothing "
            "is cut for it."
        ),
    )
    QUOTA_EXHAUSTED = (
        "QuotaExhausted",
        "Every tier below L0 gives what it can, and a broker is still over its limit.",
    )
    NO_THROTTLED_RATE = (
        "NoThrottledRate",
        (
            "The tier gives no throttled rate in the form of the member's contract; it is never "
            "throttled."
        ),
    )
    FLOOR_RAISED = (
        "FloorRaised",
        (
            "Clients would break at the tier's throttled rate, so the entity is throttled to a "
            "higher one."
        ),
    )
    POOR_FIT = (
        "PoorFit",
        (
            "A cut takes more from brokers that are well than from those over their limits; moving "
            "leaders would fit better."
        ),
    )
    MINIMUM_CHANGE = (
        "MinimumChange",
        "Leaders moved by less than leaderScaling.minimumChangePercent.",
    )

    # what usage tables say of a contract
    RECOMMENDED = (
        "Recommended",
        "Usage asks for another contract; it is shown, and changes nothing.",
    )
    RECOMMENDATION_APPLIED = (
        "RecommendationApplied",
        (
            "A contract recommended from usage stands in place of the declared one, within the "
            "bound that the policy gives."
        ),
    )
    CONTRACT_FITS = (
        "ContractFits",
        "Usage asks for no other contract, or for one that differs by less than a tenth.",
    )
    SHARE_SPENT = (
        "ShareSpent",
        "Usage asks for more, but the tier's share of the brokers' limits is spent.",
    )
    USAGE_UNKNOWN = (
        "UsageUnknown",
        "No usage table names the member, so no contract is recommended.",
    )
    USAGE_INCOMPLETE = (
        "UsageIncomplete",
        "Samples cover too little of the window, so no contract is recommended.",
    )
    USAGE_THROTTLED = (
        "UsageThrottled",
        "The member was throttled for most of the window: what it moved is not what it needs.",
    )
    UNUSED = (
        "Unused",
        "The member moved nothing in 99 % of the window, which says nothing of what it needs.",
    )

    # how usage rollups are getting on
    ROLLUPS_PUBLISHED = "RollupsPublished", "All completed windows are in the usage tables."
    ROLLUPS_BEHIND = (
        "RollupsBehind",
        "Windows that are over wait for their rollup Job; one runs at a time, the oldest first.",
    )
    ROLLUP_FAILED = (
        "RollupFailed",
        "A rollup Job failed; other windows go on, and this one is tried again.",
    )
    ROLLUPS_NOT_OFFERED = (
        "RollupsNotOffered",
        "The operator was started without an image for rollup Jobs, so it makes none.",
    )
    ROLLUPS_UNSEEN = (
        "RollupsUnseen",
        "The Jobs of the policy, or what they tell, could not be read of late.",
    )
    CLAIM_NOT_ALLOWED = (
        "ClaimNotAllowed",
        "The volume claim of the usage tables does not exist, or lacks tidegate.io/usage-tables.",
    )
    ROLLUPS_NOT_WANTED = "RollupsNotWanted", "The policy asks for no usage rollups."
    ROLLUP_RESULT_UNUSABLE = (
        "RollupResultUnusable",
        (
            "What the rollup Jobs wrote down is not theirs, or has a form that this version does "
            "not read."
        ),
    )
    ROLLUP_RESULT_STALE = (
        "RollupResultStale",
        "What the rollup Jobs wrote down is too old; contracts are as declared.",
    )

    CATALOG_BEHIND = (
        "CatalogBehind",
        "Usage is published, and the Iceberg catalog could not be brought up to it.",
    )

    # one object or entity only
    POLICY_NOT_FOUND = "PolicyNotFound", "The policy this object refers to does not exist yet."
    TOPIC_NOT_FOUND = "TopicNotFound", "A topic of the member does not exist."
    FOREIGN_CONTENT = (
        "ForeignContent",
        "The entity's znode holds something that cannot be read safely; it is not touched.",
    )
    CONTENDED = (
        "Contended",
        "Another writer keeps changing the entity; it is left alone for 8 minutes at most.",
    )
    OVERLAPPING = (
        "Overlapping",
        "The same user and client id appear in an earlier BusinessTier or member.",
    )
    TIER_NOT_ALLOWED = (
        "TierNotAllowed",
        "The policy's spec.allowedTiers does not let in tiers of this namespace.",
    )
    ENTITY_NOT_ALLOWED = (
        "EntityNotAllowed",
        "The policy's spec.allowedEntities does not let this tier name the user or client id.",
    )
    OWNED_BY_STRIMZI = (
        "OwnedByStrimzi",
        "A KafkaUser declares the quotas of the user, so they are Strimzi's and never written.",
    )
    KAFKA_USERS_UNREAD = (
        "KafkaUsersUnread",
        "Strimzi's KafkaUsers, one of which may declare the quota, could not be read.",
    )
    HIGH_SKEW = "HighSkew", "Leaders are so uneven that one number per broker fits badly."
    INVALID_SPEC = (
        "InvalidSpec",
        "The object contradicts itself or asks for something this version does not offer.",
    )
    SECRET_UNREADABLE = (
        "SecretUnreadable",
        "A Secret named by the policy is missing or lacks a key.",
    )
    SECRET_NOT_ALLOWED = (
        "SecretNotAllowed",
        'A Secret named by the policy lacks the label tidegate.io/credentials: "true".',
    )
    HOST_NOT_ALLOWED = (
        "HostNotAllowed",
        "The policy names a host that is not on the operator's list of allowed ones.",
    )
    INSECURE_LOGIN = "InsecureLogin", "A login would go to Prometheus over plain http."
    NOT_AUTHORIZED = (
        "NotAuthorized",
        "ZooKeeper, Kafka, Kubernetes or Prometheus refused the operator's identity.",
    )
    CONFLICT = "Conflict", "Another writer wrote at the same moment; read again and retried."
    OUTCOME_UNKNOWN = (
        "OutcomeUnknown",
        "The connection broke during a write; it is read back before anything else.",
    )
    METRICS_MISSING = "MetricsMissing", "A live broker has no reading, so its load is not known."
    CRDS_MISSING = (
        "CustomResourcesMissing",
        "The API server does not serve Tidegate's kinds; the CRDs are not installed.",
    )
    MUTE_OUTLASTS_REQUESTS = (
        "MuteOutlastsRequests",
        "maxMuteSeconds is above 25 s, and clients give up on a request after 30 s by default.",
    )
    QUOTA_WINDOW_DIFFERS = (
        "QuotaWindowDiffers",
        "A broker's quota window is not the one in the policy, so mutes are predicted wrongly.",
    )
    CLOCKS_DIFFER = (
        "ClocksDiffer",
        "Clocks are more than 5 s apart, so the age of a reading is not known.",
    )
    METRICS_STALE = (
        "MetricsStale",
        "Readings are too old to act on, or ahead of the operator's clock.",
    )
    METRICS_INCOMPLETE = (
        "MetricsIncomplete",
        (
            "Prometheus answered in part, too much, or with something that is no samples; the "
            "answer is not used."
        ),
    )
    METRICS_AMBIGUOUS = (
        "MetricsAmbiguous",
        (
            "Series that do not tell whose they are, or two that tell of the same at once; they "
            "are not used."
        ),
    )
    SOURCE_CHANGED = (
        "SourceChanged",
        (
            "A broker's readings come from another exporter, and nothing shows that it is the same "
            "broker; they are not used."
        ),
    )
    METRICS_UNREADABLE = (
        "MetricsUnreadable",
        "Samples that cannot be an amount (NaN, infinite, negative); they are not used.",
    )
    METRICS_QUERY_REFUSED = (
        "MetricsQueryRefused",
        "Prometheus cannot carry out a query; what it was to tell is not known.",
    )
    CLIENTS_NOT_METERED = (
        "ClientsNotMetered",
        (
            "A broker, or every one, reports no rates of users: none use it, no quota makes it "
            "meter them, or its exporter lacks the rules."
        ),
    )
    CLIENTS_NOT_NAMED = (
        "ClientsNotNamed",
        (
            "Series of clients whose labels do not hold the user and client id as Kafka spells "
            "them, mostly by the order of the exporter's rules; they are not used."
        ),
    )
    METERING_WITHHELD = (
        "MeteringWithheld",
        (
            "defaults.metering writes nothing: a quota for Kafka's default user would replace or "
            "hide quotas that exist."
        ),
    )
    METRICS_NOT_WATCHED = (
        "MetricsNotWatched",
        "The policy names no metrics, so no broker's load is read.",
    )
    STORAGE_UNREACHABLE = (
        "StorageUnreachable",
        (
            "The storage of the usage tables did not answer, or is full; what is published there "
            "stays."
        ),
    )
    USAGE_DAMAGED = (
        "UsageDamaged",
        (
            "A file of the usage tables does not hold what was written to it; it is neither "
            "published nor shown."
        ),
    )
    USAGE_VERSION = (
        "UsageVersion",
        (
            "The usage tables were written by another version of Tidegate, which reads them "
            "differently."
        ),
    )
    RESTORE_INCOMPLETE = (
        "RestoreIncomplete",
        "Not everything could be given back before the policy was deleted.",
    )
    INTERNAL_ERROR = (
        "InternalError",
        "A bug in Tidegate; the pass was abandoned and nothing further was written.",
    )


class NewerReason(str):
    """A reason in a ledger record of a newer version, which this one does not know."""

    __slots__ = ()
    meaning = "A newer version of Tidegate wrote it, for a reason that this one does not know."

    @property
    def value(self) -> str:
        """The word, as a Reason has it."""
        return str(self)


# What stays wrong until a person acts: with one of these in Ready=False, Stalled is True. Left out
# is what ends by itself or with another object: Contended ends after its pause and may come back.
STALLED = frozenset(
    {
        Reason.CLAIMED_ELSEWHERE,
        Reason.CLUSTER_ALREADY_MANAGED,
        Reason.ENTITY_NOT_ALLOWED,
        Reason.FOREIGN_CONTENT,
        Reason.HOST_NOT_ALLOWED,
        Reason.INVALID_SPEC,
        Reason.LEDGER_AT_RISK,
        Reason.LEDGER_LOST,
        Reason.NOT_AUTHORIZED,
        Reason.OVERLAPPING,
        Reason.OVERRIDE_UNFIT,
        Reason.OWNED_BY_STRIMZI,
        Reason.REMOVAL_HELD,
        Reason.SECRET_NOT_ALLOWED,
        Reason.SECRET_UNREADABLE,
        Reason.TIER_NOT_ALLOWED,
        Reason.WRONG_CLUSTER,
    }
)
