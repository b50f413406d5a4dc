"""The programs of a release: a registry on loopback, what copies to and from one, and OpenSSL.

All but OpenSSL are Debian's, unpacked and not installed. Logins are those that docker, podman and
Helm share (`~/.docker/config.json`), or such a file's content in REGISTRY_LOGIN.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab import process
from lab.cache import RunDirectory
from lab.errors import LabError
from lab.network import answers, free_port
from lab.packages import GoModule, unpacked
from lab.process import output_of
from tools.release.oci import Layout

REGISTRY = ("docker-registry",)
SKOPEO = ("skopeo", "libgpgme11", "libassuan0", "libgpg-error0", "libdevmapper1.02.1")
_START_TIMEOUT_SECONDS = 30.0
_COPY_TIMEOUT_SECONDS = 1800.0  # some hundred megabytes, through whatever line there is
_ASK_TIMEOUT_SECONDS = 120.0


@contextmanager
def local_registry(htpasswd: str = "") -> Iterator[str]:
    """A registry on a free port of loopback, empty; its host:port. It ends with the context.

    With lines of `user:bcrypt` in `htpasswd`, no one else is let in. Raises `LabError` when it
    does not answer.
    """
    program = unpacked(REGISTRY) / "usr/bin/docker-registry"
    with RunDirectory() as run_directory:
        place = run_directory.path
        address = f"localhost:{free_port()}"
        settings: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(place / "registry")}},
            "http": {"addr": address.replace("localhost", "127.0.0.1")},
        }
        if htpasswd:
            (place / "htpasswd").write_text(htpasswd)
            basic = {"realm": "lab", "path": str(place / "htpasswd")}
            settings["auth"] = {"htpasswd": basic}
        # JSON is YAML
        (place / "registry.yml").write_text(json.dumps(settings))
        with process.start(
            "docker-registry",
            [str(program), "serve", str(place / "registry.yml")],
            log_path=place / "registry.log",
            environment={"OTEL_TRACES_EXPORTER": "none"},
        ) as started:
            process.wait_until(
                lambda: answers(f"http://{address}/v2/"),
                f"the registry on {address}",
                timeout_seconds=_START_TIMEOUT_SECONDS,
                processes=[started],
            )
            yield address


@dataclass(frozen=True)
class Skopeo:
    """Copies between OCI layouts and a registry, digests unchanged.

    `home` is an empty directory for its settings, so that none of this machine's are read.
    `logins` is a docker config.json; without one, nothing is logged in to. `plain_http` is for a
    registry on loopback.
    """

    home: Path
    logins: Path | None = None
    plain_http: bool = False

    def push(self, layout: Layout, reference: str) -> None:
        """Put what `layout` holds, for every processor, to `host/name:tag`. Raises `LabError`."""
        tag = layout.held()["annotations"]["org.opencontainers.image.ref.name"]
        self._run(
            "copy",
            "--all",
            "--preserve-digests",
            *self._tls("--dest-tls-verify"),
            f"oci:{layout.directory}:{tag}",
            f"docker://{reference}",
        )

    def push_archive(self, archive: Path, reference: str) -> None:
        """Put the image of a docker archive to `host/name:tag`. Raises `LabError`."""
        tls = self._tls("--dest-tls-verify")
        self._run("copy", *tls, f"docker-archive:{archive}", f"docker://{reference}")

    def pull(self, reference: str, directory: Path) -> Layout:
        """What a registry has at `host/name:tag` or `host/name@digest`, in a new layout.

        Raises `LabError`.
        """
        directory.mkdir(parents=True)
        self._run(
            "copy",
            "--all",
            "--preserve-digests",
            *self._tls("--src-tls-verify"),
            f"docker://{reference}",
            f"oci:{directory}:pulled",
        )
        return Layout(directory)

    def manifest(self, reference: str) -> bytes | None:
        """The bytes of the manifest or index at `host/name:tag`; None when there is no such tag.

        Raises `LabError` when the registry does not say.
        """
        try:
            return self._run(
                "inspect",
                "--raw",
                *self._tls("--tls-verify"),
                f"docker://{reference}",
                timeout_seconds=_ASK_TIMEOUT_SECONDS,
            ).encode()
        except LabError as failure:
            said = str(failure)
            if "manifest unknown" in said or "name unknown" in said:
                return None
            raise

    def _tls(self, option: str) -> list[str]:
        return [f"{option}={'false' if self.plain_http else 'true'}"]

    def _run(self, *arguments: str, timeout_seconds: float = _COPY_TIMEOUT_SECONDS) -> str:
        content = unpacked(SKOPEO)
        settings, nowhere = self.home / "registries.conf", self.home / "no-logins.json"
        self.home.mkdir(parents=True, exist_ok=True)
        settings.touch()
        nowhere.write_text("{}")
        libraries = sorted({str(path.parent) for path in content.rglob("*.so.*")})
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "CONTAINERS_REGISTRIES_CONF": str(settings),
            "REGISTRY_AUTH_FILE": str(self.logins or nowhere),
        }
        return output_of(
            [
                content / "usr/bin/skopeo",
                "--insecure-policy",  # signatures are checked apart, with the key of the release
                "--registries.d",
                str(self.home),
                *arguments,
            ],
            timeout_seconds=timeout_seconds,
            environment=environment,
        )


def logins(environment: MutableMapping[str, str], folder: Path) -> Path | None:
    """A docker config.json with the logins to registries; None when there is none.

    What REGISTRY_LOGIN has is taken out of `environment`, which programs inherit, and put into a
    file in `folder` that only its owner can read.
    """
    if content := environment.pop(_LOGIN_ENVIRONMENT, "").strip():
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "config.json"
        path.touch(mode=0o600)
        path.write_text(content)
        return path
    home = environment.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
    path = Path(home) / "config.json"
    return path if path.exists() else None


# Signatures with OpenSSL: ECDSA on P-256 over SHA-256, which is what cosign makes with a key of its
# own, so cosign checks them as well.


_CURVE = "prime256v1"
_LOGIN_ENVIRONMENT = "REGISTRY_LOGIN"
_PASSWORD_ENVIRONMENT = "SIGNING_KEY_PASSWORD"  # noqa: S105 - its name
_SIGN_TIMEOUT_SECONDS = 30.0


class SigningKey:
    """A private key in memory; OpenSSL reads it from a file that exists while it runs."""

    def __init__(self, pem: str, *, password: str = "") -> None:
        """Take a key as PEM. Raises `LabError` for anything but one on the curve P-256."""
        self._pem = pem if pem.endswith("\n") else f"{pem}\n"
        self._password = password
        self.public_pem = self._with_key("pkey", "-pubout").decode()
        described = _openssl(["pkey", "-pubin", "-noout", "-text"], self.public_pem.encode())
        if _CURVE not in described.decode():
            raise LabError(
                f"The key is not on the curve P-256 ({_CURVE}), which cosign's signatures need. "
                f"docs/releasing.md has the command that makes one."
            )

    @classmethod
    def made(cls) -> Self:
        """A new key, kept nowhere: for a dry run."""
        options = ["genpkey", "-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{_CURVE}"]
        return cls(_openssl(options, b"").decode())

    @classmethod
    def read(cls, path: str, password_path: str = "") -> Self:
        """The key in a file or a pipe, with the password in another where it has one.

        Both are read to their end, once. Raises `LabError` when there is no key or it is none.
        """
        if not path:
            raise LabError(
                "There is no key to sign with. Name the file or the pipe that has one as PEM: "
                "SIGNING_KEY_FILE=tidegate.key; docs/releasing.md has the command that makes one."
            )
        try:
            pem = Path(path).read_text()
            password = Path(password_path).read_text() if password_path else ""
            return cls(pem, password=password.removesuffix("\n"))
        except (LabError, OSError, UnicodeDecodeError) as failure:
            raise LabError(
                f"What is in SIGNING_KEY_FILE={path} is no key that can sign: {failure}"
            ) from failure

    def sign(self, content: bytes) -> bytes:
        """The signature of `content`, as DER. Raises `LabError`."""
        return self._with_key("dgst", "-sha256", content=content, key_option="-sign")

    def _with_key(self, *arguments: str, content: bytes = b"", key_option: str = "-in") -> bytes:
        asked = ["-passin", f"env:{_PASSWORD_ENVIRONMENT}"]
        with tempfile.NamedTemporaryFile("w", prefix="tidegate-key-", suffix=".pem") as file:
            file.write(self._pem)  # the file is readable for its owner alone
            file.flush()
            return _openssl(
                [*arguments, *asked, key_option, file.name], content, password=self._password
            )


# cosign's own library, as a judge of what OpenSSL signed. Its module's files pin what is built.


COSIGN_VERSION = "v2.6.5"  # the newest that checks the form of cosign 2 as its own
COSIGN = GoModule(
    program="cosign-check",
    directory=Path(__file__).parent / "cosign_check",
    package="./",
    title="the check of signatures by cosign's library",
    takes="two to three minutes",
    packages_compiled=680,
)


def checked_by_cosign(references: Sequence[str], public_pem: str, *, folder: Path) -> list[str]:
    """The digests of images and charts whose signatures cosign finds good.

    `folder` is an empty one, with a config.json where logins are needed. Raises `LabError` with the
    first that cosign refuses.
    """
    key = folder / "key.pem"
    key.write_text(public_pem)
    return output_of(
        [COSIGN.binary(), key, *references],
        timeout_seconds=_ASK_TIMEOUT_SECONDS,
        environment={**os.environ, "DOCKER_CONFIG": str(folder)},
    ).splitlines()


def is_signed(content: bytes, signature: bytes, *, public_pem: str) -> bool:
    """Whether this is a signature of `content` by the owner of the public key."""
    with tempfile.TemporaryDirectory(prefix="tidegate-verify-") as folder:
        key, signed = Path(folder) / "key.pem", Path(folder) / "signature"
        key.write_text(public_pem)
        signed.write_bytes(signature)
        options = ["dgst", "-sha256", "-verify", str(key), "-signature", str(signed)]
        try:
            _openssl(options, content)
        except LabError:
            return False
    return True


def _openssl(arguments: Sequence[str], content: bytes, *, password: str = "") -> bytes:
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            env={**os.environ, _PASSWORD_ENVIRONMENT: password},
            input=content,
            capture_output=True,
            timeout=_SIGN_TIMEOUT_SECONDS,
        )
    except FileNotFoundError:
        raise LabError(
            "openssl is not on this machine, and signs what is released: `apt-get install openssl`."
        ) from None
    except subprocess.TimeoutExpired:
        raise LabError(
            f"openssl {arguments[0]} had not ended after {_SIGN_TIMEOUT_SECONDS:g} s."
        ) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise LabError(
            f"openssl {arguments[0]} ended with code {done.returncode}: {said[-1] if said else ''}"
        )
    return done.stdout
