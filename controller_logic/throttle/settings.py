"""The constants of the throttle: what a policy may set, what follows from the brokers' quota window, and what is fixed.

Every number says where it comes from; `control` stands for the control study that the decisions were tuned in. Nothing here decides.
"""

from dataclasses import dataclass, field
from typing import Final

from controller_logic.model import Policy, QuotaWindow, Speed
from controller_logic.quotas.kafka_window import step_distance_seconds

# --- readings ---
OVER_SAMPLES: Final = 2  # k: so many of the newest OF_SAMPLES must be over (one false sample must not cut anybody)
OF_SAMPLES: Final = 3  # n
SEVERE: Final = 1.10  # one sample so far above the limit is enough: a step load
PLAUSIBLE: Final = 1.2  # a NIC that says more than this times its capacity is not believed
LYING: Final = 0.5  # nor one that says less than this share of what Kafka's own clients move there (zeros after an exporter's return)

# --- who gives ---
MIN_RELIEF: Final = 0.20  # below this share of the excess a cut would hurt without helping
SATURATED: Final = 0.95  # of capacity: from there on every byte given back helps L0, so MIN_RELIEF gives way to MATTERS
MATTERS: Final = 0.01  # share of the limit (or of a need on a full link) below which bytes do not matter
FEW: Final = 1.5  # only the largest givers are cut, until they can give so many times the need: writes are dear
FEW_ENTITIES: Final = 12  # but at least so many

# --- how far ---
GROWTH: Final = 1.25  # what an unthrottled client may have grown between the reading and the write
BINDING: Final = 0.8  # a cap binds from this share of it on: a throttled client runs at 0.5 to 0.92 of its quota, or more
BINDING_MILLISECONDS: Final = 50.0  # or where Kafka reports so much throttle time
WORTH_CUTTING: Final = 0.97  # a cut to more than this share of what is in force is not worth a write
WORTH_RAISING: Final = 1.1  # nor a raise by a smaller factor
RAMP: Final = 2.0  # no binding cap grows by more in one raise
SMALL: Final = 0.1  # a raise within this share of the headroom is given whole, in one write
FREE: Final = 1.3  # a cap this much above the highest rate of late does not bind
RELEASED: Final = 0.995  # from this share of the contract on, a raise is a release to exactly the contract; below it, it is throttled

LONGEST_HOLD_SECONDS: Final = 480.0

# --- floors ---
_JAVA_BUFFER_BYTES: Final = 32 * 1024 * 1024  # buffer.memory of the Java producer
_JAVA_DELIVERY_SECONDS: Final = 120  # delivery.timeout.ms
PRODUCER_FLOOR_BYTES_PER_SECOND: Final = -(-_JAVA_BUFFER_BYTES // _JAVA_DELIVERY_SECONDS)  # 0.28 MB/s: slower, and a full buffer expires
CONSUMER_FLOOR_BYTES_PER_SECOND: Final = 1_000_000  # a fetch of a partition's usual 1 MiB in about a second


@dataclass(frozen=True, slots=True)
class ClientFloors:
    """Rates in bytes/s below which clients break, whatever a tier says: per known producer, and per consumer entity; 0 = none."""

    per_producer: int = PRODUCER_FLOOR_BYTES_PER_SECOND
    consumer: int = CONSUMER_FLOOR_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """What a policy sets, and what follows from the brokers' quota window (W seconds). Defaults are those of the control study."""

    window: QuotaWindow = field(default_factory=QuotaWindow)
    max_mute_seconds: int = 12  # a halving with 11 x 1; real mutes stay below 22 s, under the clients' 30 s request timeout
    cut_to_percent: int = 97
    raise_to_percent: int = 95
    hold_seconds: float = 45.0
    stale_after_seconds: float = 45.0
    release_after_seconds: float | None = None  # of unknown load; None = throttles stay as they are
    speed: Speed = Speed.LADDER
    floors: ClientFloors = field(default_factory=ClientFloors)

    @classmethod
    def of(cls, policy: Policy) -> "ThrottleSettings":
        """What the policy sets; the floors of clients are not its to set."""
        return cls(
            window=policy.window,
            max_mute_seconds=policy.max_mute_seconds,
            cut_to_percent=policy.cut_to_percent,
            raise_to_percent=policy.raise_to_percent,
            hold_seconds=policy.hold_seconds,
            stale_after_seconds=policy.stale_after_seconds,
            release_after_seconds=policy.release_after_seconds,
            speed=policy.speed,
        )

    @property
    def sawtooth_period_seconds(self) -> int:
        """The period of a throttled client's sawtooth: it sends its whole window at once and then waits for it to empty."""
        return self.window.seconds + self.window.sample_seconds

    @property
    def nic_mean_seconds(self) -> int:
        """Two whole teeth; shorter means made false cuts and raises."""
        return 2 * self.sawtooth_period_seconds

    @property
    def dwell_seconds(self) -> float:
        """Between two cuts of a direction: a second step sooner meets the burst that follows a mute, and no clean sample."""
        return float(step_distance_seconds(self.window))

    @property
    def spread_seconds(self) -> float:
        """How long the writes of one round may take: one quota window, so that many clients do not burst in step."""
        return float(self.window.seconds)

    @property
    def peak_seconds(self) -> float:
        """How long a client's highest rate counts: 60 s with 11 x 1."""
        return 2 * self.dwell_seconds

    @property
    def raise_backoff_seconds(self) -> float:
        """Over the limit so soon after a raise: the raise was too early. 90 s with 11 x 1."""
        return 3 * self.dwell_seconds

    @property
    def longest_hold_seconds(self) -> float:
        return max(LONGEST_HOLD_SECONDS, self.hold_seconds)
