"""The identity that Tidegate sends to the API server."""

import json
from pathlib import Path

from tidegate import __version__
from tidegate.kube.client import connect


def test_the_server_learns_who_asks_because_managed_fields_and_audit_logs_show_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {}}
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}))
    assert connect(kubeconfig).user_agent == f"tidegate/{__version__}"
