"""The plugin of kubectl: an archive that is the same each time, a manifest that names it, and a script
that finds its files through krew's link.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from image import packages
from lab.errors import LabError
from lab.image_archive import sha256
from tools.release import files, krew, verify

LOCKED = """\
async-timeout==5.0.1 ; python_full_version < '3.11.3' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
kopf==1.45.2 \\
    --hash=sha256:cc
"""


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a release with a wheel, and the plugin made of it."""
    monkeypatch.setattr(packages, "locked_requirements", lambda: LOCKED)
    out = tmp_path / "out"
    out.mkdir()
    wheel = out / "tidegate-1.3.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    krew.write(out, wheel, version="1.3.0")
    return out


def test_the_archive_has_the_wheel_and_what_it_was_tested_with(released: Path) -> None:
    archive = released / "kubectl-tidegate-1.3.0.tar.gz"
    with tarfile.open(archive) as packed:
        assert {one.name: one.mode for one in packed} == {
            "LICENSE": 0o644,
            "kubectl-tidegate": 0o755,
            "tidegate-1.3.0-py3-none-any.whl": 0o644,
            "versions.txt": 0o644,
        }
        versions = packed.extractfile("versions.txt")
        assert versions is not None
        assert versions.read().decode() == (
            "async-timeout==5.0.1 ; python_full_version < '3.11.3'\nkopf==1.45.2\n"
        )
    digest = sha256(archive)
    krew.write(released, released / "tidegate-1.3.0-py3-none-any.whl", version="1.3.0")
    assert sha256(archive) == digest


def test_the_versions_are_those_of_the_whole_lock() -> None:
    locked = packages.locked_requirements()
    lines = krew.versions(locked).splitlines()
    assert len(lines) == len([one for one in locked.splitlines() if not one.startswith(" ")])
    assert all("==" in line and "\\" not in line and "sha256" not in line for line in lines)
    assert any(line.startswith("kopf==") for line in lines)


def test_the_manifest_is_what_krew_reads(released: Path) -> None:
    """The fields that krew requires of a manifest, and its rules for them."""
    document = yaml.safe_load((released / "krew.yaml").read_text())
    assert document["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (document["kind"], document["metadata"]["name"]) == ("Plugin", "tidegate")
    spec = document["spec"]
    assert spec["version"] == "v1.3.0"
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert spec["homepage"] == files.chart_description()["home"]
    (one,) = spec["platforms"]
    assert one["uri"].endswith("/v1.3.0/kubectl-tidegate-1.3.0.tar.gz")
    assert one["sha256"] == sha256(released / "kubectl-tidegate-1.3.0.tar.gz")
    assert one["bin"] == "kubectl-tidegate"
    assert verify.check_plugin(released).endswith("by its digest")


def test_another_archive_than_the_manifest_names_is_found(released: Path) -> None:
    with (released / "kubectl-tidegate-1.3.0.tar.gz").open("ab") as archive:
        archive.write(b"more")
    with pytest.raises(LabError, match="krew would refuse it"):
        verify.check_plugin(released)


def run_it(released: Path, place: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Installed in a folder with a blank, and run through two links, one of them relative."""
    store = place / "store of krew"
    with tarfile.open(released / "kubectl-tidegate-1.3.0.tar.gz") as packed:
        packed.extractall(store, filter="data")
    (place / "current").symlink_to(store / "kubectl-tidegate")
    (place / "bin").mkdir()
    (place / "bin" / "kubectl-tidegate").symlink_to("../current")
    return subprocess.run(
        [place / "bin" / "kubectl-tidegate", "plan", "a b"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_script_finds_its_files_through_links(released: Path, tmp_path: Path) -> None:
    uv = tmp_path / "tools" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    uv.chmod(0o755)
    done = run_it(released, tmp_path, f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    store = tmp_path / "store of krew"
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *("tool", "run", "--quiet", "--python", ">=3.11"),
        *("--constraints", f"{store}/versions.txt"),
        *("--from", f"{store}/tidegate-1.3.0-py3-none-any.whl"),
        *("kubectl-tidegate", "plan", "a b"),
    ]


def test_without_uv_it_says_where_that_is(released: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("sh", "readlink", "dirname"):
        found = next(
            Path(one) / name
            for one in os.environ["PATH"].split(os.pathsep)
            if (Path(one) / name).exists()
        )
        (bare / name).symlink_to(found)
    done = run_it(released, tmp_path, str(bare))
    assert done.returncode == 1
    assert "runs with uv, which is not on your PATH" in done.stderr
