"""A role of AWS by web identity, taken at moto's STS."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab import object_stores
from tests.doubles.msk_broker import identity_in
from tests.unit.kafka.test_tokens import jwt
from tidegate.errors import Unreachable
from tidegate.kafka.msk_iam import WebIdentity, signed_token

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/tidegate"


def test_a_role_is_taken_with_the_token_of_a_file_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "aws"
    with object_stores.s3() as moto:
        role = WebIdentity(ROLE, file=file, called="The token aws", endpoint=moto.endpoint)
        with pytest.raises(Unreachable, match="The token aws cannot be read"):
            role.credentials()
        file.write_text(jwt(sub="system:serviceaccount:tidegate:tidegate"))
        taken = role.credentials()
        assert taken.session_token
        assert 600 < taken.expires_at_seconds - time.time() <= 3700
    assert role.credentials() is taken, "STS is asked once while the session lasts"
    token = signed_token(taken, "eu-west-1")
    keys = {taken.access_key_id: taken.secret_access_key}
    assert identity_in(token.value, region="eu-west-1", secrets=keys) == taken.access_key_id


def test_an_unreachable_sts_is_named(tmp_path: Path) -> None:
    (tmp_path / "aws").write_text("token-of-the-account")
    role = WebIdentity(
        ROLE, file=tmp_path / "aws", called="The token aws", endpoint="https://127.0.0.1:1"
    )
    with pytest.raises(Unreachable, match="AWS STS at https") as away:
        role.credentials()
    assert "token-of-the-account" not in away.value.message
