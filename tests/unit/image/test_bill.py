"""The bill of materials: packages and jars are named as scanners and advisories name them, and
CycloneDX's own validator agrees.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from image.bill import debian_component, jar_component, python_component, write_bill
from image.layers import BuiltImage, Layer

# --- packages -------------------------------------------------------------------------------------
# Packages are named as scanners and advisories name them, and CycloneDX's own validator agrees.


CONTROL = (
    "Package: libc6\nSource: glibc (2.36-9)\nVersion: 1:2.36-9+deb12u1\nArchitecture: "
    "amd64\nDescription: C library\n more of it\n"
)
METADATA = (
    "Name: Typing_Extensions\nVersion: 4.16.0\nSummary: Backports\nLicense-Expression: "
    "PSF-2.0\n\nNot a header\n"
)


def layer(place: Path, files: dict[str, str]) -> Layer:
    with tarfile.open(place / "layer.tar", "w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return Layer("base", place / "layer.tar", "aa", 0, 0, ())


def image(place: Path) -> BuiltImage:
    site = "usr/local/lib/python3.11/dist-packages"
    files = {
        "var/lib/dpkg/status.d/libc6": CONTROL,
        f"{site}/typing_extensions-4.16.0.dist-info/METADATA": METADATA,
        f"{site}/other/METADATA": "no package",
        "usr/share/doc/libc6/copyright": "no package",
    }
    return BuiltImage(place / "image.tar", "tidegate:0.1.0", "sha256:aa", (layer(place, files),))


def test_a_debian_package_names_its_source_by_which_advisories_are_filed() -> None:
    component = debian_component(message_from_string(CONTROL))
    assert (
        str(component.purl)
        == "pkg:deb/debian/libc6@1:2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=glibc"
    )
    assert component.description == "C library"


def test_a_python_package_is_named_as_the_index_names_it() -> None:
    assert (
        str(python_component(message_from_string(METADATA)).purl)
        == "pkg:pypi/typing-extensions@4.16.0"
    )


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ("License-Expression: MIT AND Apache-2.0\n", "MIT AND Apache-2.0"),
        ("License: MIT\n", "MIT"),
        (
            f"License: {'a whole text ' * 20}\nClassifier: License :: OSI Approved :: MIT "
            f"License\n",
            "MIT License",
        ),
        ("Classifier: Framework :: AsyncIO\n", None),
    ],
)
def test_a_licence_is_named_where_it_is_declared_in_few_words(
    headers: str, licence: str | None
) -> None:
    component = python_component(message_from_string(f"Name: a\nVersion: 1\n{headers}"))
    named = [
        getattr(found, "value", None) or found.id or found.name for found in component.licenses
    ]
    assert named == ([licence] if licence else [])


def test_the_bill_names_every_package_and_nothing_else_and_is_the_same_each_time(
    tmp_path: Path,
) -> None:
    built = image(tmp_path)
    assert write_bill(built, tmp_path / "one.json") == 2
    write_bill(built, tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    document = json.loads((tmp_path / "one.json").read_text())
    assert [component["name"] for component in document["components"]] == [
        "Typing_Extensions",
        "libc6",
    ]
    assert document["metadata"]["component"]["name"] == "tidegate"


# --- jars -----------------------------------------------------------------------------------------
# A jar in the bill of materials: by its name, by what it says of itself, by its hashes.


def packed(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return content.getvalue()


@pytest.mark.parametrize(
    ("file_name", "name", "version"),
    [
        ("guava-33.6.0-jre.jar", "guava", "33.6.0-jre"),
        ("spark-core_2.13-4.3.0.jar", "spark-core_2.13", "4.3.0"),
        ("log4j-slf4j2-impl-2.25.4.jar", "log4j-slf4j2-impl", "2.25.4"),
        (
            "netty-transport-native-epoll-4.2.13.Final-linux-x86_64.jar",
            "netty-transport-native-epoll",
            "4.2.13.Final-linux-x86_64",
        ),
        ("nameless.jar", "nameless", ""),
    ],
)
def test_name_and_version_are_those_of_the_file(file_name: str, name: str, version: str) -> None:
    found = jar_component(file_name, packed())
    assert (found.name, found.version or "") == (name, version)


def test_its_hashes_are_those_of_the_file() -> None:
    content = packed("a")
    found = jar_component("a-1.jar", content)
    sha1 = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    assert {one.content for one in found.hashes} == {hashlib.sha256(content).hexdigest(), sha1}


@pytest.mark.parametrize(
    ("names", "group"),
    [
        (["META-INF/maven/com.google.guava/guava/pom.properties"], "com.google.guava"),
        (["META-INF/maven/a/inner/pom.properties", "META-INF/maven/b/guava/pom.properties"], "b"),
        (["META-INF/maven/a/inner/pom.properties"], ""),
        (["META-INF/maven/a/guava/pom.properties", "META-INF/maven/b/guava/pom.properties"], ""),
        ([], ""),
    ],
)
def test_its_group_is_named_only_where_it_is_sure(names: list[str], group: str) -> None:
    found = jar_component("guava-1.jar", packed(*names))
    purl = f"pkg:maven/{group}/guava@1" if group else None
    assert (found.group or "", found.purl and str(found.purl)) == (group, purl)
