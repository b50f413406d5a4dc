"""The tutorials that need no Pods, pasted as they are printed by somebody with an empty home
directory (`make walk-tutorials`). Needs root.

One shell runs the lines of a page's blocks in their order and stops at the first that fails; an
editor's work, to save a block as the file that the text names, is done in between. What a page
shows as `output` has to be printed. The page's hosts (kafka-1, zk-1, prometheus) are names of the
lab's real parts, at the ports that the page has, in a mount namespace with an /etc/hosts of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import started
from lab.prometheus import monitoring
from lab.proxy import Proxy
from lab.standing import cluster_tools, kafka_tools, write_tools

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "tutorials"
NAMESPACE = "streaming"
ZOOKEEPER_HOST, PROMETHEUS_HOST = "127.0.9.1", "127.0.9.2"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TIMEOUT_SECONDS = 600
_MARK = "@ step "
_DESCRIBE = "kafka-configs.sh --bootstrap-server kafka-1:9092 --describe --entity-type users"
QUOTAS = f"{_DESCRIBE}; {_DESCRIBE} --entity-type clients"


class Walker:
    """Somebody at a shell of a machine that reaches the cluster, with an empty home directory."""

    def __init__(self, home: Path, hosts: Path, tools: Path, kubeconfig: Path) -> None:
        self._home, self._hosts, self._tools, self._kubeconfig = home, hosts, tools, kubeconfig

    def run(self, *steps: str) -> list[str]:
        """What each step, some lines of shell, printed; an operator runs beside them."""
        lines = [
            f"mount --bind {self._hosts} /etc/hosts",
            f"cd {self._home}",
            # docs/user-guide.md, "As a process"
            "tidegate run --all-namespaces --lease-namespace default --liveness-port 0 "
            f"--metrics-port 0 --log-format console > {self._home.parent}/operator.log 2>&1 &",
            "trap 'kill %1; wait' EXIT",
            "set -e -o pipefail",
        ]
        for step in steps:
            lines += [f"echo '{_MARK}'", step]
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", "\n".join(lines)],
            env={
                **{key: text for key, text in os.environ.items() if key != "XDG_CACHE_HOME"},
                "HOME": str(self._home),
                "KUBECONFIG": str(self._kubeconfig),
                "PATH": f"{self._tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "LANG": "C.UTF-8",
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout.split(f"{_MARK}\n")[1:]


@contextmanager
def cluster(
    folder: Path, *, labels: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
) -> Iterator[tuple[KafkaLab, Path]]:
    """Kafka and its Prometheus at the addresses of the pages, and the /etc/hosts for that.

    Three brokers with NICs of their own, below the chroot that the pages have. `labels` are on
    every series; `names` are further hosts.
    """
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaLab(brokers=3, namespaces=True, chroot="/kafka"))
        kafka.create_topic("orders", [[1, 2], [2, 3], [3, 1]])
        prometheus = stack.enter_context(monitoring(kafka, labels=labels))
        for address, host, port in (
            (kafka.zookeeper.connect, ZOOKEEPER_HOST, 2181),
            (prometheus.url.removeprefix("http://"), PROMETHEUS_HOST, 9090),
        ):
            at, _, at_port = address.rpartition(":")
            stack.enter_context(Proxy((at, int(at_port)), host=host, port=port))
        file = folder / "hosts"
        known = {
            "localhost": "127.0.0.1",
            "zk-1": ZOOKEEPER_HOST,
            "prometheus": PROMETHEUS_HOST,
            "kafka": kafka.brokers[0].plan.host,
            **{f"kafka-{one.broker_id}": one.plan.host for one in kafka.brokers},
            **(names or {}),
        }
        file.write_text("".join(f"{address} {name}\n" for name, address in known.items()))
        yield kafka, file


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    """The /etc/hosts of somebody who reaches the cluster."""
    with cluster(tmp_path) as (_, file):
        yield file


@pytest.fixture
def walker(tmp_path: Path, hosts: Path) -> Iterator[Walker]:
    """An empty home directory, and a Kubernetes API with the CRDs."""
    home, tools = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    with started(KubeApi) as api:
        write_tools(tools, {**kafka_tools(tmp_path), **cluster_tools(api)})
        api.install_crds(ROOT / "crds")
        api.kubectl("create", "namespace", NAMESPACE)
        yield Walker(home, hosts, tools, api.kubeconfig)


def blocks(page: str, kind: str) -> list[str]:
    """The page's fenced blocks of a kind, in their order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [content for of, content in _BLOCK.findall(text) if of == kind]


