"""Proof that a broker applied a quota: the newest line of its log about exactly that entity and
kind.
"""

from __future__ import annotations

import pytest

from lab.kafka import DEFAULT, QuotaChange, is_applied

LOG = """\
2026-01-01 00:00:00,001 INFO kafka.server.ClientQuotaManager Changing PRODUCE quota for user alice to 1000000.0
2026-01-01 00:00:00,002 INFO kafka.server.ClientQuotaManager Changing FETCH quota for user alice client-id a b to 2000000.0
2026-01-01 00:00:00,003 INFO kafka.server.ClientQuotaManager Changing FETCH quota for default user default client-id to 3.0E7
2026-01-01 00:00:00,004 INFO kafka.server.ClientRequestQuotaManager Changing REQUEST quota for default client-id to 50.0
2026-01-01 00:00:00,005 INFO kafka.server.ClientQuotaManager Changing PRODUCE quota for user alice to 500000.0
2026-01-01 00:00:00,006 INFO kafka.server.ClientQuotaManager Removing FETCH quota for user alice client-id a b
"""


@pytest.mark.parametrize(
    ("change", "applied"),
    [
        (QuotaChange("PRODUCE", "alice", None, 500_000.0), True),
        (QuotaChange("PRODUCE", "alice", None, 1_000_000.0), False),
        (QuotaChange("FETCH", "alice", None, 2_000_000.0), False),
        (QuotaChange("FETCH", "alice", "a b", None), True),
        (QuotaChange("FETCH", "alice", "a b", 2_000_000.0), False),
        (QuotaChange("FETCH", DEFAULT, DEFAULT, 3e7), True),
        (QuotaChange("REQUEST", None, DEFAULT, 50.0), True),
        (QuotaChange("REQUEST", DEFAULT, None, 50.0), False),
        (QuotaChange("CONTROLLER_MUTATION", "alice", None, None), False),
    ],
)
def test_only_the_newest_line_about_the_entity_counts(change: QuotaChange, applied: bool) -> None:
    assert is_applied(LOG, change) is applied
