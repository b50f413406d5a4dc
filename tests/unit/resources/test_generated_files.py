"""What is generated is committed, says the same as the models, and keeps the promises that need no server to see."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.resources.crd import crd_document
from tidegate.resources.generate import CHECKOUT, crd_yaml, generated_files, main, stale_files
from tidegate.resources.kinds import KINDS, Kind

CLIENT_SIDE_APPLY_LIMIT_BYTES = 262_144

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


def test_the_committed_files_are_what_the_models_say() -> None:
    assert stale_files(CHECKOUT) == []


def test_check_passes_on_fresh_files_and_names_a_stale_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--checkout", str(tmp_path)]) == 0
    assert main(["--check", "--checkout", str(tmp_path)]) == 0
    stale = next(iter(generated_files()))
    (tmp_path / stale).write_text("edited by hand")
    assert main(["--check", "--checkout", str(tmp_path)]) == 1
    assert str(stale) in capsys.readouterr().err
    assert (tmp_path / stale).read_text() == "edited by hand"


@each_kind
def test_a_crd_fits_client_side_apply(kind: Kind) -> None:
    assert len(crd_yaml(kind).encode()) < CLIENT_SIDE_APPLY_LIMIT_BYTES / 2


@each_kind
def test_a_crd_file_is_the_document_and_says_not_to_edit_it(kind: Kind) -> None:
    text = crd_yaml(kind)
    assert text.startswith("# Generated")
    assert yaml.safe_load(text) == crd_document(kind)


@each_kind
def test_nothing_in_a_crd_makes_gitops_see_drift(kind: Kind) -> None:
    for path, value in walked(crd_document(kind)):
        assert value not in ([], {}), f"{path} is empty"
        assert not path.endswith(".default"), path


def walked(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value below a document but the empty status subresource, which Kubernetes wants as it is."""
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, below in items:
        if path.endswith(".subresources"):
            continue
        yield f"{path}.{name}", below
        yield from walked(below, f"{path}.{name}")


@each_kind
def test_the_reference_page_holds_every_field_and_every_rule(kind: Kind) -> None:
    page = generated_files()[Path("docs/resources.md")]
    for model in (kind.spec, kind.status):
        for rule in model.rules:
            assert not rule.cel or rule.message.replace("|", "\\|") in page
        for field in model.model_fields.values():
            assert f"`{field.alias}`" in page
