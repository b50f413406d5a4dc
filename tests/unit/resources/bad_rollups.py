"""What bad input gets in the rollup of a BrokerBandwidthPolicy."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, policy

BAD_ROLLUPS = (
    BadInput(
        "windows that do not divide a day",
        policy({"rollup.intervalSeconds": 1500}),
        "spec.rollup.intervalSeconds",
    ),
    BadInput(
        "windows of a minute",
        policy({"rollup.intervalSeconds": 60}),
        "spec.rollup.intervalSeconds",
        server_says="greater than or equal to 300",
    ),
    BadInput("no storage", policy({"rollup.storage": ABSENT}), "spec.rollup.storage", server_says="Required value"),
    BadInput("tables on the web", policy({"rollup.storage.url": "https://tables"}), "spec.rollup.storage.url"),
    BadInput("a path that climbs", policy({"rollup.storage.url": "file:///var/../etc"}), "spec.rollup.storage.url"),
    BadInput("the root of a Pod", policy({"rollup.storage.url": "file:///"}), "spec.rollup.storage.url"),
    BadInput("credentials of a bucket", policy({"rollup.storage.url": "s3://me:pw@b/x"}), "spec.rollup.storage.url"),
    BadInput(
        "a folder without a volume",
        policy({"rollup.storage.claimName": ABSENT}),
        "spec.rollup.storage.claimName",
    ),
    BadInput(
        "a volume beside a bucket",
        policy({"rollup.storage.url": "s3://usage/tidegate"}),
        "spec.rollup.storage.claimName",
    ),
    BadInput("memory without a unit", policy({"rollup.driver.memory": "3000000000"}), "spec.rollup.driver.memory"),
    BadInput("memory of a phone", policy({"rollup.executors.memory": "512Mi"}), "spec.rollup.executors.memory"),
    BadInput(
        "five minutes kept longer than hours",
        policy({"rollup.retentionDays": {"fiveMinutes": 401}}),
        "spec.rollup.retentionDays",
    ),
    BadInput("a price with a currency", policy({"rollup.pricePerGiB.fetch": "2 EUR"}), "spec.rollup.pricePerGiB.fetch"),
    BadInput("no price at all", policy({"rollup.pricePerGiB": {}}), "spec.rollup.pricePerGiB"),
    BadInput(
        "recommendations applied without a bound",
        policy({"rollup.recommend": {"apply": "WithinPercent"}}),
        "spec.rollup.recommend.maxChangePercent",
    ),
    BadInput(
        "usage without metrics",
        policy({"metrics": ABSENT}),
        "spec.metrics",
    ),
)
