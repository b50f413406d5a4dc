"""Credentials from a file, for when there is no Kubernetes to read the policy's Secret from.

The file is YAML with the keys and plain values of the Secret, or the Secret itself as `kubectl get secret -o yaml` prints it.
Values are never shown, in errors neither.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import yaml

from controller_logic.reasons import Reason
from tidegate.errors import NeedsMending

SecretData = Mapping[str, bytes]


def read_secret_file(path: Path | None) -> SecretData:
    """The keys and decoded values; empty without a file. Raises NeedsMending naming the file and what must hold."""
    if path is None:
        return {}
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"cannot be read ({error})") from error
    except yaml.YAMLError:
        raise _unreadable(path, "is not YAML") from None
    if not isinstance(document, dict):
        raise _unreadable(path, "must be a YAML object of keys and values, such as `username: tidegate`")
    if document.get("kind") == "Secret":
        return _secret_values(path, document)
    return _encoded(_texts(path, document))


def _secret_values(path: Path, secret: Mapping[str, object]) -> SecretData:
    encoded, plain = secret.get("data") or {}, secret.get("stringData") or {}
    if not isinstance(encoded, dict) or not isinstance(plain, dict):
        raise _unreadable(path, "is a Secret whose data is not an object")
    try:
        decoded = {key: base64.b64decode(value, validate=True) for key, value in _texts(path, encoded).items()}
    except binascii.Error:
        raise _unreadable(path, "is a Secret with a value that is not base64") from None
    return {**decoded, **_encoded(_texts(path, plain))}


def _encoded(values: Mapping[str, str]) -> SecretData:
    return {key: value.encode() for key, value in values.items()}


def _texts(path: Path, values: Mapping[str, object]) -> Mapping[str, str]:
    wrong = sorted(str(key) for key, value in values.items() if not isinstance(key, str) or not isinstance(value, str))
    if wrong:
        raise _unreadable(path, f"has values that are not text: {', '.join(wrong)} (put quotes around a number)")
    return {key: str(value) for key, value in values.items()}


def _unreadable(path: Path, what: str) -> NeedsMending:
    return NeedsMending(Reason.SECRET_UNREADABLE, f"Credentials file {path} {what}. Nothing was done.")
