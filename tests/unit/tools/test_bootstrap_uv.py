"""uv checks every other hash, so it is installed by its own."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_version_of_the_makefile_has_hashes() -> None:
    found = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    locked = (ROOT / "tools" / "uv.txt").read_text()
    assert f"uv=={found[1]} " in locked
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", locked)) > 1


def test_a_version_without_hashes_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "tools" / "bootstrap-uv", tmp_path / "uv", "0.0.1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "has no hashes of uv 0.0.1" in done.stderr
    assert not (tmp_path / "uv").exists()


def test_every_installation_asks_for_hashes() -> None:
    script = (ROOT / "tools" / "bootstrap-uv").read_text()
    assert script.count("pip install") == script.count("--require-hashes") == 2
