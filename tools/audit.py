"""Ask OSV about every locked Python package, and about all that the images hold: `make audit`.

Python packages come from uv.lock; Debian packages and jars from the images' bills of materials,
which `make image` and `make image-rollup` write. Ends with 0 where everything was asked about and
nothing can be fixed, with 1 where an advisory names a version that fixes it, with 2 where
something could not be asked about: nothing is known of that then, and it says so.
"""

import argparse
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "https://api.osv.dev"
BILLS = ("out/image/sbom.cdx.json", "out/image/rollup-sbom.cdx.json")
DONE, KNOWN, NOT_ASKED = 0, 1, 2
_TIMEOUT_SECONDS = 20
_MOST_QUERIES = 500  # OSV takes 1000
_REBUILT = re.compile(r"\+b[0-9]+$")  # Debian built the same source again


@dataclass(frozen=True, order=True)
class Package:
    """A package as OSV names it."""

    ecosystem: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.ecosystem})"


class UnknownPurl(Exception):
    """A package URL that does not say what it is to OSV."""


class NoAnswer(Exception):
    """The source of advisories gave no usable answer."""


def locked(lock: Path) -> set[Package]:
    """The Python packages of uv.lock, for whatever they are used."""
    found = tomllib.loads(lock.read_text())["package"]
    return {
        Package("PyPI", one["name"], one["version"]) for one in found if "registry" in one["source"]
    }


def named_in(bill: Path) -> tuple[set[Package], list[str], int]:
    """The packages of an image, package URLs that are not known, and how many jars have none."""
    components = json.loads(bill.read_text())["components"]
    named, unknown = set(), []
    for purl in [one["purl"] for one in components if "purl" in one]:
        try:
            named.add(package_of(purl))
        except UnknownPurl:
            unknown.append(purl)
    return named, unknown, sum("purl" not in one for one in components)


def package_of(purl: str) -> Package:
    """What a package URL of our bills is to OSV. Debian's advisories are about source packages.

    Raises UnknownPurl for one of another kind, and for a Debian package without its release.
    """
    try:
        found = PackageURL.from_string(purl)
    except ValueError:
        raise UnknownPurl(purl) from None
    name, version, more = found.name, str(found.version), dict(found.qualifiers or {})
    if found.type == "pypi":
        return Package("PyPI", name, version)
    if found.type == "maven":
        return Package("Maven", ":".join(filter(None, [found.namespace, name])), version)
    if found.type != "deb" or "distro" not in more:
        raise UnknownPurl(purl)
    release = more["distro"].removeprefix("debian-")
    return Package(f"Debian:{release}", more.get("upstream", name), _REBUILT.sub("", version))


def advisories(packages: Sequence[Package], source: str) -> Iterator[tuple[Package, str]]:
    """Each package with the id of each advisory about it. Raises NoAnswer."""
    for start in range(0, len(packages), _MOST_QUERIES):
        batch = packages[start : start + _MOST_QUERIES]
        queries = [
            {"package": {"ecosystem": one.ecosystem, "name": one.name}, "version": one.version}
            for one in batch
        ]
        results = _ask(f"{source}/v1/querybatch", {"queries": queries}).get("results")
        if not isinstance(results, list) or len(results) != len(batch):
            raise NoAnswer(f"{source} answered, but not in the form of OSV")
        for package, result in zip(batch, results, strict=True):
            if "next_page_token" in result:
                raise NoAnswer(f"{source} has more advisories on {package} than it sent")
            yield from ((package, str(one["id"])) for one in result.get("vulns", ()))


def fixed_in(package: Package, advisory: Mapping[str, Any]) -> list[str]:
    """The versions that an advisory says fix the package, in its order: one of each line of them.

    Which is the newest, or the next, each ecosystem says by rules of its own.
    """
    events = [
        event
        for affected in advisory.get("affected", ())
        if affected.get("package", {}).get("ecosystem") == package.ecosystem
        and affected.get("package", {}).get("name") == package.name
        for range_ in affected.get("ranges", ())
        for event in range_.get("events", ())
    ]
    return list(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event))


def audit(root: Path, source: str) -> int:
    """Ask, print what is known, and return the exit code."""
    packages, lacks_a_bill, nameless = locked(root / "uv.lock"), False, 0
    unknown: list[str] = []
    for name in BILLS:
        try:
            named, strange, without = named_in(root / name)
        except FileNotFoundError:
            lacks_a_bill = True
            print(
                f"Not asked about what is in {name}, which is not there: `make image` and "
                "`make image-rollup` write it."
            )
            continue
        packages |= named
        unknown += strange
        nameless += without
    asked = sorted(packages)
    try:
        known = sorted(set(advisories(asked, source)))
        details = {
            one: _ask(f"{source}/v1/vulns/{quote(one)}") for one in {id_ for _, id_ in known}
        }
    except NoAnswer as error:
        print(
            f"No one could be asked about {len(asked)} packages: {error}. Nothing was learned of "
            "any of them. Run it again where the source can be reached."
        )
        return NOT_ASKED
    can_be_fixed = False
    for package, id_ in known:
        fixed = fixed_in(package, details[id_])
        can_be_fixed |= bool(fixed)
        what = f"fixed in {' and in '.join(fixed)}" if fixed else "no version fixes it yet"
        print(f"{package}: {id_}, {what}")
    print(
        f"Asked about {_counted(asked)}: {len(known)} advisories"
        f"{', some of which a newer version fixes' if can_be_fixed else ''}."
    )
    if nameless:
        print(f"Not asked about {nameless} jars that do not say what they are.")
    for purl in unknown:
        print(
            f"Not asked about {purl}: this tool does not know what that is to OSV. Teach it in "
            "tools/audit.py, or correct the bill of materials."
        )
    return KNOWN if can_be_fixed else NOT_ASKED if lacks_a_bill or unknown else DONE


def _counted(packages: Sequence[Package]) -> str:
    ecosystems = sorted({one.ecosystem for one in packages})
    return ", ".join(
        f"{sum(one.ecosystem == each for one in packages)} packages of {each}"
        for each in ecosystems
    )


def _ask(url: str, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:  # HTTP errors are OSErrors
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswer(f"{url} gave no usable answer ({reason})") from error
    if not isinstance(found, dict):
        raise NoAnswer(f"{url} answered, but not in the form of OSV")
    return found


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description="Ask OSV about all that is locked and shipped.")
    options.add_argument("--source", default=SOURCE, help="where OSV's API is")
    options.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    given = options.parse_args()
    return audit(given.root, given.source.rstrip("/"))


if __name__ == "__main__":
    sys.exit(main())
