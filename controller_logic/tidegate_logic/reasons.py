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
    IN_SYNC = "InSync", "Every managed quota in Kafka has its decided value."
    CONTRACT = "Contract", "The quota is the contract, scaled by partition leaders."
    OBSERVING = (
        "Observing",
        "mode is Observe: Tidegate decides and reports, and writes nothing to Kafka.",
    )
    WITHIN_CONTRACT = "WithinContract", "No tier is below its contract."
    METRICS_FRESH = "MetricsFresh", "The load of every live broker is known."
    REACHABLE = "Reachable", "ZooKeeper, the brokers and the cluster id all answered."

    # why a quota is changed
    FIRST_QUOTA = "FirstQuota", "The entity had no such quota before."
    ADOPTED = (
        "Adopted",
        (
            "Tidegate took over a quota that another writer had set; the ledger keeps its value, "
            "to restore it later."
        ),
    )
    CONTRACT_CHANGED = (
        "ContractChanged",
        "The contract, the scaling or a default was edited, or an override started or ended.",
    )
    LEADERS_MOVED = (
        "LeadersMoved",
        "Partition leaders moved, so the contract needs a different quota per broker.",
    )
    RACKS_CHANGED = (
        "RacksChanged",
        "The racks of a member were edited, so other brokers serve its reads.",
    )
    ADAPTED = (
        "Adapted",
        "Scaling method Adaptive: measured rates call for a different quota between Mean and Max.",
    )
    STEPPING = (
        "Stepping",
        "The quota goes down in safe steps, so that no client is delayed for long.",
    )
    BROKERS_NOTIFIED = (
        "BrokersNotified",
        (
            "The quota in ZooKeeper is right, but brokers may not have been notified of it; "
            "Tidegate notifies them once."
        ),
    )
    REPAIRED = "Repaired", "Another writer changed the quota; Tidegate reapplied it."
    GIVEN_BACK = (
        "GivenBack",
        "The entity is no longer managed, and its quota from before Tidegate was restored.",
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
        "A first quota waits up to 30 s for the first reading of its clients' rates.",
    )

    # why a byte rate is below its contract, or on its way back
    THROTTLED = (
        "Throttled",
        (
            "The quota is below the contract, because a broker is over its limit and this entity "
            "adds to its load."
        ),
    )
    CALENDAR = (
        "Calendar",
        (
            "The quota is below the contract, because the policy's calendar lets the level use "
            "less now, or soon; no broker has to be over its limit for that."
        ),
    )
    RELAXING = (
        "Relaxing",
        "The brokers are within their limits again; the quota is raised into measured headroom.",
    )
    RELEASED = "Released", "The quota is exactly the contract again."

    # a human's decision that ends by itself
    OVERRIDDEN = (
        "Overridden",
        "A QuotaOverride is in force for the member, which is not throttled while it lasts.",
    )
    OVERRIDE_SCHEDULED = (
        "OverrideScheduled",
        "The override is not in force now; its message says when it begins.",
    )
    OVERRIDE_EXPIRED = (
        "OverrideExpired",
        "The override has ended and no longer has any effect; you can delete it.",
    )
    OVERRULED = (
        "Overruled",
        (
            "Another override for the same member takes precedence: one for the member itself, or "
            "an older one."
        ),
    )
    NO_SUCH_MEMBER = (
        "NoSuchMember",
        (
            "No BusinessTier of the policy has the member that the override names, so it changes "
            "nothing."
        ),
    )
    OVERRIDE_UNFIT = (
        "OverrideUnfit",
        "The override's rates cannot replace the member's contract, so it changes nothing there.",
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
    STARTING = "Starting", "The first pass has not finished yet."
    LIST_INCOMPLETE = "ListIncomplete", "The custom resources could not be listed in full."
    NAMESPACES_UNREAD = (
        "NamespacesUnread",
        "The labels of the tier's namespace are unknown, and so is whether the policy admits it.",
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
    TOKEN_UNAVAILABLE = (
        "TokenUnavailable",
        "There is no valid token for the login to the brokers; every quota stays as it is.",
    )
    PROMETHEUS_UNREACHABLE = (
        "PrometheusUnreachable",
        "Prometheus did not answer; nothing is throttled further or restored because of load.",
    )
    TOPOLOGY_INCOMPLETE = (
        "TopologyIncomplete",
        "Some leaders are unknown; no quota is lowered until they are known.",
    )
    CONTROLLER_ABSENT = (
        "ControllerAbsent",
        "Kafka has no controller right now; nothing is written until it has one.",
    )
    WRONG_CLUSTER = (
        "WrongCluster",
        (
            "A different Kafka cluster answers at this address, or two different ones do; nothing "
            "is written."
        ),
    )
    MIGRATION_PREPARED = (
        "MigrationPrepared",
        "A migration to KRaft has left its mark in ZooKeeper; nothing is written once it runs.",
    )
    QUOTAS_IGNORED = (
        "QuotasIgnored",
        (
            "A plugin on the brokers (client.quota.callback.class) decides quotas, and may ignore "
            "what is written."
        ),
    )
    READS_FROM_FOLLOWERS = (
        "ReadsFromFollowers",
        (
            "Brokers let consumers read from the nearest replica (replica.selector.class), so "
            "fetch quotas are scaled by racks or measured reads."
        ),
    )
    LEADERS_SERVE_READS = (
        "LeadersServeReads",
        "Consumers read from leaders, or no fetch contract is scaled by leaders.",
    )
    BROKER_CORDONED = (
        "BrokerCordoned",
        "A broker takes no new partitions (cordoned.log.dirs); it may soon lose its leaders.",
    )
    MIGRATION_RUNNING = (
        "MigrationRunning",
        (
            "Kafka is migrating to KRaft, or has migrated while the ledger is still in ZooKeeper; "
            "nothing is written."
        ),
    )
    LEDGER_MOVED = (
        "LedgerMoved",
        "The ledger moved from ZooKeeper to a topic after Kafka migrated to KRaft.",
    )
    LEDGER_LOST = (
        "LedgerLost",
        (
            "The ledger that the policy's status remembers is gone, or a part of it; nothing is "
            "written until someone answers with `tidegate ledger rebuild` or `tidegate ledger "
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
        "Someone answered for a lost ledger, and the policy has a ledger again.",
    )
    CLUSTER_ALREADY_MANAGED = (
        "ClusterAlreadyManaged",
        "Another policy already manages this Kafka cluster.",
    )
    CLAIMED_ELSEWHERE = (
        "ClaimedElsewhere",
        (
            "Another policy of the same name (in another Kubernetes cluster, or deleted and "
            "created again) or another operator for this one holds the claim on this Kafka "
            "cluster; nothing is written here."
        ),
    )
    RESYNCED = (
        "Resynced",
        (
            "The annotation tidegate.io/resync asked Tidegate to forget which entities are left "
            "alone, and to compare every quota again."
        ),
    )
    CLAIM_TAKEN_OVER = (
        "ClaimTakenOver",
        (
            "The claim on the Kafka cluster belonged to another policy of the same name, which "
            "the annotation tidegate.io/replace-claim names; now it belongs to this one."
        ),
    )
    REMOVAL_HELD = (
        "RemovalHeld",
        (
            "More quotas would be restored within a quarter of an hour than the policy allows "
            "without confirmation."
        ),
    )
    BUDGET_DIVIDED = (
        "BudgetDivided",
        "A BandwidthBudget is divided among its members by what they were measured to use.",
    )
    BUDGET_UNMEASURED = (
        "BudgetUnmeasured",
        (
            "What the members of a BandwidthBudget use is not known, so what each of them may have "
            "stays as it is."
        ),
    )
    BUDGET_WAITS = (
        "BudgetWaits",
        (
            "A BandwidthBudget is not divided again before the write budget is half free; what "
            "each member may have stays as it is."
        ),
    )
    BUDGET_PARENT_UNFIT = (
        "BudgetParentUnfit",
        (
            "A BandwidthBudget names a parent that does not exist in its policy, or is its own "
            "parent; only its own total limits its members."
        ),
    )
    BUDGETS_UNREAD = (
        "BudgetsUnread",
        (
            "Kubernetes does not list the BandwidthBudgets, and the policy has some, so every "
            "quota stays as it is until it does."
        ),
    )
    BUDGETS_GONE = (
        "BudgetsGone",
        "The policy has no BandwidthBudget any more: contracts apply again.",
    )
    WRITE_BUDGET_SPENT = (
        "WriteBudgetSpent",
        "The write budget is used up for now; the rest follows later.",
    )
    NOT_LEADER = "NotLeader", "Another replica of the operator holds this policy's Lease."
    STALE_DATA = (
        "StaleData",
        (
            "A broker's NIC has no usable reading: nothing is raised on it, and nothing is "
            "throttled for it."
        ),
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
        (
            "A broker over its limit reports no client rates, so the lowest tier is lowered step "
            "by step."
        ),
    )
    REPLICATION_IDLE = (
        "ReplicationIdle",
        "No replica is being filled, and Tidegate sets no replication throttle.",
    )
    REPLICATION_THROTTLED = (
        "ReplicationThrottled",
        "Replicas are being filled, within the rates that the policy allows.",
    )
    REPLICATION_RELEASED = (
        "ReplicationReleased",
        "No more replicas are being filled; Tidegate's lists and rates are removed.",
    )
    REASSIGNMENT_STALLS = (
        "ReassignmentStalls",
        (
            "The rate leaves the replicas being filled no more than their partitions receive, so "
            "they never catch up; Kafka counts in-sync replicas in it, too. Raise rate.min or "
            "rate.max, or move them when less is produced."
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
            "Another tool left a replication throttle behind that would slow the next recovery; "
            "cleanUpLeftovers removes these."
        ),
    )
    LEFTOVER_REMOVED = (
        "LeftoverRemoved",
        "Replication throttles that another tool had left behind were removed.",
    )
    REPLICATION_INCOMPLETE = (
        "ReplicationIncomplete",
        "A replication throttle could not be set or removed; it is retried.",
    )
    BACKGROUND_IDLE = (
        "BackgroundIdle",
        "No broker has background traffic to throttle, and Tidegate sets no rate for it.",
    )
    BACKGROUND_THROTTLED = (
        "BackgroundThrottled",
        "Tiered storage and log directories have the rates that the policy allows.",
    )
    BACKGROUND_INEFFECTIVE = (
        "BackgroundThrottleIneffective",
        (
            "For two minutes, more bytes of tiered storage have passed than the rate allows. Kafka "
            "counts whole segments: make them smaller, or its quota window longer."
        ),
    )
    BACKGROUND_BY_OTHERS = (
        "BackgroundThrottledByOthers",
        (
            "Somebody changed a rate of background traffic after Tidegate had set it; it stays. "
            "Delete the setting on the broker to let Tidegate set it again."
        ),
    )
    BACKGROUND_UNSUPPORTED = (
        "BackgroundUnsupported",
        "A broker has tiered storage, and its Kafka, before 3.9, has no rate for it.",
    )
    BACKGROUND_UNMEASURED = (
        "BackgroundUnmeasured",
        (
            "A rate should follow the load, and the load or the bytes of tiered storage are not "
            "known; it stays as it is."
        ),
    )
    BACKGROUND_INCOMPLETE = (
        "BackgroundIncomplete",
        "A rate of background traffic could not be set or put back; it is retried.",
    )
    QUOTA_CANNOT_HELP = (
        "QuotaCannotHelp",
        (
            "A broker is over its limit because of traffic that throttling tiers below L0 cannot "
            "reduce; nothing is throttled for it."
        ),
    )
    QUOTA_EXHAUSTED = (
        "QuotaExhausted",
        (
            "Every tier below L0 is throttled as far as it may be, and a broker is still over its "
            "limit."
        ),
    )
    NO_THROTTLED_RATE = (
        "NoThrottledRate",
        (
            "The tier has no throttled rate in the form of the member's contract, so the member "
            "is never throttled."
        ),
    )
    SHARE_GROUP = (
        "ShareGroup",
        (
            "A share group uses the member, so Tidegate sets no fetch quota for it: a "
            "throttled share group uses up delivery attempts of records that it never gets."
        ),
    )
    FLOOR_RAISED = (
        "FloorRaised",
        (
            "Clients would fail at the tier's throttled rate, so the entity is throttled to a "
            "higher one."
        ),
    )
    POOR_FIT = (
        "PoorFit",
        (
            "A throttle takes more from brokers within their limits than from those over them; "
            "moving leaders would fit better."
        ),
    )
    MINIMUM_CHANGE = (
        "MinimumChange",
        "Leaders moved by less than leaderScaling.minimumChangePercent.",
    )

    # what usage tables say of a contract
    RECOMMENDED = (
        "Recommended",
        "Usage calls for a different contract; this is shown, and changes nothing.",
    )
    RECOMMENDATION_APPLIED = (
        "RecommendationApplied",
        (
            "A contract recommended from usage replaces the declared one, within the bound that "
            "the policy sets."
        ),
    )
    CONTRACT_FITS = (
        "ContractFits",
        "Usage calls for no different contract, or for one that differs by less than a tenth.",
    )
    SHARE_SPENT = (
        "ShareSpent",
        "Usage calls for more, but the tier's share of the brokers' limits is used up.",
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
        (
            "The member was throttled for most of the window: what it transferred is not what it "
            "needs."
        ),
    )
    UNUSED = (
        "Unused",
        (
            "The member transferred nothing in 99 % of the window, which says nothing about what "
            "it needs."
        ),
    )

    # how usage rollups are getting on
    ROLLUPS_PUBLISHED = "RollupsPublished", "All completed windows are in the usage tables."
    ROLLUPS_BEHIND = (
        "RollupsBehind",
        "Windows that have ended wait for their rollup Job; one runs at a time, the oldest first.",
    )
    ROLLUP_FAILED = (
        "RollupFailed",
        "A rollup Job failed; other windows continue, and this one is retried.",
    )
    ROLLUPS_NOT_OFFERED = (
        "RollupsNotOffered",
        "The operator was started without an image for rollup Jobs, so it creates none.",
    )
    ROLLUPS_UNSEEN = (
        "RollupsUnseen",
        "The policy's Jobs, or their results, could not be read recently.",
    )
    CLAIM_NOT_ALLOWED = (
        "ClaimNotAllowed",
        "The volume claim of the usage tables does not exist, or lacks tidegate.io/usage-tables.",
    )
    ROLLUPS_NOT_WANTED = "RollupsNotWanted", "The policy asks for no usage rollups."
    ROLLUP_RESULT_UNUSABLE = (
        "RollupResultUnusable",
        "The result of a rollup Job is not from it, or has a form that this version cannot read.",
    )
    ROLLUP_RESULT_STALE = (
        "RollupResultStale",
        "The results of the rollup Jobs are too old; contracts are as declared.",
    )

    CATALOG_BEHIND = (
        "CatalogBehind",
        "Usage is published, but the Iceberg catalog could not be updated.",
    )

    # one object or entity only
    POLICY_NOT_FOUND = "PolicyNotFound", "The policy that this object refers to does not exist yet."
    TOPIC_NOT_FOUND = "TopicNotFound", "A topic of the member does not exist."
    FOREIGN_CONTENT = (
        "ForeignContent",
        "The entity's znode cannot be read safely; Tidegate does not touch it.",
    )
    CONTENDED = (
        "Contended",
        "Another writer keeps changing the entity; it is left alone for at most 8 minutes.",
    )
    OVERLAPPING = (
        "Overlapping",
        "The same user and client id appear in an earlier BusinessTier or member.",
    )
    TIER_NOT_ALLOWED = (
        "TierNotAllowed",
        "The policy's spec.allowedTiers does not admit tiers in this namespace.",
    )
    ENTITY_NOT_ALLOWED = (
        "EntityNotAllowed",
        "The policy's spec.allowedEntities does not let this tier name the user or client id.",
    )
    OWNED_BY_STRIMZI = (
        "OwnedByStrimzi",
        (
            "A KafkaUser declares the user's quotas, so they are Strimzi's and Tidegate never "
            "writes them."
        ),
    )
    KAFKA_USERS_UNREAD = (
        "KafkaUsersUnread",
        "Strimzi's KafkaUsers, one of which may declare the quota, could not be read.",
    )
    RACK_UNKNOWN = "RackUnknown", "A member declares a rack in which no live broker is."
    HIGH_SKEW = "HighSkew", "Leaders are so uneven that one quota for all brokers fits badly."
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
        "The policy names a host that is not on the operator's list of allowed hosts.",
    )
    INSECURE_LOGIN = "InsecureLogin", "A login would be sent to Prometheus over plain http."
    NOT_AUTHORIZED = (
        "NotAuthorized",
        "ZooKeeper, Kafka, Kubernetes or Prometheus refused the operator's identity.",
    )
    CONFLICT = (
        "Conflict",
        "Another writer wrote at the same moment; Tidegate read again and retried.",
    )
    OUTCOME_UNKNOWN = (
        "OutcomeUnknown",
        "The connection broke during a write; the value is read back before anything else.",
    )
    # one DelayQueue
    FORWARDING = "Forwarding", "Messages of the queue are sent on when they are due."
    DRAINING = (
        "Draining",
        "The queue is being deleted and stays until its last message has been sent on.",
    )
    QUEUE_NOT_ALLOWED = (
        "QueueNotAllowed",
        "The policy's spec.allowedTiers does not admit queues in this namespace.",
    )
    LOGIN_MISSING = (
        "LoginMissing",
        "The queue has no authentication, and forwarders never use the policy's login.",
    )
    PREFIX_TAKEN = (
        "PrefixTaken",
        "Another DelayQueue claimed the same topic prefix first.",
    )
    TOPIC_TAKEN = (
        "TopicTaken",
        "A topic with the name of one of the queue's topics has messages and other settings.",
    )
    DEPLOYMENT_TAKEN = (
        "DeploymentTaken",
        "A Deployment or PodDisruptionBudget with the forwarders' name is not the queue's.",
    )
    FORWARDERS_MISSING = (
        "ForwardersMissing",
        "No forwarder is available, so nothing is sent on; messages wait in Kafka.",
    )
    FORWARDING_FAILS = (
        "ForwardingFails",
        "A forwarder reports an error of a topic, which it tries again.",
    )
    RECORDS_LOST = (
        "RecordsLost",
        "Kafka deleted messages of the queue before they were sent on.",
    )
    CLOCK_WRONG = (
        "ClockWrong",
        "A forwarder's clock differs from the brokers' by more than 50 ms; it corrects for that.",
    )
    BROKERS_OVER_LIMIT = (
        "BrokersOverLimit",
        "Due messages of the queue wait until brokers are below their egress limit again.",
    )
    SENDING_LATE = (
        "SendingLate",
        "Messages of the queue that waited for brokers are sent now, at the queue's rate.",
    )
    SHIFT_CANNOT_HELP = (
        "ShiftCannotHelp",
        "The policy has no egress limit, which alone is relieved by messages that wait.",
    )
    DEAD_LETTERS = (
        "DeadLetters",
        "Messages with a refused or missing target are in the queue's dead topic.",
    )
    QUEUE_AT_RISK = (
        "QueueAtRisk",
        "A topic that the queue needs is missing, differs, or has one replica: messages may wait.",
    )
    NEWER_VERSION = (
        "NewerVersion",
        "A newer version of Tidegate wrote the queue's records in Kafka; this one leaves the "
        "queue alone.",
    )
    METRICS_MISSING = "MetricsMissing", "A live broker has no reading, so its load is unknown."
    CRDS_MISSING = (
        "CustomResourcesMissing",
        "The API server does not serve Tidegate's kinds: the CRDs are not installed.",
    )
    MUTE_OUTLASTS_REQUESTS = (
        "MuteOutlastsRequests",
        "maxMuteSeconds is above 25 s, and clients give up on a request after 30 s by default.",
    )
    QUOTA_WINDOW_DIFFERS = (
        "QuotaWindowDiffers",
        (
            "A broker's quota window differs from the policy's, so throttle delays are predicted "
            "wrongly."
        ),
    )
    CLOCKS_DIFFER = (
        "ClocksDiffer",
        "Clocks differ by more than 5 s, so the age of a reading is unknown.",
    )
    METRICS_STALE = (
        "MetricsStale",
        "Readings are too old to act on, or ahead of the operator's clock.",
    )
    METRICS_INCOMPLETE = (
        "MetricsIncomplete",
        "Prometheus answered in part, too much, or not with samples; the answer is not used.",
    )
    METRICS_AMBIGUOUS = (
        "MetricsAmbiguous",
        (
            "Some series do not say which broker or client they belong to, or two describe the "
            "same one; they are not used."
        ),
    )
    INTERFACES_UNCLEAR = (
        "InterfacesUnclear",
        (
            "It is unknown which interfaces of a broker are physical, or some came or went a "
            "moment ago; its load is not used."
        ),
    )
    SOURCE_CHANGED = (
        "SourceChanged",
        (
            "A broker's readings come from a different exporter, and nothing shows that it is the "
            "same broker; they are not used."
        ),
    )
    METRICS_UNREADABLE = (
        "MetricsUnreadable",
        "Some samples cannot be an amount (NaN, infinite, negative); they are not used.",
    )
    NOT_READ_DIRECTLY = (
        "NotReadDirectly",
        (
            "metrics.direct asks for it, and a broker's exporter cannot be read or is not "
            "believed; Prometheus' readings of it are used."
        ),
    )
    METRICS_QUERY_REFUSED = (
        "MetricsQueryRefused",
        "Prometheus rejected a query, so what it would have shown is unknown.",
    )
    CLIENTS_NOT_METERED = (
        "ClientsNotMetered",
        (
            "A broker, or every broker, reports no client rates: nobody uses it, no quota makes "
            "it meter users, or its exporter lacks the rules."
        ),
    )
    CLIENTS_NOT_NAMED = (
        "ClientsNotNamed",
        (
            "The labels of some client series do not hold the user and client id as Kafka spells "
            "them, mostly because of the order of the exporter's rules; they are not used."
        ),
    )
    METERING_WITHHELD = (
        "MeteringWithheld",
        (
            "defaults.metering writes nothing: a quota for Kafka's default user would replace or "
            "hide existing quotas."
        ),
    )
    METRICS_NOT_WATCHED = (
        "MetricsNotWatched",
        "The policy has no metrics, so no broker's load is read.",
    )
    STORAGE_UNREACHABLE = (
        "StorageUnreachable",
        "The storage of the usage tables did not answer, or is full; published data stays.",
    )
    USAGE_DAMAGED = (
        "UsageDamaged",
        (
            "A file of the usage tables does not contain what was written to it; it is neither "
            "published nor shown."
        ),
    )
    USAGE_VERSION = (
        "UsageVersion",
        "A different version of Tidegate wrote the usage tables and reads them differently.",
    )
    RESTORE_INCOMPLETE = (
        "RestoreIncomplete",
        "Not every quota could be restored before the policy was deleted.",
    )
    INTERNAL_ERROR = (
        "InternalError",
        "A bug in Tidegate; the pass was aborted and nothing more was written.",
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
        Reason.BUDGETS_UNREAD,
        Reason.CLAIMED_ELSEWHERE,
        Reason.CLUSTER_ALREADY_MANAGED,
        Reason.DEPLOYMENT_TAKEN,
        Reason.ENTITY_NOT_ALLOWED,
        Reason.FOREIGN_CONTENT,
        Reason.HOST_NOT_ALLOWED,
        Reason.INVALID_SPEC,
        Reason.LEDGER_AT_RISK,
        Reason.LEDGER_LOST,
        Reason.LOGIN_MISSING,
        Reason.NEWER_VERSION,
        Reason.NOT_AUTHORIZED,
        Reason.OVERLAPPING,
        Reason.OVERRIDE_UNFIT,
        Reason.OWNED_BY_STRIMZI,
        Reason.PREFIX_TAKEN,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.REMOVAL_HELD,
        Reason.SECRET_NOT_ALLOWED,
        Reason.SECRET_UNREADABLE,
        Reason.TIER_NOT_ALLOWED,
        Reason.TOPIC_TAKEN,
        Reason.WRONG_CLUSTER,
    }
)
