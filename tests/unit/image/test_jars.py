"""A jar in the bill of materials: by its name, by what it says of itself, by its hashes."""

from __future__ import annotations

import hashlib
import io
import zipfile

import pytest

from image.bill import jar


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
        ("netty-transport-native-epoll-4.2.13.Final-linux-x86_64.jar", "netty-transport-native-epoll", "4.2.13.Final-linux-x86_64"),
        ("nameless.jar", "nameless", ""),
    ],
)
def test_name_and_version_are_those_of_the_file(file_name: str, name: str, version: str) -> None:
    found = jar(file_name, packed())
    assert (found.name, found.version) == (name, version)


def test_its_hashes_are_those_of_the_file() -> None:
    content = packed("a")
    found = jar("a-1.jar", content)
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert found.sha1 == hashlib.sha1(content, usedforsecurity=False).hexdigest()


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
    assert jar("guava-1.jar", packed(*names)).group == group
