"""What bad input gets in the rollup of a BrokerBandwidthPolicy."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, policy

BAD_ROLLUPS = (
    BadInput(
        "windows that do not divide a day",
        policy({"rollup.everySeconds": 1500}),
        "spec.rollup.everySeconds",
        "must divide a day into equal windows of whole five minutes",
    ),
    BadInput("windows of a minute", policy({"rollup.everySeconds": 60}), "spec.rollup.everySeconds", "greater than or equal to 300"),
    BadInput("no storage", policy({"rollup.storage": ABSENT}), "spec.rollup.storage", "is required", "Required value"),
    BadInput(
        "tables on the web", policy({"rollup.storage.url": "https://tables"}), "spec.rollup.storage.url", "must be a folder as file:///path"
    ),
    BadInput(
        "a path that climbs", policy({"rollup.storage.url": "file:///var/../etc"}), "spec.rollup.storage.url", "without credentials, query"
    ),
    BadInput(
        "the root of a Pod", policy({"rollup.storage.url": "file:///"}), "spec.rollup.storage.url", "must be a folder as file:///path"
    ),
    BadInput("credentials of a bucket", policy({"rollup.storage.url": "s3://me:pw@b/x"}), "spec.rollup.storage.url", "without credentials"),
    BadInput(
        "a folder without a volume",
        policy({"rollup.storage.claimName": ABSENT}),
        "spec.rollup.storage.claimName",
        "claimName is required with a file:// url",
    ),
    BadInput(
        "a volume beside a bucket",
        policy({"rollup.storage.url": "s3://usage/tidegate"}),
        "spec.rollup.storage.claimName",
        "claimName goes with a file:// url only",
    ),
    BadInput(
        "memory without a unit", policy({"rollup.driver.memory": "3000000000"}), "spec.rollup.driver.memory", "must be memory in Mi or Gi"
    ),
    BadInput("memory of a phone", policy({"rollup.executors.memory": "512Mi"}), "spec.rollup.executors.memory", "must be from 1Gi"),
    BadInput(
        "five minutes kept longer than hours",
        policy({"rollup.retentionDays": {"fiveMinutes": 401}}),
        "spec.rollup.retentionDays",
        "fiveMinutes (30 where unset) must not be above hours (400 where unset)",
    ),
    BadInput(
        "a price with a currency", policy({"rollup.pricePerGiB.fetch": "2 EUR"}), "spec.rollup.pricePerGiB.fetch", "must be an amount"
    ),
    BadInput("no price at all", policy({"rollup.pricePerGiB": {}}), "spec.rollup.pricePerGiB", "leave pricePerGiB out"),
    BadInput(
        "recommendations applied without a bound",
        policy({"rollup.recommend": {"apply": "WithinPercent"}}),
        "spec.rollup.recommend.maxChangePercent",
        "maxChangePercent is required with apply WithinPercent",
    ),
    BadInput(
        "usage without metrics",
        policy({"metrics": ABSENT}),
        "spec.metrics",
        "metrics is required with rollup",
    ),
)
