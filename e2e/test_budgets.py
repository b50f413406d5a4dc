"""One budget of a team divides what two of its services may read, and gives all of it back."""

from __future__ import annotations

from e2e.declared import MB, budget, policy, tier, watching
from e2e.kafka_side import KafkaSide
from e2e.scene import Scenario
from lab.episodes import Business, fill_topic, running_clients
from lab.kafka import KafkaLab
from lab.process import wait_until
from lab.prometheus import PrometheusLab

CONTRACT, WANTED, BROKERS = 30 * MB, 10 * MB, 3
SHARED, MORE = 36 * MB, 72 * MB
TEAM = {"orders": "L1", "reports": "L3"}


def test_a_budget_is_divided_by_level_and_contracts_apply_again_when_it_is_deleted(
    scene: Scenario, topic: str, kafka: KafkaLab, prometheus: PrometheusLab, in_kafka: KafkaSide
) -> None:
    scene.declare(
        policy(kafka, **watching(prometheus, egress_limit=1000 * MB)),
        tier("gold", "L0", {"checkout": CONTRACT}, topic=topic),
        *(
            tier(user, level, {user: CONTRACT}, topic=topic, throttled=1 * MB)
            for user, level in TEAM.items()
        ),
    )
    for user in ("checkout", *TEAM):
        in_kafka.wait_for_fetch_quota(user, CONTRACT)

    def permitted() -> int:
        """What the team may read from all brokers together, in bytes per second."""
        return BROKERS * sum(in_kafka.fetch_quota(user) or 0 for user in TEAM)

    businesses = [Business(level, user, WANTED, 1 * MB, CONTRACT) for user, level in TEAM.items()]
    fill_topic(kafka, topic)
    with running_clients(kafka, businesses, topic=topic, run=topic, prefix="budget"):
        scene.declare(budget("team", SHARED, tiers=list(TEAM)))
        wait_until(lambda: permitted() <= SHARED, "quotas within the budget", timeout_seconds=150)
        scene.waits_for("bb/team", "Ready")
        wait_until(lambda: measured(scene) >= WANTED, "a report of use", timeout_seconds=60)
        of_team = {one["member"]: one for one in scene.read("bb/team")["status"]["members"]}
        assert set(of_team) == set(TEAM)
        assert of_team["reports"]["limitedBy"] == "Budget"
        # it starts at its minimum of 5 % at least, and L1 gets what it wants first
        assert of_team["reports"]["allowed"]["fetch"] >= SHARED * 5 // 100
        assert of_team["reports"]["allowed"]["fetch"] <= of_team["orders"]["allowed"]["fetch"]

        scene.edit("bb/team", {"total": {"fetch": str(MORE)}})
        wait_until(lambda: permitted() > SHARED, "quotas of the larger budget", timeout_seconds=90)
        assert permitted() <= MORE
        assert in_kafka.fetch_quota("checkout") == CONTRACT

        scene.delete("bb/team")
        for user in TEAM:
            in_kafka.wait_for_fetch_quota(user, CONTRACT, timeout_seconds=120)
    scene.delete("bbp/orders")


def test_a_budget_that_makes_no_sense_is_refused(scene: Scenario) -> None:
    without_total = budget("team", SHARED, tiers=list(TEAM))
    without_total["spec"]["total"] = {}
    assert "spec.total" in scene.refusal(without_total)
    for_nobody = budget("team", SHARED, tiers=list(TEAM))
    for_nobody["spec"]["members"] = {}
    assert "must have a selector, tiers or both" in scene.refusal(for_nobody)


def measured(scene: Scenario) -> int:
    """What the team reads by the budget's status, in bytes per second."""
    return int(scene.read("bb/team")["status"].get("measured", {}).get("fetch", 0))
