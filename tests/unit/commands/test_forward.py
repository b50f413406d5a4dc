"""`tidegate forward`: what it says before it starts, and the logins that it makes of its options."""

import io
import sys
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.commands.forward import Login, _client
from tidegate.commands.inputs import named_brokers
from tidegate.commands.options import AccessOptions
from tidegate.errors import InvalidResource, Unreachable
from tidegate.kafka.settings import TokenLogin
from tidegate.observe.connections import brokers_connection

BROKERS = ("--bootstrap-servers", "b:9092")


def said(*arguments: str) -> str:
    err = io.StringIO()
    assert main(["forward", *arguments], CommandContext(out=io.StringIO(), err=err)) == 1
    return " ".join(err.getvalue().split())


def test_without_the_library_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidegate.forwarder")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    message = said("--prefix", "shop", *BROKERS)
    assert "pip install 'tidegate[forwarder]'" in message
    assert "confluent_kafka" in message


@pytest.mark.parametrize("prefix", ["", "a b", "a/b", "x" * 240])
def test_a_prefix_must_fit_into_a_topics_name(prefix: str) -> None:
    assert "--prefix" in said("--prefix", prefix, *BROKERS)


def test_brokers_are_required() -> None:
    assert "--bootstrap-servers is required" in said("--prefix", "shop")


def mounted(folder: Path, **keys: str) -> Path:
    """A Secret, as Kubernetes mounts it."""
    (folder / "..data").mkdir()
    for name, value in keys.items():
        (folder / name).write_text(value)
    return folder


def test_a_mounted_secret_is_a_login(tmp_path: Path) -> None:
    folder = mounted(tmp_path, password="hunter2")
    access = AccessOptions(bootstrap_servers="b:9092", client_credentials_file=folder)
    found = _client(access, tmp_path / "files", Login.SCRAM_SHA_256, "shop", tls=True)
    assert found == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "shop",
        "sasl.password": "hunter2",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_a_mounted_certificate_is_a_login_without_password(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    folder = mounted(tmp_path / "secret", **{"ca.crt": "CA", "tls.crt": "CRT", "tls.key": "KEY"})
    access = AccessOptions(bootstrap_servers="b:9092", client_credentials_file=folder)
    found = _client(access, tmp_path / "files", Login.SCRAM_SHA_512, None, tls=False)
    assert found["security.protocol"] == "SSL"
    files = {key: Path(str(found[f"ssl.{key}.location"])) for key in ("ca", "certificate", "key")}
    assert {key: file.read_text() for key, file in files.items()} == {
        "ca": "CA",
        "certificate": "CRT",
        "key": "KEY",
    }
    assert all(file.stat().st_mode & 0o077 == 0 for file in files.values())


def test_tokens_come_from_the_mounted_secret_and_the_options(tmp_path: Path) -> None:
    folder = mounted(tmp_path, clientSecret="hunter2")
    access = AccessOptions(bootstrap_servers="b:9092", client_credentials_file=folder)
    further = ["tokenEndpointUri=https://127.0.0.1:1/token", "clientId=forwarder"]
    with pytest.raises(Unreachable, match=r"https://127\.0\.0\.1:1/token") as away:
        _client(access, tmp_path / "files", Login.PLAIN, None, tls=False, further=further)
    assert "hunter2" not in away.value.message


def test_a_mounted_token_is_read_again_each_time(tmp_path: Path) -> None:
    folder = mounted(tmp_path, token="first")
    access = AccessOptions(bootstrap_servers="b:9092", client_credentials_file=folder)
    spec, secrets = named_brokers(None, access)
    found = _client(access, tmp_path / "files", Login.PLAIN, None, tls=False)
    assert (found["security.protocol"], found["sasl.mechanism"]) == (
        "SASL_SSL",
        "OAUTHBEARER",
    )
    assert "first" not in repr(found)
    login = brokers_connection(spec, secrets, tmp_path / "files").sasl
    assert isinstance(login, TokenLogin)
    assert login.tokens.current().value == "first"
    (folder / "token").write_text("second")
    login.tokens.forget()
    assert login.tokens.current().value == "second"


def test_an_option_of_a_login_is_a_key_with_a_value(tmp_path: Path) -> None:
    with pytest.raises(InvalidResource, match="KEY=VALUE"):
        _client(AccessOptions(), tmp_path, Login.PLAIN, None, tls=False, further=["clientId"])


def test_without_credentials_the_connection_is_plain(tmp_path: Path) -> None:
    access = AccessOptions(bootstrap_servers="b:9092")
    assert _client(access, tmp_path, Login.PLAIN, None, tls=False)["security.protocol"] == (
        "PLAINTEXT"
    )
