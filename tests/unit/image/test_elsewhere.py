"""An image for another processor holds nothing of this one, and is compiled by the same Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from image import ROLLUP, build_tools, layers, packages, rootfs
from lab.errors import LabError

X86_64, AARCH64 = 62, 183


def program(place: Path, machine: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little"))


def test_a_library_that_was_built_here_stops_an_image_for_elsewhere(tmp_path: Path) -> None:
    program(tmp_path / "usr/lib/right.so", AARCH64)
    build_tools.refuse_foreign_programs(tmp_path, "aarch64")
    program(tmp_path / "usr/lib/wrong.so", X86_64)
    with pytest.raises(LabError, match=r"1 programs .* usr/lib/wrong\.so \(x86_64\)"):
        build_tools.refuse_foreign_programs(tmp_path, "aarch64")


def test_what_is_no_program_is_for_every_processor(tmp_path: Path) -> None:
    for name, content in {
        "empty": b"",
        "script": b"#!/usr/bin/python3\n",
        "short": b"\x7fELF",
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to("nowhere")
    build_tools.refuse_foreign_programs(tmp_path, "aarch64")


def test_a_processor_without_a_name_here_is_foreign_too(tmp_path: Path) -> None:
    program(tmp_path / "lib.so", 243)
    with pytest.raises(LabError, match="ELF machine 243"):
        build_tools.refuse_foreign_programs(tmp_path, "x86_64")


def python_package(tree: Path, version: str) -> Path:
    control = tree / "var/lib/dpkg/status.d/python3.11-minimal"
    control.parent.mkdir(parents=True)
    control.write_text(f"Package: python3.11-minimal\nVersion: {version}\n")
    return tree


def test_another_version_of_python_does_not_compile_for_it(tmp_path: Path) -> None:
    here = python_package(tmp_path / "here", "3.11.2-6")
    build_tools.refuse_another_python(python_package(tmp_path / "same", "3.11.2-6"), base=here)
    with pytest.raises(LabError, match=r"3\.11\.2-7 .* 3\.11\.2-6"):
        build_tools.refuse_another_python(python_package(tmp_path / "new", "3.11.2-7"), base=here)


def test_wheels_are_asked_for_by_the_image_s_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(packages, "_uv", lambda *words: asked.append(words))
    packages.install_locked(tmp_path, "", work=tmp_path, machine="aarch64")
    (words,) = asked
    assert words[words.index("--python-platform") + 1] == "aarch64-manylinux_2_28"


def test_packages_for_elsewhere_are_checked_before_they_are_a_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "tree" / packages.SITE

    def built_here(*_: object, **__: object) -> None:
        program(site / "fast.so", X86_64)

    monkeypatch.setattr(packages, "install_locked", built_here)
    monkeypatch.setattr(rootfs.cuts, "take_out_the_rest", lambda _: [])
    monkeypatch.setattr(rootfs.cuts, "take_out", lambda *_, **__: None)
    monkeypatch.setattr(build_tools, "compile_modules", lambda *_, **__: None)
    with pytest.raises(LabError, match=r"fast\.so"):
        rootfs.make_packages(tmp_path / "tree", "", work=tmp_path, base=tmp_path, machine="aarch64")


def test_the_image_of_rollups_is_only_built_where_its_java_runs() -> None:
    elsewhere = "aarch64" if packages.MACHINE != "aarch64" else "x86_64"
    with pytest.raises(LabError, match="can only be built on such a machine"):
        ROLLUP.layers(elsewhere)
    assert ROLLUP.layers is layers.rollup_layers
