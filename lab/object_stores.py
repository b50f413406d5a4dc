"""Object stores on loopback: S3 by moto, Google's by fake-gcs-server, Azure's by Azurite.

Each keeps its objects in memory, takes any login of its own, and is there within seconds. moto is
Python with packages of its own, so that none of them is in the product's environment.
"""

import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import cache, process
from lab.cache import RunDirectory
from lab.errors import LabError, say
from lab.network import answers, free_port
from lab.packages import GoModule, uv
from lab.process import wait_until

FILES = Path(__file__).parent / "object_store_files"
BUCKET = "usage"
_START_TIMEOUT_SECONDS = 120
_INSTALL_TIMEOUT_SECONDS = 600
_REQUEST_TIMEOUT_SECONDS = 10

FAKE_GCS = GoModule(
    program="fake-gcs-server",
    directory=FILES / "gcs_binary",
    package="github.com/fsouza/fake-gcs-server",
    title="fake-gcs-server",
    takes="two minutes",
    packages_compiled=700,
)

# Azurite's own account, which its documentation names; no secret.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class ObjectStore:
    """One that runs: the address of a new prefix for tables, and the variables that it needs.

    `endpoint` is its own address; `files` is the opened file system where an address does not do.
    """

    name: str
    endpoint: str
    address: Callable[[str], str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Any = None


@contextmanager
def s3(host: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """moto's S3 at `host`, with the bucket `usage`."""
    packages = moto()
    environment = {
        "AWS_ACCESS_KEY_ID": "tidegate",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-lab",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    argv = [sys.executable, "-m", "moto.server", "-H", host]
    found = {"PYTHONPATH": str(packages)}
    with _running("moto", argv, environment=found, probe="/", host=host) as endpoint:
        _request("PUT", f"{endpoint}/{BUCKET}", headers=_MOTO_LOGIN)
        yield ObjectStore(
            "S3",
            endpoint,
            lambda prefix: f"s3://{BUCKET}/{prefix}",
            {**environment, "AWS_ENDPOINT_URL": endpoint},
        )


@contextmanager
def gcs() -> Iterator[ObjectStore]:
    """fake-gcs-server, with the bucket `usage`."""
    argv = [str(FAKE_GCS.binary()), "-scheme=http", "-host=127.0.0.1", "-backend=memory"]
    with _running("fake-gcs-server", argv, probe="/storage/v1/b?project=lab") as endpoint:
        body = f'{{"name": "{BUCKET}"}}'.encode()
        url = f"{endpoint}/storage/v1/b?project=lab"
        _request("POST", url, body, headers={"Content-Type": "application/json"})
        host = endpoint.partition("://")[2]
        yield ObjectStore(
            "GCS",
            endpoint,
            lambda prefix: f"gs://anonymous@{BUCKET}/{prefix}?scheme=http&endpoint_override={host}",
        )


@contextmanager
def azure() -> Iterator[ObjectStore]:
    """Azurite's blobs, with the container `usage`."""
    import pyarrow.fs

    script = azurite() / "node_modules/azurite/dist/src/blob/main.js"
    argv = ["node", str(script), "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]
    argv += ["--blobHost", "127.0.0.1", "--disableTelemetry"]
    with _running("azurite", argv, port_option="--blobPort", probe="/") as endpoint:
        authority = endpoint.partition("://")[2]
        options = {
            "blob_storage_authority": authority,
            "dfs_storage_authority": authority,
            "blob_storage_scheme": "http",
            "dfs_storage_scheme": "http",
        }
        files = pyarrow.fs.AzureFileSystem(_AZURE_ACCOUNT, account_key=_AZURE_KEY, **options)
        files.create_dir(BUCKET)
        # pyarrow takes an account's key from no URL, so the file system comes opened
        host = f"{_AZURE_ACCOUNT}.dfs.core.windows.net"
        yield ObjectStore(
            "Azure", endpoint, lambda prefix: f"abfss://{BUCKET}@{host}/{prefix}", files=files
        )


def moto() -> Path:
    """The directory with moto and what it imports, downloaded when the cache has none."""
    return python_packages("moto", FILES / "moto.txt")


def azurite() -> Path:
    """The directory with Azurite, downloaded with npm when the cache has none."""
    pins = [FILES / "azurite" / name for name in ("package.json", "package-lock.json")]
    key = [one.read_bytes() for one in pins]
    return cache.entry("azurite", key, build=lambda content: _install_azurite(pins, content))


def python_packages(name: str, pins: Path) -> Path:
    """The directory `name` with what the file pins, and nothing else, for this interpreter."""
    # compiled, for a Python that did so later would change the entry, which is then rebuilt
    key: list[str | bytes] = [pins.read_bytes(), sys.version, "compiled"]
    return cache.entry(name, key, build=lambda content: _install(pins, content))


def _install(pins: Path, content: Path) -> None:
    say(pins.stem, f"downloading {pins.stem} and what it imports")
    target = ["--target", str(content), "--python", sys.executable, "--link-mode", "copy"]
    install = [str(uv()), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    process.output_of(
        [*install, "--compile-bytecode", *target, "--requirement", str(pins)],
        timeout_seconds=_INSTALL_TIMEOUT_SECONDS,
    )


def _install_azurite(pins: Sequence[Path], content: Path) -> None:
    if shutil.which("npm") is None:
        raise LabError("Azurite cannot be had: npm is not on this machine (Debian: nodejs, npm).")
    say("azurite", "downloading Azurite with npm, about 190 MB unpacked")
    for one in pins:
        shutil.copy(one, content)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
    process.output_of(install, timeout_seconds=_INSTALL_TIMEOUT_SECONDS, working_directory=content)


@contextmanager
def _running(
    name: str,
    argv: Sequence[str],
    *,
    probe: str,
    port_option: str = "-port",
    environment: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[str]:
    """Start it on a free port; its address once it answers there."""
    port = free_port(host)
    endpoint = f"http://{host}:{port}"
    option = "-p" if name == "moto" else port_option
    with (
        RunDirectory() as run,
        process.start(
            name,
            [*argv, option, str(port)],
            log_path=run.path / f"{name}.log",
            environment=environment or {},
            working_directory=run.path,
        ) as server,
    ):
        wait_until(
            lambda: answers(f"{endpoint}{probe}"),
            f"{name} to answer",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[server],
        )
        yield endpoint


def _request(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> None:
    asked = urllib.request.Request(url, body, dict(headers or {}), method=method)
    urllib.request.urlopen(asked, timeout=_REQUEST_TIMEOUT_SECONDS).close()


# moto reads the region out of a signature and looks at nothing else of it.
_MOTO_LOGIN = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=tidegate/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=00"
}
