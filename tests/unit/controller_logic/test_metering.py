"""When Kafka's default user gets a quota that never binds, and when it must not."""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.worlds import (
    FETCH,
    MB,
    PRODUCE,
    START_SECONDS,
    member,
    per_broker,
    policy,
    stored,
    tier,
    topology,
)
from tidegate_logic.contracts.desired import (
    DEFAULT_USER,
    HIDES_DECLARED,
    HIDES_STORED,
    NEVER_BINDS,
    SOMEBODY_ELSES,
    metering,
)
from tidegate_logic.model import (
    Default,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Mode,
    Observation,
    QuotaKey,
    StoredQuota,
)
from tidegate_logic.reasons import Reason

CEILING = str(NEVER_BINDS)
APP = Entity(client_id="app")
BOTH = {FETCH: NEVER_BINDS, PRODUCE: NEVER_BINDS}


def seen(quota: StoredQuota | None = None, **changes: object) -> Observation:
    """A policy that asks for metering on a cluster without any quota."""
    quotas = {DEFAULT_USER: quota if quota is not None else stored(DEFAULT_USER)}
    made = Observation(
        START_SECONDS,
        policy(metering_enabled=True),
        (),
        topology({}),
        quotas,
        client_quotas_exist=False,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def ours(values: dict[QuotaKey, str], owner: str = "streaming/main") -> StoredQuota:
    """A default user's quota that we wrote as `CEILING`, and what stands there now."""
    entries = {
        key: LedgerEntry(None, CEILING, None, 0.0, Reason.FIRST_QUOTA) for key in (FETCH, PRODUCE)
    }
    return replace(
        stored(DEFAULT_USER, values),
        ledger=LedgerRecord(DEFAULT_USER, owner, "uid-1", entries),
        ledger_version=0,
    )


def test_where_nothing_stands_both_directions_are_metered() -> None:
    found = metering(seen())
    assert found.policy.defaults == {DEFAULT_USER: BOTH}
    assert found.note is None


def test_what_we_wrote_stays() -> None:
    assert metering(seen(ours({FETCH: CEILING, PRODUCE: CEILING}))).policy.defaults == {
        DEFAULT_USER: BOTH
    }


def test_what_somebody_removed_is_written_again() -> None:
    assert metering(seen(ours({FETCH: CEILING}))).policy.defaults == {DEFAULT_USER: BOTH}


@pytest.mark.parametrize(
    "changes",
    [
        {"metering_enabled": False},
        {"deleting": True},
        {"defaults": {DEFAULT_USER: {FETCH: 50 * MB}}},
    ],
    ids=["not asked for", "policy is deleted", "policy declares the default user itself"],
)
def test_nothing_is_added_and_nothing_said(changes: dict[str, object]) -> None:
    asked = replace(policy(metering_enabled=True), **changes)  # type: ignore[arg-type]
    found = metering(seen(policy=asked))
    assert found.policy is asked
    assert found.note is None


@pytest.mark.parametrize(
    ("observation", "why"),
    [
        (seen(stored(DEFAULT_USER, {FETCH: "50000000"})), SOMEBODY_ELSES),
        (seen(ours({FETCH: CEILING, PRODUCE: "50000000"})), SOMEBODY_ELSES),
        (seen(ours({FETCH: CEILING, PRODUCE: CEILING}, owner="other/policy")), SOMEBODY_ELSES),
        (seen(client_quotas_exist=True), HIDES_STORED),
        (seen(ours({FETCH: CEILING, PRODUCE: CEILING}), client_quotas_exist=True), HIDES_STORED),
        (seen(tiers=(tier(member(APP, per_broker(MB))),)), HIDES_DECLARED),
        (
            seen(
                policy=policy(
                    metering_enabled=True, defaults={Entity(client_id=Default.DEFAULT): {FETCH: MB}}
                )
            ),
            HIDES_DECLARED,
        ),
    ],
    ids=[
        "a foreign default-user quota",
        "somebody changed ours",
        "another policy's",
        "client-id quotas in Kafka",
        "client-id quotas that came later",
        "a member that is a client id",
        "a default client id",
    ],
)
def test_what_it_would_replace_or_hide_comes_first_and_people_are_reported(
    observation: Observation, why: str
) -> None:
    found = metering(observation)
    assert DEFAULT_USER not in found.policy.defaults
    assert found.note is not None
    assert found.note.reason is Reason.METERING_WITHHELD
    assert found.note.message.endswith(why)


def test_a_request_quota_of_somebody_else_is_no_byte_rate_and_hides_nothing() -> None:
    assert (
        DEFAULT_USER
        in metering(
            seen(stored(DEFAULT_USER, {QuotaKey.REQUEST_PERCENTAGE: "200"}))
        ).policy.defaults
    )


def test_what_is_not_known_neither_adds_nor_takes_away() -> None:
    assert not metering(seen(client_quotas_exist=None)).policy.defaults
    kept = metering(seen(ours({FETCH: CEILING, PRODUCE: CEILING}), client_quotas_exist=None))
    assert kept.policy.defaults == {DEFAULT_USER: BOTH}
    assert not metering(seen(quotas=None)).policy.defaults
    assert not metering(seen(quotas={})).policy.defaults


def test_the_mode_is_no_business_of_the_rule() -> None:
    """Observe shows what Enforce would write."""
    assert metering(seen(policy=policy(metering_enabled=True, mode=Mode.OBSERVE))).policy.defaults
