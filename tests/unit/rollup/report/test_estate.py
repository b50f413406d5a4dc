"""The made-up estate is a whole one: what tests read off it would hold of a real store."""

import numpy as np
import pytest

from tests.unit.rollup.report.estate import BROKERS, estate_tables
from tests.unit.rollup.report.estate_members import MEMBERS

TABLES = estate_tables()


def total(table: object, column: str) -> int:
    return int(np.asarray(table[column]).sum())  # type: ignore[index]


def test_hours_add_up_to_their_five_minutes() -> None:
    assert total(TABLES.usage, "bytes") == total(TABLES.usage_5m, "bytes") > 0
    assert total(TABLES.brokers, "nic_bytes") == total(TABLES.broker_5m, "nic_bytes") > 0


def test_users_and_what_is_of_nobody_add_up_to_the_brokers_count() -> None:
    assert total(TABLES.usage, "bytes") + total(TABLES.brokers, "unattributed_bytes") == total(TABLES.brokers, "client_bytes")


def test_tiers_add_up_to_their_members() -> None:
    assert total(TABLES.tiers, "bytes") == total(TABLES.usage, "bytes")


@pytest.mark.parametrize(("column", "count"), [("user", len(MEMBERS)), ("broker", len(BROKERS)), ("tier", 4)])
def test_everybody_is_in_it(column: str, count: int) -> None:
    assert len(TABLES.usage[column].unique()) == count
