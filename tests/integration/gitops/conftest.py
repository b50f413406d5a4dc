"""The operator's objects as Kustomize builds them, under unique names: the API server is shared, and some objects have no namespace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.unit.gitops.samples import CHECKOUT

BASE = CHECKOUT / "deploy" / "kustomize" / "base"


@pytest.fixture
def overlay(tmp_path: Path, namespace: str) -> Path:
    """A folder to build that puts everything into `namespace`, which exists, and gives what is outside of it a suffix."""
    folder = tmp_path / "overlay"
    folder.mkdir()
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE, folder)],  # Kustomize takes no absolute path
        "namespace": namespace,
        "nameSuffix": f"-{namespace}",
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder
