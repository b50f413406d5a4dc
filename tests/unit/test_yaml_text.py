"""What is written as YAML reads back as the same."""

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.yaml_text import yaml_text


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=3))
@example(["\x85", "a\u2028b", "\u2029"])
@example(["# not a comment", "- no list", "yes", "1", "\ufeff"])
def test_every_text_reads_back_as_it_was(texts: list[str]) -> None:
    documents = [{"user": text, text: [text]} for text in texts]
    assert list(yaml.safe_load_all(yaml_text(*documents))) == documents
