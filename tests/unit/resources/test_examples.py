"""The examples are what a new user applies first: small, sound, and one working whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.resources import BrokerBandwidthPolicy, BusinessTier, parse_object

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
DOCUMENTS = [document for path in EXAMPLES for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
OURS = [document for document in DOCUMENTS if document["kind"] != "Namespace"]


@pytest.mark.parametrize("document", OURS, ids=lambda document: document["metadata"]["name"])
def test_every_example_reads_strictly(document: Mapping[str, Any]) -> None:
    assert parse_object(document, strict=True).metadata.name == document["metadata"]["name"]


def test_every_tier_belongs_to_the_policy_and_all_live_in_the_namespace_that_comes_with_them() -> None:
    objects = [parse_object(document, strict=True) for document in OURS]
    policies = {policy.metadata.key for policy in objects if isinstance(policy, BrokerBandwidthPolicy)}
    assert policies == {"streaming/demo"}
    assert {tier.policy_key for tier in objects if isinstance(tier, BusinessTier)} == policies
    assert DOCUMENTS[0]["metadata"]["name"] == "streaming"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_short_and_commented(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#")
    assert len(lines) < 60
