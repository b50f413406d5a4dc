"""A kind cluster of the lab: what its node is made of and configured with, as far as that needs no
root.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab.errors import LabError
from lab.kubernetes import kind
from lab.kubernetes.kind_image import codename_of, container_base, sources_of, with_pause_image

RUNC_BOUNDED = Path(kind.__file__).parent / "kind_files" / "runc-bounded"
CAPABILITIES = ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_SYS_TIME"]


@pytest.fixture
def runc_that_only_ends(tmp_path: Path) -> dict[str, str]:
    runc = tmp_path / "bin" / "runc"
    runc.parent.mkdir()
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    return {**os.environ, "PATH": f"{runc.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "capabilities",
    [CAPABILITIES, CAPABILITIES[:2], CAPABILITIES[1:]],
    ids=["amid", "last", "first"],
)
def test_a_privileged_container_asks_for_all_but_the_capability_that_the_machine_lacks(
    tmp_path: Path, runc_that_only_ends: dict[str, str], capabilities: list[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"process": {"capabilities": {"bounding": capabilities}}}, separators=(",", ":"))
    )
    command = [str(RUNC_BOUNDED), "create", "--bundle", str(tmp_path), "name"]
    said = subprocess.run(
        command, env=runc_that_only_ends, capture_output=True, text=True, check=True
    ).stdout
    left = [name for name in capabilities if name != "CAP_SYS_RESOURCE"]
    assert json.loads(config.read_text()) == {"process": {"capabilities": {"bounding": left}}}
    assert said == f"create --bundle {tmp_path} name\n"


def test_what_is_run_in_a_container_asks_for_no_more_than_the_container(
    tmp_path: Path, runc_that_only_ends: dict[str, str]
) -> None:
    asked = tmp_path / "process.json"
    asked.write_text('{"capabilities":{"effective":["CAP_CHOWN","CAP_SYS_RESOURCE"]}}')
    subprocess.run(
        [str(RUNC_BOUNDED), "exec", "--process", str(asked), "name"],
        env=runc_that_only_ends,
        capture_output=True,
        check=True,
    )
    assert json.loads(asked.read_text()) == {"capabilities": {"effective": ["CAP_CHOWN"]}}


@pytest.mark.parametrize("value", ["bookworm", '"bookworm"', "'bookworm'"])
def test_the_release_is_read_as_the_machine_names_it(value: str) -> None:
    assert (
        codename_of(f'ID=debian\nVERSION_CODENAME={value}\nNAME="Debian GNU/Linux"\n') == "bookworm"
    )


def test_a_machine_that_is_no_debian_gets_an_error() -> None:
    with pytest.raises(LabError, match="VERSION_CODENAME"):
        codename_of("ID=arch\n")


def test_a_root_is_made_from_the_releases_own_suites_only() -> None:
    targets = """http://mirror/debian/ bookworm main
http://mirror/debian/ bookworm main
http://mirror/debian/ bookworm contrib
http://mirror/debian/ bookworm-updates main
http://mirror/debian/ bookworm-backports main
http://mirror/security/ bookworm-security main
http://others/ bookworm-tools main
http://others/ stable main
"""
    assert sources_of(targets, "bookworm") == [
        "http://mirror/debian/ bookworm main",
        "http://mirror/debian/ bookworm-updates main",
        "http://mirror/security/ bookworm-security main",
    ]


def test_the_node_starts_pods_with_the_pause_image_that_it_holds() -> None:
    settings = 'version = 2\n[plugins.cri]\n  sandbox_image = "registry/pause:1"\n  clamp = false\n'
    assert with_pause_image(settings, "registry/pause:2") == settings.replace("pause:1", "pause:2")


def test_a_container_begins_with_containerds_own_settings_and_no_limit_that_the_machine_may_refuse() -> (
    None
):
    spec = {
        "ociVersion": "1.0",
        "process": {"cwd": "/", "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}]},
    }
    base = container_base(json.dumps(spec))
    assert base["process"] == {"cwd": "/"}
    assert base["ociVersion"] == "1.0"


def test_a_node_looks_for_images_of_a_registry_where_the_lab_says(tmp_path: Path) -> None:
    network: Any = None  # nothing is started
    lab = kind.KindLab(network, mirrors={"registry.example": "http://198.18.0.1:5000"})
    lab.directory = tmp_path
    registries = lab._write_mirrors()
    settings = tomllib.loads((registries / "registry.example" / "hosts.toml").read_text())
    assert settings == {
        "server": "https://registry.example",
        "host": {"http://198.18.0.1:5000": {"capabilities": ["pull", "resolve"]}},
    }
    described: Any = kind._cluster("198.18.0.60", calls=tmp_path, registries=registries)
    (node,) = described["nodes"]
    (mounted,) = [one for one in node["extraMounts"] if one["hostPath"] == str(registries)]
    patches = [tomllib.loads(patch) for patch in described["containerdConfigPatches"]]
    asked = patches[0]["plugins"]["io.containerd.grpc.v1.cri"]["registry"]
    assert asked == {"config_path": mounted["containerPath"]}
