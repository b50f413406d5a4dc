"""The sample tables agree with each other, as those of a real run do."""

import numpy as np
import pytest

from tests.unit.report.sample_report import BROKERS, MEMBERS, sample_tables

TABLES = sample_tables()


def total(table: object, column: str) -> int:
    return int(np.asarray(table[column]).sum())  # type: ignore[index]


def test_hours_add_up_to_their_five_minutes() -> None:
    assert total(TABLES.usage, "bytes") == total(TABLES.usage_5m, "bytes") > 0
    assert total(TABLES.brokers, "nic_bytes") == total(TABLES.broker_5m, "nic_bytes") > 0


def test_users_and_unattributed_bytes_add_up_to_the_brokers_count() -> None:
    assert total(TABLES.usage, "bytes") + total(TABLES.brokers, "unattributed_bytes") == total(
        TABLES.brokers, "client_bytes"
    )


def test_tiers_add_up_to_their_members() -> None:
    assert total(TABLES.tiers, "bytes") == total(TABLES.usage, "bytes")


@pytest.mark.parametrize(
    ("column", "count"), [("user", len(MEMBERS)), ("broker", len(BROKERS)), ("tier", 4)]
)
def test_all_are_in_it(column: str, count: int) -> None:
    assert len(TABLES.usage[column].unique()) == count
