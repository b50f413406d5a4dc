"""`make audit` fails for an unsound package, passes when the advisory source cannot be reached, and reports all else."""

import subprocess
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[2] / "tools" / "audit"
OFFLINE = "error: error sending request for url (https://advisories.test/v1/querybatch)\\n  cause: dns error"
BUSY = "error: HTTP status server error (503 Service Unavailable) for url (https://advisories.test/v1/querybatch)"


def audited(folder: Path, *, says: str, code: int) -> subprocess.CompletedProcess[str]:
    """Run the audit with a uv that prints this on standard error and ends with this code."""
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\nprintf '%b\\n' '{says}' >&2\nexit {code}\n")
    uv.chmod(0o700)
    return subprocess.run([AUDIT, uv], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("says", [OFFLINE, BUSY], ids=["offline", "busy"])
def test_a_source_that_cannot_be_reached_is_no_failure_and_is_reported(tmp_path: Path, says: str) -> None:
    done = audited(tmp_path, says=says, code=2)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Skipped: no public source of advisories can be reached")


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("Found no known vulnerabilities in 100 packages", 0),
        ("Found 1 known vulnerability in 100 packages", 1),
        ("error: The lockfile is missing", 2),
        ("error: unexpected argument for url (one that a vulnerability names)", 1),
    ],
)
def test_every_other_end_is_handed_on_with_its_words(tmp_path: Path, says: str, code: int) -> None:
    done = audited(tmp_path, says=says, code=code)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{says}\n")
