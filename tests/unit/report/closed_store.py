"""A store of two months of one cluster, for tests of closed months and of two clusters' bills.

`closed_before_0_2/` has what the version before 0.2 made of it: both months as it closed them, and
their FOCUS rows as it wrote them then.
"""

import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tests.unit.report.small_request import table
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.report.rate_card import GIB
from tidegate.rollup.schemas import BROKER, USAGE
from tidegate.rollup.tables.format import Owner
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore

FORMER = Path(__file__).with_name("closed_before_0_2")
NOW = "2026-12-24T08:00:00+00:00"
OCTOBER, NOVEMBER = "2026-10-05T10:00:00Z", "2026-11-05T10:00:00Z"
LABELS = '{"costCenter":"4711","team":"shop"}'
FORMULA = "=1+cmd|' /C calc'!A0"
POLICY = "ns/shop"
ZONE = ("--timezone", "Europe/Berlin")
CARD = """
currency: EUR
issuer: Data platform
rates:
  - perGiB: {fetch: "1.00", produce: "0.013"}
    levels: {L0: {fetch: "5.00"}}
    unattributed: OwnLine
"""


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def publish_hour(folder: Path, run: str, at: str, *, gib_of_a: int, cluster: str) -> None:
    """`a` is in a tier, and one client has a name that a spreadsheet would run."""
    store, at_ms = UsageStore.at(f"file://{folder}"), milliseconds(at)
    clients = (
        ({"user": "a", "tier": "ns/gold", "labels": LABELS}, gib_of_a),
        ({"user": FORMULA, "client_id": "@loads"}, 1),
    )
    usage = [
        {**client, "window_start": at_ms, "direction": way, "bytes": gib * GIB + 7}
        for client, gib in clients
        for way in ("fetch", "produce")
    ]
    counted = {"client_bytes": (gib_of_a + 2) * GIB + 14, "unattributed_bytes": GIB}
    brokers = [{"window_start": at_ms, "direction": way, **counted} for way in ("fetch", "produce")]
    for name, rows in (("usage_1h", table(USAGE, usage)), ("broker_1h", table(BROKER, brokers))):
        staged = stage(store, run, name, rows, part=0, owner=Owner("uid", POLICY, cluster))
        publication = Publication(
            table=name,
            window_start_ms=at_ms,
            run_id=run,
            staged=staged,
            owner=Owner("uid", POLICY, cluster),
        )
        publish(store, publication, now_ms=milliseconds(NOW))


def files_of(folder: Path) -> Sequence[str]:
    """The options with the time zone, the rate card, and the policy with its tier."""
    tier = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "gold", "namespace": "ns"},
        "spec": {
            "policyRef": {"name": "shop"},
            "level": "L0",
            "members": [{"name": "checkout", "user": "a"}],
        },
    }
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "shop", "namespace": "ns"},
        "spec": {
            "mode": "Observe",
            "kafka": {
                "bootstrapServers": "k:9092",
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": "z:2181"},
            },
        },
    }
    (folder / "rates.yaml").write_text(CARD)
    (folder / "policy.yaml").write_text(f"{json.dumps(policy)}\n---\n{json.dumps(tier)}\n")
    return *ZONE, "--rate-card", str(folder / "rates.yaml"), "--file", str(folder / "policy.yaml")


def call(*arguments: str, now: str = NOW) -> tuple[int, str]:
    """The exit code and what was said, in one line."""
    out = io.StringIO()
    context = CommandContext(out=out, err=out, now_seconds=lambda: milliseconds(now) / 1000)
    return main(arguments, context), " ".join(out.getvalue().split())


def publish_and_close(usage: Path, files: Sequence[str], *, cluster: str = "kafka-a") -> None:
    """October, and November with a correction of October."""
    publish_hour(usage, "run-1", OCTOBER, gib_of_a=2, cluster=cluster)
    publish_hour(usage, "run-1", NOVEMBER, gib_of_a=3, cluster=cluster)
    for month in ("2026-10", "2026-11"):
        code, said = call("report", "close", month, "--store", str(usage), *files, "--with-gaps")
        assert code == 0, said
        publish_hour(usage, "run-2", OCTOBER, gib_of_a=4, cluster=cluster)