def saved(content: str, file: str) -> str:
    """The line by which an editor saves this as a file."""
    return f"cat > {file} <<'END'\n{content}END"


@pytest.mark.timeout(_TIMEOUT_SECONDS + 300)
def test_from_kafka_configs_scripts(walker: Walker) -> None:
    page = "from-kafka-configs.md"
    script, imported, planned, handed_over, edited, by_brokers, back = blocks(page, "sh")
    policy, tier_by_partition, policy_by_brokers = blocks(page, "yaml")
    shown_tier, shown_plan = blocks(page, "output")
    # an editor puts the page's tier in the place of the one of the same name
    edit = (
        f"{saved(tier_by_partition, 'tier.yaml')}\n"
        "python3 - <<'END'\n"
        "from pathlib import Path\n"
        "kept = [one for one in Path('tiers.yaml').read_text().split('---\\n')\n"
        "        if one.strip() and 'name: imported-l0-10m' not in one]\n"
        "Path('tiers.yaml').write_text('---\\n'.join([*kept, Path('tier.yaml').read_text()]))\n"
        "END"
    )
    answers = walker.run(
        script,
        QUOTAS,
        f"{saved(policy, 'policy.yaml')}\n{imported}",
        "cat tiers.yaml",
        f"{planned.rstrip()} || [ $? = 2 ]  # something to write: the records",
        handed_over,
        QUOTAS,
        f"{edit}\n{edited}",
        f"mkdir other && cd other\n{saved(policy_by_brokers, 'policy.yaml')}\n{by_brokers}cd ..",
        back.replace("# a dry run", "|| [ $? = 2 ]  # a dry run, which has something to do"),
        QUOTAS,
    )
    _, before, _, tiers, plan, got, after, new_plan, _, gone_back, restored = answers
    assert shown_tier in tiers
    assert shown_plan in plan
    assert "Observing" in got
    assert before == after == restored
    assert "Nothing would be written now" in new_plan
    assert "dry run" in gone_back.lower()


@pytest.mark.timeout(_TIMEOUT_SECONDS + 300)
def test_protect_checkout(walker: Walker) -> None:
    page = "protect-checkout.md"
    looked, simulated, switched_on, got, explained, override, undone = blocks(page, "sh")
    policy, tiers, load = blocks(page, "yaml")
    shown_plan, shown_simulation, _, shown_explanation = blocks(page, "output")
    answers = walker.run(
        f"{saved(policy, 'policy.yaml')}\n{saved(tiers, 'tiers.yaml')}\nset +e\n{looked}set -e",
        f"{saved(load, 'load.yaml')}\n{simulated}",
        switched_on,
        got,
        explained,
        override,
        QUOTAS,
        undone,
        QUOTAS,
    )
    look, simulation, _, _, explanation, overridden, enforced, _, left = answers
    assert shown_plan in look
    assert shown_simulation in simulation
    # there is no backfill in this cluster: the contract is in force
    assert "60 MB/s (60000000 B/s) on each broker" in explanation
    assert shown_explanation.splitlines()[1] in explanation
    assert re.search(r"^backfill-\S+ +orders +user=backfill +Active ", overridden, re.M)
    assert "Quota configs" in enforced
    assert "Quota configs" not in left


@pytest.mark.timeout(_TIMEOUT_SECONDS + 300)
def test_share_a_budget(walker: Walker) -> None:
    page = "share-a-budget.md"
    simulated, switched_on, looked, undone = blocks(page, "sh")
    shown_simulation, shown_explanation = blocks(page, "output")
    answers = walker.run(
        f"ln -s {ROOT} tidegate\n{simulated}",
        switched_on,
        # nobody has a quota here: each member gets one, so that Kafka meters it
        f"until {_DESCRIBE} | grep search-indexer; do sleep 1; done",
        looked,
        undone,
        QUOTAS,
    )
    simulation, _, metered, explanation, _, left = answers
    assert shown_simulation in simulation
    # all of the budget, over the brokers that lead at that moment
    rate = re.search(r"consumer_byte_rate=([\d.E]+)", metered)
    assert rate is not None
    assert 120e6 / float(rate[1]) in (2.0, 3.0)
    assert re.search(r"^search +orders +12 +", explanation, re.M)
    assert shown_explanation.splitlines()[1] in explanation
    assert "Quota configs" not in left
