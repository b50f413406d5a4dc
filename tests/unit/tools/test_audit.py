"""`make audit`: what OSV is asked about, when it fails, and what it says when no one can be asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.audit import BILLS, DONE, KNOWN, NOT_ASKED, Package, audit, package_of

LOCK = """
[[package]]
name = "kazoo"
version = "2.11.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "tidegate"
version = "0.1.0"
source = { editable = "." }
"""
OPENSSL = (
    "pkg:deb/debian/libssl3@3.0.16-1~deb12u1%2Bb2?arch=amd64&distro=debian-12&upstream=openssl"
)
SPARK = "pkg:maven/org.apache.spark/spark-core_2.13@4.1.0"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A lock and the bills of both images."""
    (tmp_path / "uv.lock").write_text(LOCK)
    for name, components in zip(
        BILLS, ([{"purl": OPENSSL}], [{"purl": SPARK}, {"name": "nameless"}]), strict=True
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"components": components}))
    return tmp_path


@contextmanager
def osv(known: dict[str, dict[str, Any]], *, says: bytes | None = None) -> Iterator[str]:
    """OSV, which knows these advisories by the name of the package."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            names = [query["package"]["name"] for query in asked]
            self._answer({"results": [{"vulns": [known[n]]} if n in known else {} for n in names]})

        def do_GET(self) -> None:
            self._answer(next(one for one in known.values() if self.path.endswith(one["id"])))

        def _answer(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode() if says is None else says
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def advisory(package: Package, *fixed: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, *({"fixed": one} for one in fixed)]
    named = {"ecosystem": package.ecosystem, "name": package.name}
    affected = [{"package": named, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
    return {"id": f"TEST-{package.name}", "affected": affected}


@pytest.mark.parametrize(
    ("purl", "package"),
    [
        (OPENSSL, Package("Debian:12", "openssl", "3.0.16-1~deb12u1")),
        (
            "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?arch=amd64&distro=debian-12&upstream=zlib",
            Package("Debian:12", "zlib", "1:1.2.13.dfsg-1"),
        ),
        (
            "pkg:deb/debian/tzdata@2025b-0%2Bdeb12u1?arch=all&distro=debian-12",
            Package("Debian:12", "tzdata", "2025b-0+deb12u1"),
        ),
        (SPARK, Package("Maven", "org.apache.spark:spark-core_2.13", "4.1.0")),
        ("pkg:pypi/typing-extensions@4.16.0", Package("PyPI", "typing-extensions", "4.16.0")),
    ],
)
def test_packages_have_the_names_by_which_advisories_are_filed(purl: str, package: Package) -> None:
    assert package_of(purl) == package


def test_everything_is_asked_about_and_nothing_is_known(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with osv({}) as source:
        assert audit(checkout, source) == DONE
    assert capsys.readouterr().out == (
        "Asked about 1 packages of Debian:12, 1 packages of Maven, 1 packages of PyPI: "
        "0 advisories.\nNot asked about 1 jars that do not say what they are.\n"
    )


@pytest.mark.parametrize(
    ("fixed", "code", "said"),
    [
        (["3.0.17-1~deb12u2"], KNOWN, "TEST-openssl, fixed in 3.0.17-1~deb12u2\n"),
        (["3.10", "3.9", "3.9"], KNOWN, "TEST-openssl, fixed in 3.10 and in 3.9\n"),
        ([], DONE, "TEST-openssl, no version fixes it yet\n"),
    ],
)
def test_it_fails_for_what_a_newer_version_fixes_and_lists_the_rest(
    checkout: Path, capsys: pytest.CaptureFixture[str], fixed: list[str], code: int, said: str
) -> None:
    openssl = Package("Debian:12", "openssl", "3.0.16-1~deb12u1")
    with osv({"openssl": advisory(openssl, *fixed)}) as source:
        assert audit(checkout, source) == code
    assert f"openssl 3.0.16-1~deb12u1 (Debian:12): {said}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "purl", ["pkg:golang/example.com/x@v1.0", "pkg:deb/debian/bash@5.2", "no purl at all"]
)
def test_a_package_url_that_is_not_known_is_named_and_was_not_asked_about(
    checkout: Path, capsys: pytest.CaptureFixture[str], purl: str
) -> None:
    (checkout / BILLS[0]).write_text(json.dumps({"components": [{"purl": purl}]}))
    with osv({}) as source:
        assert audit(checkout, source) == NOT_ASKED
    assert f"Not asked about {purl}: " in capsys.readouterr().out


def test_an_image_that_was_not_built_was_not_asked_about(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / BILLS[1]).unlink()
    with osv({}) as source:
        assert audit(checkout, source) == NOT_ASKED
    assert (
        "Not asked about what is in out/image/rollup-sbom.cdx.json, which is not there: "
        "`make image` and `make image-rollup` write it." in capsys.readouterr().out
    )


@pytest.mark.parametrize("says", [b"<html>log in</html>", b'{"results": []}', b"[]"])
def test_an_answer_that_is_none_teaches_nothing(
    checkout: Path, capsys: pytest.CaptureFixture[str], says: bytes
) -> None:
    with osv({}, says=says) as source:
        assert audit(checkout, source) == NOT_ASKED
    assert capsys.readouterr().out.startswith("No one could be asked about 3 packages: ")


def test_it_says_so_where_no_one_can_be_asked(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with osv({}) as gone:
        pass
    assert audit(checkout, gone) == NOT_ASKED
    said = capsys.readouterr().out
    assert said.startswith(f"No one could be asked about 3 packages: {gone}/v1/querybatch gave no")
    assert said.endswith(
        "Nothing was learned of any of them. Run it again where the source can be reached.\n"
    )
