"""A soak goes on where its last piece ended."""

from pathlib import Path

import pytest

from tests.soak import __main__ as soak
from tests.soak.world import LIMIT, PARTITIONS_OF_EACH, Load


def test_what_a_piece_left_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(soak, "OUTPUT", tmp_path)
    monkeypatch.setattr(soak, "STATE", tmp_path / "state.json")
    state = soak.State(7, "4.4.0", pieces=1)
    state.hour.kills, state.hour.seconds = 3, 3600.0
    state.hour.kills = 2  # of the next hour
    state.violations.append("1: something")
    state.write()
    again = soak.State.read()
    assert again == state
    assert [one.kills for one in again.hours] == [3, 2]
    assert again.seconds == 3600
    assert "1.0 h, 5 kills, violations: 1" in (tmp_path / "table.md").read_text()


def test_six_tenths_of_a_nic_are_used_where_quotas_allow_it() -> None:
    load = Load(set(soak.LEVELS), leaders=dict.fromkeys(range(PARTITIONS_OF_EACH), 1))
    assert load.nic(1) == pytest.approx(0.6 * LIMIT)
    load.users.discard("grace")
    assert load.nic(1) == pytest.approx(0.6 * LIMIT), "others use what is left"
    load.quotas = {"frank": 1_000_000.0}
    assert load.nic(1) == pytest.approx(0.6 * LIMIT - load.sent(1)["erin"] + 1_000_000)
