"""The same content gives the same image, and engines find in it what they look for."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from lab.image_archive import ImageConfig, architecture, write_archive, write_layer


def tree(place: Path, *, backwards: bool = False) -> Path:
    """Three files, two directories and a link; made in the other order on request, which file
    systems remember.
    """
    files = {"usr/bin/run": "#!/bin/sh\n", "usr/lib/data": "data", "usr/lib-64": "sorts between"}
    for name in sorted(files, reverse=backwards):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    (place / "usr/bin/run").chmod(0o744)
    (place / "bin").symlink_to("usr/bin")
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    return place


def layer(place: Path, name: str, **how: bool) -> bytes:
    out = place / f"{name}.tar"
    write_layer(tree(place / name, **how), out)
    return out.read_bytes()


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return {member.name: member for member in tar}


def test_place_order_umask_and_time_leave_no_trace_in_a_layer(tmp_path: Path) -> None:
    first = layer(tmp_path, "first")
    before = os.umask(0o077)
    try:
        second = layer(tmp_path, "second", backwards=True)
    finally:
        os.umask(before)
    os.utime(tmp_path / "second/usr/lib/data", (10**9, 10**9))
    write_layer(tmp_path / "second", tmp_path / "again.tar")
    assert first == second == (tmp_path / "again.tar").read_bytes()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("usr", 0o755),
        ("usr/bin/run", 0o755),
        ("usr/lib/data", 0o644),
        ("tmp", 0o1777),
        ("bin", 0o777),
    ],
)
def test_modes_are_those_that_everybody_can_read(tmp_path: Path, name: str, mode: int) -> None:
    layer(tmp_path, "layer")
    found = members(tmp_path / "layer.tar")[name]
    assert (found.mode, found.uid, found.gid, found.mtime) == (mode, 0, 0, 0)


def test_a_program_that_runs_as_its_owner_still_does(tmp_path: Path) -> None:
    program = tmp_path / "tree/su"
    program.parent.mkdir()
    program.touch()
    program.chmod(0o4750)
    write_layer(tmp_path / "tree", tmp_path / "layer.tar")
    assert members(tmp_path / "layer.tar")["su"].mode == 0o4755


def test_a_directory_comes_before_its_content_and_links_stay_links(tmp_path: Path) -> None:
    layer(tmp_path, "layer")
    found = members(tmp_path / "layer.tar")
    assert list(found) == [
        "bin",
        "tmp",
        "usr",
        "usr/bin",
        "usr/bin/run",
        "usr/lib",
        "usr/lib/data",
        "usr/lib-64",
    ]
    assert found["bin"].linkname == "usr/bin"


def test_pipes_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree/pipe")
    write_layer(tmp_path / "tree", tmp_path / "layer.tar")
    assert not members(tmp_path / "layer.tar")


@pytest.fixture
def one_layer(tmp_path: Path) -> Path:
    layer(tmp_path, "layer")
    return tmp_path / "layer.tar"


def read_json(archive: Path, name: str) -> object:
    with tarfile.open(archive) as tar:
        content = tar.extractfile(name)
        assert content is not None
        return json.load(content)


def test_an_archive_names_its_layers_by_what_is_in_them(tmp_path: Path, one_layer: Path) -> None:
    image_id = write_archive(
        tmp_path / "image.tar",
        "tidegate:1",
        [one_layer],
        ImageConfig(("/usr/bin/run",), user="65532"),
    )
    digest = hashlib.sha256(one_layer.read_bytes()).hexdigest()
    config_name = image_id.removeprefix("sha256:") + ".json"
    assert read_json(tmp_path / "image.tar", "manifest.json") == [
        {"Config": config_name, "RepoTags": ["tidegate:1"], "Layers": [f"{digest}/layer.tar"]}
    ]
    with tarfile.open(tmp_path / "image.tar") as tar:
        assert hashlib.sha256(
            tar.extractfile(config_name).read()
        ).hexdigest() == image_id.removeprefix("sha256:")
        assert tar.extractfile(f"{digest}/layer.tar").read() == one_layer.read_bytes()


def test_the_configuration_says_how_to_run(tmp_path: Path, one_layer: Path) -> None:
    config = ImageConfig(
        ("/usr/bin/run", "--now"), environment={"ZONE": "out"}, user="65532", labels={"a": "b"}
    )
    image_id = write_archive(tmp_path / "image.tar", "tidegate:1", [one_layer], config)
    described = read_json(tmp_path / "image.tar", image_id.removeprefix("sha256:") + ".json")
    assert isinstance(described, dict)
    assert described["config"] == {
        "Entrypoint": ["/usr/bin/run", "--now"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ZONE=out"],
        "Labels": {"a": "b"},
        "User": "65532",
        "WorkingDir": "/",
    }
    assert (described["os"], described["architecture"]) == ("linux", architecture())


def test_an_archive_is_the_same_each_time_and_another_with_another_name_or_user(
    tmp_path: Path, one_layer: Path
) -> None:
    def archive(name: str, user: str) -> tuple[str, bytes]:
        out = tmp_path / "image.tar"
        return write_archive(
            out, name, [one_layer], ImageConfig(("/usr/bin/run",), user=user)
        ), out.read_bytes()

    assert archive("tidegate:1", "1") == archive("tidegate:1", "1")
    assert archive("tidegate:1", "1")[0] != archive("tidegate:1", "2")[0]
    assert archive("tidegate:1", "1")[0] == archive("tidegate:2", "1")[0]


def test_a_layer_that_is_there_twice_is_kept_once(tmp_path: Path, one_layer: Path) -> None:
    write_archive(
        tmp_path / "image.tar", "tidegate:1", [one_layer, one_layer], ImageConfig(("/usr/bin/run",))
    )
    with tarfile.open(tmp_path / "image.tar") as tar:
        assert sum(name.endswith("layer.tar") for name in tar.getnames()) == 1


@pytest.mark.parametrize(
    ("machine", "word"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_processors_are_called_as_images_call_them(machine: str, word: str) -> None:
    assert architecture(machine) == word
