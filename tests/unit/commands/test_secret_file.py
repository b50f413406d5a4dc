"""Credentials come out of a file as they would come out of the Secret, and never into an error message."""

from pathlib import Path

import pytest

from tidegate.commands.context import read_secret_file
from tidegate.errors import NeedsMending

SECRET = "kind: Secret\napiVersion: v1\ndata: {username: YWxpY2U=}\nstringData: {password: hush}\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("username: alice\npassword: hush\n", {"username": b"alice", "password": b"hush"}),
        (SECRET, {"username": b"alice", "password": b"hush"}),
    ],
    ids=["plain", "a Secret"],
)
def test_both_forms_give_the_same_values(text: str, values: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(text)
    assert read_secret_file(tmp_path / "credentials") == values


def test_no_file_means_no_credentials() -> None:
    assert read_secret_file(None) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("password: 12345\n", "not text: password"),
        ("hush-hush\n", "must be a YAML object"),
        ("{hush", "is not YAML"),
        ("kind: Secret\ndata: {password: hush!}\n", "not base64"),
        (None, "cannot be read"),
    ],
    ids=["number", "no object", "no YAML", "no base64", "missing"],
)
def test_what_is_wrong_is_said_without_the_secret(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NeedsMending) as caught:
        read_secret_file(path)
    assert said in caught.value.message
    assert str(path) in caught.value.message
    assert "hush" not in caught.value.message
    assert "12345" not in caught.value.message
