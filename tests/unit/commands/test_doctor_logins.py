"""What `tidegate doctor` calls a login, and when forwarders have the policy's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.unit.resources.documents import policy, queue
from tidegate.commands.doctor_cluster import login_words
from tidegate.commands.doctor_queues import _is_the_policys
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources import parse_policy, parse_queue
from tidegate.resources.authentication import KafkaAuthentication

SECRETS = Secrets("streaming", {"login": {"id": b"AKID", "token": b"one", "secret": b"x"}})
OTHERS = Secrets("streaming", {"login": {"id": b"OTHER", "token": b"two", "secret": b"x"}})
CLIENT: dict[str, Any] = {
    "type": "oauthbearer",
    "tokenEndpointUri": "https://idp/token",
    "clientId": "tidegate",
    "clientSecret": {"secretName": "login", "key": "secret"},
}
TOKEN: dict[str, Any] = {
    "type": "oauthbearer",
    "accessToken": {"secretName": "login", "key": "token"},
}
AWS: dict[str, Any] = {
    "type": "aws-msk-iam",
    "region": "eu-west-1",
    "accessKey": {"secretName": "login", "accessKeyId": "id", "secretAccessKey": "secret"},
}


@pytest.mark.parametrize("login", [CLIENT, TOKEN, AWS], ids=["client", "token", "aws"])
def test_forwarders_with_the_policys_client_token_or_access_key_are_noticed(
    login: dict[str, Any],
) -> None:
    def is_shared(own: dict[str, Any], secrets: Secrets) -> bool:
        parsed = parse_queue(queue(), strict=True)
        declared = KafkaAuthentication.model_validate(own)
        mine = dataclasses.replace(
            parsed, spec=parsed.spec.model_copy(update={"authentication": declared})
        )
        kafka = parse_policy(policy({"kafka.authentication": login}), strict=True).spec.kafka
        return _is_the_policys(mine, kafka, secrets, SECRETS)

    assert is_shared(login, SECRETS)
    other = {**login, "clientId": "forwarder"} if "clientId" in login else login
    assert not is_shared(other, OTHERS)


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (CLIENT, "as client tidegate by oauthbearer, in plain text"),
        (TOKEN, "by oauthbearer, in plain text"),
        (AWS, "by aws-msk-iam, in plain text"),
    ],
    ids=["client", "token", "aws"],
)
def test_a_login_by_tokens_has_words(login: dict[str, Any], words: str) -> None:
    assert login_words(None, KafkaAuthentication.model_validate(login)) == words
