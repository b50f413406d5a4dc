"""The image's bill of materials as CycloneDX, for scanners and auditors.

It has every Debian and Python package and every jar in the image's layers. It is read from the
layers themselves, so it names what is in them and not what was meant to be. The same image has the
same bill.
"""

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from io import BytesIO
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from image.layers import BuiltImage
from lab.errors import LabError

_NAME = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)")
_COORDINATES = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")


def _group(name: str, content: bytes) -> str:
    """Empty where the jar does not name it, or where it holds other jars and names several."""
    with zipfile.ZipFile(BytesIO(content)) as packed:
        named = [found for entry in packed.namelist() if (found := _COORDINATES.fullmatch(entry))]
    groups = {found["group"] for found in named if found["name"] == name}
    return groups.pop() if len(groups) == 1 else ""


# as the image's own date: when it was written down is not part of it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEBIAN = re.compile(r"var/lib/dpkg/status\.d/[^/]+")
_PYTHON = re.compile(r".*/dist-packages/[^/]+\.dist-info/METADATA")
_JAR = re.compile(r".*/(?P<name>[^/]+\.jar)")
_LICENCE_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST_LICENCE_NAME = 80  # some packages put the whole text where the name belongs


def write_bill(image: BuiltImage, out: Path) -> int:
    """Write the bill of `image` as CycloneDX 1.6 JSON; return how many packages it names.

    Raises `LabError` if CycloneDX refuses it.
    """
    components = [component for layer in image.layers for component in _components(layer.tar)]
    text = _document(image, components)
    refused = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if refused is not None:
        raise LabError(
            f"The bill of materials is no valid CycloneDX 1.6, so it was not written: {refused}"
        )
    out.write_text(text)
    return len(components)


def debian_component(control: Message) -> Component:
    """A package from its control file.

    `upstream` names the source package, by which advisories are filed.
    """
    name, version, architecture = (
        str(control["Package"]),
        str(control["Version"]),
        str(control["Architecture"]),
    )
    qualifiers = {"arch": architecture, "distro": "debian-12"}
    source = str(control.get("Source", name)).split(" ")[0]
    if source != name:
        qualifiers["upstream"] = source
    purl = PackageURL("deb", "debian", name, version, qualifiers)
    return _component(name, version, purl, str(control["Description"]))


def python_component(metadata: Message) -> Component:
    """A package from its METADATA, with its licence where it declares one in few words."""
    name, version = str(metadata["Name"]), str(metadata["Version"])
    purl = PackageURL("pypi", None, re.sub(r"[-_.]+", "-", name).lower(), version)
    licence = _licence(metadata)
    return _component(name, version, purl, str(metadata.get("Summary", "")), licence=licence)


def jar_component(file_name: str, content: bytes) -> Component:
    """A jar from its file `NAME-VERSION.jar`, by its coordinates where it names them, and by its
    hashes, by which scanners know those that do not.

    `version` is empty where the file name has none. Raises `BadZipFile` for another file.
    """
    stem = file_name.removesuffix(".jar")
    named = _NAME.fullmatch(stem)
    name, version = (named["name"], named["version"]) if named else (stem, "")
    group = _group(name, content)
    sha256 = hashlib.sha256(content).hexdigest()
    sha1 = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return Component(
        name=name,
        group=group or None,
        version=version or None,
        type=ComponentType.LIBRARY,
        bom_ref=f"jar:{sha256}",
        purl=PackageURL("maven", group, name, version) if group else None,
        hashes=[
            HashType(alg=HashAlgorithm.SHA_1, content=sha1),
            HashType(alg=HashAlgorithm.SHA_256, content=sha256),
        ],
    )


def _components(layer: Path) -> Iterator[Component]:
    with tarfile.open(layer) as tar:
        for member in tar:
            made = (
                debian_component
                if _DEBIAN.fullmatch(member.name)
                else python_component
                if _PYTHON.fullmatch(member.name)
                else None
            )
            content = tar.extractfile(member) if made else None
            if made and content:
                yield made(BytesParser().parse(content, headersonly=True))
            elif (named := _JAR.fullmatch(member.name)) and (packed := tar.extractfile(member)):
                yield jar_component(named["name"], packed.read())


def _component(
    name: str, version: str, purl: PackageURL, description: str, *, licence: License | None = None
) -> Component:
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        description=description.splitlines()[0] if description else None,
        licenses=[licence] if licence else [],
    )


def _licence(metadata: Message) -> License | None:
    classifiers = [
        value.removeprefix(_LICENCE_CLASSIFIER)
        for value in metadata.get_all("Classifier", [])
        if value.startswith(_LICENCE_CLASSIFIER)
    ]
    declared = [metadata.get("License-Expression"), metadata.get("License"), *classifiers]
    short = [
        str(words)
        for words in declared
        if words and len(str(words)) <= _LONGEST_LICENCE_NAME and "\n" not in str(words)
    ]
    return LicenseFactory().make_from_string(short[0]) if short else None


def _document(image: BuiltImage, components: list[Component]) -> str:
    repository, _, version = image.name.partition(":")
    described = Component(
        name=repository, version=version, type=ComponentType.CONTAINER, bom_ref=image.name
    )
    described.properties.add(Property(name="tidegate:image:id", value=image.digest))
    bom = Bom(
        components=components,
        serial_number=uuid5(NAMESPACE_OID, image.digest),
        metadata=BomMetaData(component=described, timestamp=_EPOCH),
    )
    bom.register_dependency(described, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
