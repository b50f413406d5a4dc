"""The page of reasons is generated from the enum, and a check finds a page that is not."""

from pathlib import Path

import pytest

from controller_logic.reasons import STALLED, Reason
from tools.generate import REASONS_PAGE, reasons_page, write_or_check

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_every_reason_has_one_row_with_its_meaning(reason: Reason) -> None:
    rows = [line for line in reasons_page().splitlines() if line.startswith(f"| `{reason.value}` |")]
    assert rows == [f"| `{reason.value}` | {reason.meaning} | {'yes' if reason in STALLED else ''} |"]


def test_the_committed_page_is_that_of_the_enum() -> None:
    assert (ROOT / REASONS_PAGE).read_text(encoding="utf-8") == reasons_page()


@pytest.mark.parametrize("present", [None, "an older page\n"], ids=["missing", "different"])
def test_a_check_fails_on_a_page_that_is_out_of_date_and_leaves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], present: str | None
) -> None:
    page = tmp_path / "page.md"
    if present is not None:
        page.write_text(present)
    assert write_or_check({page: "new\n"}, command="python -m it", arguments=["--check"]) == 1
    assert (page.read_text() if page.exists() else None) == present
    assert "python -m it" in capsys.readouterr().err


def test_a_written_page_passes_the_check(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.md"
    assert write_or_check({page: "new\n"}, command="it", arguments=[]) == 0
    assert write_or_check({page: "new\n"}, command="it", arguments=["--check"]) == 0
