"""The list of Debian packages that a machine would install does not depend on the name of its
mirror.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import packages
from lab.errors import LabError

APT_OUTPUT = """\
'http://mirror.test/debian/pool/main/z/zlib/zlib1g_1.2.13-1_amd64.deb' zlib1g_1.2.13-1_amd64.deb 86684 SHA256:d7dd
'http://mirror.test/debian/pool/main/b/bzip2/libbz2-1.0_1.0.8_amd64.deb' libbz2-1.0_1.0.8_amd64.deb 47348 SHA256:5414
"""


def apt_that_prints(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_apt", lambda *_, **__: text)


def test_versions_and_hashes_are_given_in_one_order_whatever_the_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = ["libbz2-1.0_1.0.8_amd64.deb SHA256:5414", "zlib1g_1.2.13-1_amd64.deb SHA256:d7dd"]
    for mirror, text in (
        ("mirror.test", APT_OUTPUT),
        ("other.test", "".join(reversed(APT_OUTPUT.splitlines(keepends=True)))),
    ):
        apt_that_prints(text.replace("mirror.test", mirror), monkeypatch)
        assert packages.offered(["zlib1g", "libbz2-1.0"]) == expected


def test_a_machine_without_package_lists_has_only_the_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: str, **__: object) -> None:
        raise LabError("no lists")

    monkeypatch.setattr(packages, "_apt", fails)
    assert packages.offered(["zlib1g"]) == ["zlib1g"]


def test_for_another_processor_apt_reads_lists_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Sequence[str]]] = []

    def prints(*words: str, work: Path, options: Sequence[str]) -> str:
        calls.append((words[0], options))
        return APT_OUTPUT.replace("amd64", "riscv")

    monkeypatch.setattr(packages, "_apt", prints)
    found = packages.offered(["zlib1g", "libbz2-1.0"], machine="riscv")
    assert [name for name, _ in calls] == ["update", "download"]
    assert {"APT::Architecture=riscv", "APT::Architectures=riscv"} <= set(calls[1][1])
    assert found[1] == "zlib1g_1.2.13-1_riscv.deb SHA256:d7dd"


def test_without_lists_for_another_processor_nothing_is_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: str, **__: object) -> None:
        raise LabError("no lists")

    monkeypatch.setattr(packages, "_apt", fails)
    with pytest.raises(LabError, match="no lists"):
        packages.offered(["zlib1g"], machine="riscv")


GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.99; exit; fi
said="$*"
while [ "$1" != -o ]; do shift; done
echo "$said" > "$2"
"""


def test_one_source_is_built_once_for_each_file_of_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    (source / "cmd").mkdir(parents=True)
    for name in ("go.mod", "go.sum", "old.mod", "old.sum", "cmd/main.go"):
        (source / name).write_text("")

    def built(pins: str) -> Path:
        module = packages.GoModule(
            "program", source, "./cmd", "a program", "building", packages_compiled=1, pins=pins
        )
        return module.binary()

    newest, oldest = built("go.mod"), built("old.mod")
    assert "-modfile" not in newest.read_text()
    assert "-modfile=old.mod" in oldest.read_text().split()
    (source / "old.sum").write_text("another hash")
    assert built("old.mod") != oldest
    assert built("go.mod") == newest
