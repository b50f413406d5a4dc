"""The list of Debian packages that a machine would install does not depend on the name of its
mirror.
"""

from pathlib import Path

import pytest

from lab import packages
from lab.errors import LabError

APT_OUTPUT = """\
'http://mirror.test/debian/pool/main/z/zlib/zlib1g_1.2.13-1_amd64.deb' zlib1g_1.2.13-1_amd64.deb 86684 SHA256:d7dd
'http://mirror.test/debian/pool/main/b/bzip2/libbz2-1.0_1.0.8_amd64.deb' libbz2-1.0_1.0.8_amd64.deb 47348 SHA256:5414
"""


def apt_that_prints(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prints(*_: str, work: Path, **__: object) -> None:
        (work / "apt-get-download.log").write_text(text)

    monkeypatch.setattr(packages, "_apt", prints)


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
