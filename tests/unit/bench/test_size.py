"""What `rollup-size` measures is a whole day: every row of it is published and put together."""

from pathlib import Path

import pytest

from bench.rollup import size


def test_a_day_has_every_member_in_every_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "MEMBERS", 3)
    rows = 2 * 3 * 2 * 288
    assert size._publish(tmp_path, 2)[0] == rows
    assert size._compact(tmp_path)[0] == rows


def test_a_task_has_the_windows_of_all_members_and_their_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(size, "MEMBERS", 10)
    # rows of 5 minutes and of the hour: of 20 clients, and of the broker in both directions
    assert size._task()[0] == 20 * 12 + 20 + 2
