"""README and docs/user-guide.md, typed as they are printed by somebody with an empty home directory
and a fresh clone (`make walk-guide`). Needs root, and ports 8080, 8090 and 9095 of this machine.

Every line of a shell block and every whole command in the text is typed, or is in `LEFT_OUT` with
its reason: the last test fails for a command that is neither. The clone has the last commit. An
editor's work, to save a block as the file that the text names, is done in between. A second shell
has the operator in it. Hosts of the pages are names of the lab's real parts, as in
`walked_tutorials`; `localhost` has Prometheus, as a port-forward would make it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import patience, started, wait_until
from lab.standing import cluster_tools, kafka_tools, write_tools
from tests.integration.commands.conftest import use
from tests.integration.commands.walked_tutorials import PROMETHEUS_HOST, ROOT, cluster, saved
from tools.console_walk import in_short, is_throttled, opened, watched_page

GUIDE, README = "docs/user-guide.md", "README.md"
# From `git clone` to somebody who is throttled, in the browser.
FIRST_EPISODE_SECONDS = {"warm": 60.0, "cold": 300.0}
CONSOLE = ("127.0.0.1", 8090)
# By the beginning of a command: why nobody types it here.
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    README: {
        "make image": "`make walk-strimzi` types the install block",
        "kubectl create namespace": "`make walk-strimzi` types the install block",
        "helm install": "`make walk-strimzi` types the install block",
        "make demo": "a target of its own",
        "make test": "a target of its own",
    },
    GUIDE: {
        "make demo": "a target of its own",
        "DEMO=quick make demo": "a target of its own",
        "KAFKA=4.4-kraft make demo": "a target of its own",
        "python -m demo": "what `make demo` runs",
        "make image": "`make walk-strimzi` types the same line of README",
        "helm install": "`make walk-strimzi` types the same line of README",
        "kubectl rollout status": "needs Pods; `make walk` waits for the same Deployment",
    },
}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(
    r"(?:[A-Z]+=\S+ )*(?:\.venv/bin/)?(?:tidegate|kubectl|helm|make|python3?|kafka-\w+\.sh) "
)
_NAME = re.compile(r"(?:tidegate|kubectl) [\w-]+")  # of a command, which is no command line
_STEP_SECONDS = 120.0
_TEST_SECONDS = 1800


@dataclass
class Page:
    """A page, its commands, and which of them were typed."""

    path: str
    text: str
    typed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, path: str) -> Self:
        return cls(path, (ROOT / path).read_text(encoding="utf-8"))

    @property
    def commands(self) -> list[str]:
        """Every line of a shell block, and every whole command in the text; without comments."""
        shell = "".join(content for kind, content in _FENCED.findall(self.text) if kind == "sh")
        lines = [re.sub(r"\s+# .*", "", line) for line in shell.splitlines() if line.strip()]
        prose = _FENCED.sub("", self.text)
        spans = [" ".join(span.split()) for span in _SPAN.findall(prose)]
        inline = [one for one in spans if _COMMAND.match(one) and not _NAME.fullmatch(one)]
        return list(dict.fromkeys([*lines, *inline]))

    def command(self, beginning: str) -> str:
        """The one command that begins so, as it is printed; it counts as typed."""
        (found,) = [one for one in self.commands if one.startswith(beginning)]
        self.typed.add(found)
        return found

    def blocks(self, kind: str) -> list[str]:
        """The fenced blocks of a kind, in their order."""
        return [content for of, content in _FENCED.findall(self.text) if of == kind]


class Terminal:
    """A shell that somebody types into, and what it shows."""

    def __init__(
        self, log: Path, home: Path, tools: Path | None = None, *, cache: Path, hosts: Path | None
    ) -> None:
        self._log, self._steps = log, 0
        path = os.environ["PATH"]
        environment = {
            **os.environ,  # how packages are reached from here
            "HOME": str(home),
            "XDG_CACHE_HOME": str(cache),
            "PATH": path if tools is None else f"{tools}:{path}",
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }
        for inherited in (
            "KUBECONFIG",
            "VIRTUAL_ENV",
            "UV_CACHE_DIR",
            "MAKEFLAGS",
            "MYPY_CACHE_DIR",
        ):
            environment.pop(inherited, None)
        with log.open("wb") as out:
            self._shell = subprocess.Popen(
                ["unshare", "--mount", "bash"],
                cwd=home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        self.begin("trap : INT")  # Ctrl-C is for the command, and the shell goes on
        if hosts is not None:
            self.type(f"mount --bind {hosts} /etc/hosts")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        with self._shell:  # closes what is typed into
            self._shell.wait()

    @property
    def shown(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def code(self) -> int | None:
        """By which the last command ended; None while it runs."""
        found = re.search(rf"^@ {self._steps} (\d+)$", self.shown, re.MULTILINE)
        return int(found[1]) if found else None

    def begin(self, lines: str) -> None:
        """Type this, and do not wait for its end."""
        assert self._shell.stdin is not None
        self._steps += 1
        self._shell.stdin.write(f'{lines}\necho "\n@ {self._steps} $?"\n')
        self._shell.stdin.flush()

    def ended(self, *codes: int, seconds: float = _STEP_SECONDS) -> str:
        """What the last command printed once it has ended, by one of the codes."""
        wait_until(lambda: self.code is not None, "the prompt", timeout_seconds=seconds)
        before, _, _ = self.shown.rpartition(f"\n@ {self._steps} ")
        printed = before.rpartition(f"\n@ {self._steps - 1} ")[2].partition("\n")[2]
        assert self.code in codes, f"code {self.code}:\n{printed[-3000:]}"
        return printed

    def type(self, lines: str, *codes: int) -> str:
        """What this prints; its last code is one of these, without any 0."""
        began = time.monotonic()
        self.begin(lines)
        printed = self.ended(*(codes or (0,)))
        print(f"$ {lines.rstrip()}\n{printed}  ({time.monotonic() - began:.1f} s)", flush=True)
        return printed

    def interrupt(self, *codes: int) -> str:
        """Ctrl-C, and what the command had printed."""
        os.killpg(self._shell.pid, signal.SIGINT)
        return self.ended(*codes)


@pytest.fixture(scope="module")
def readme() -> Page:
    return Page.of(README)


@pytest.fixture(scope="module")
def guide() -> Page:
    return Page.of(GUIDE)


def _own_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) != 0


@pytest.mark.timeout(_TEST_SECONDS)
@pytest.mark.parametrize("cache", FIRST_EPISODE_SECONDS)
def test_readme_without_a_cluster(readme: Page, cache: str, tmp_path: Path) -> None:
    assert _is_free(CONSOLE), "another console has README's port"
    address = "http://127.0.0.1:8090"
    assert f"in your browser at {address}" in readme.text
    home = tmp_path / "home"
    home.mkdir()
    folder = _own_cache() if cache == "warm" else home / ".cache"
    with Terminal(tmp_path / "shell.log", home, cache=folder, hosts=None) as shell:
        began = time.monotonic()
        shell.type(f"git clone --quiet file://{ROOT} tidegate && cd tidegate")
        shell.begin(readme.command("make setup && "))
        with watched_page(f"{address}/") as page:
            wait_until(
                lambda: not _is_free(CONSOLE) or shell.code is not None,
                "the console to listen",
                timeout_seconds=FIRST_EPISODE_SECONDS[cache],
            )
            assert shell.code is None, shell.shown[-3000:]
            answers_seconds = time.monotonic() - began
            wait_until(lambda: opened(page, address), "a page", timeout_seconds=30)
            wait_until(lambda: is_throttled(page, "L3"), "L3 to be throttled", timeout_seconds=60)
            took_seconds = time.monotonic() - began
            print(in_short(page))
        shell.interrupt(0, 130)
        print(
            f"From git clone with a {cache} cache: the console answers after {answers_seconds:.0f} s, "
            f"the first episode is in the browser after {took_seconds:.0f} s "
            f"(load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)."
        )
        assert took_seconds <= patience(FIRST_EPISODE_SECONDS[cache])
        if cache == "warm":
            shell.type(readme.command("make doctor"))
            # "`tidegate simulate` prints the same evening: who is slowed down, when, for how long"
            evening = shell.type(
                ".venv/bin/tidegate simulate examples/simulate/evening-backfill.yaml"
            )
            assert "L3" in evening
    shutil.rmtree(home)  # a cold cache has 3 GB


@dataclass(frozen=True)
class World:
    """Two terminals of somebody who reaches a cluster with quotas, and has nothing of Tidegate."""

    kafka: KafkaLab
    shell: Terminal
    operator: Terminal
    operator_log: Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    home, tools = tmp_path / "home", tmp_path / "bin"
    (home / ".kube").mkdir(parents=True)
    log = tmp_path / "operator.log"
    with ExitStack() as stack:
        enter = stack.enter_context
        names = {"localhost": PROMETHEUS_HOST}  # a port-forward
        kafka, hosts = enter(cluster(tmp_path, labels={"cluster": "orders"}, names=names))
        api = enter(started(KubeApi))
        write_tools(tools, {**kafka_tools(tmp_path), **cluster_tools(api)})
        shutil.copy(api.kubeconfig, home / ".kube" / "config")
        shell, operator = (
            enter(Terminal(file, home, tools, cache=_own_cache(), hosts=hosts))
            for file in (tmp_path / "shell.log", log)
        )
        kafka.create_topic("acc", [[1, 2], [2, 3], [3, 1]])
        kafka.create_topic("clicks.web", [[1], [2], [3]])
        yield World(kafka, shell, operator, log)


QUOTA_OF_ALICE = "kafka-configs.sh --bootstrap-server kafka-1:9092 --describe --entity-type users --entity-name alice"
READY = "kubectl wait --for=condition=Ready bbp,bt --all --timeout=120s"


@pytest.mark.timeout(_TEST_SECONDS)
def test_readme_and_user_guide_on_a_cluster(world: World, readme: Page, guide: Page) -> None:
    shell = world.shell
    install(world, guide)
    _script(world)
    look_read_only(shell, readme)
    start_from_quotas(shell, guide)
    enforce(shell, guide, readme)
    _use_until_metered(world)
    from_usage(shell, guide)
    decide_otherwise(world, guide)
    world.operator.interrupt(0)


def install(world: World, guide: Page) -> None:
    for port in (8080, 9095):
        assert _is_free(("127.0.0.1", port)), f"something else has the operator's port {port}"
    for terminal, place in ((world.shell, "tidegate"), (world.operator, "again")):
        terminal.type(f"git clone --quiet file://{ROOT} {place} && cd {place}")
        terminal.type(guide.command("make setup"))
        terminal.type(guide.command("export PATH"))
    world.shell.type(guide.command("kubectl create namespace"))
    world.shell.type(guide.command("kubectl apply --server-side"))
    world.operator.begin(guide.command("tidegate run"))
    wait_until(lambda: not _is_free(("127.0.0.1", 8080)), "the operator", timeout_seconds=60)
    world.shell.type(guide.command("kubectl config set-context"))


def _script(world: World) -> None:
    """Quotas that somebody set, and a client that has none and is metered."""
    alter = "kafka-configs.sh --bootstrap-server kafka-1:9092 --alter --entity-type users"
    rates = "consumer_byte_rate=50000000,producer_byte_rate=20000000"
    world.shell.type(f"{alter} --entity-name checkout --add-config {rates}")
    unlimited = "consumer_byte_rate=900000000000,producer_byte_rate=900000000000"
    world.shell.type(f"{alter} --entity-default --add-config {unlimited}")
    world.kafka.create_scram_user("dave", "right")


def look_read_only(shell: Terminal, readme: Page) -> None:
    (block,) = readme.blocks("yaml")
    policy, tiers = block.split("---\n")
    shell.type(
        f"mkdir look && cd look\n{saved(policy, 'policy.yaml')}\n{saved(tiers, 'tiers.yaml')}"
    )
    assert "problem" not in shell.type(readme.command("tidegate doctor -f"))
    shell.type(readme.command("tidegate plan -f"), 2)
    shell.type("cd ..")


def start_from_quotas(shell: Terminal, guide: Page) -> None:
    policy, *_ = guide.blocks("yaml")
    shell.type(saved(policy, "policy.yaml"))
    shell.type("kubectl apply -f policy.yaml")
    shell.type(guide.command("kubectl describe bbp"))
    shell.type(guide.command("tidegate import streaming/orders --zookeeper"))
    imported = shell.type("cat tiers.yaml")
    assert "user: checkout" in imported
    assert "level: L0" in imported
    planned = shell.type(guide.command("tidegate plan -f policy.yaml -f tiers.yaml --all"), 0, 2)
    assert planned.count(" same ") == 2


def enforce(shell: Terminal, guide: Page, readme: Page) -> None:
    _, _, core, clicks, watching, _ = guide.blocks("yaml")
    shell.type("mkdir policies")
    for content, file in ((watching, "policy"), (core, "core"), (clicks, "clicks")):
        shell.type(saved(content, f"policies/{file}.yaml"))
    shell.type("kubectl apply -f policies/")
    assert "alice" in shell.type(guide.command("tidegate plan --namespace"), 2)
    assert "alice" in shell.type(guide.command("tidegate plan -f policies/"), 2)
    shell.type("sed -i 's/mode: Observe/mode: Enforce/' policies/policy.yaml")
    shell.type("kubectl apply -f policies/")
    # 10 MB/s for each of the two partitions that a broker leads
    wait_until(
        lambda: "consumer_byte_rate=2.0E7" in shell.type(QUOTA_OF_ALICE),
        "the quota",
        timeout_seconds=60,
        poll_seconds=2,
    )
    shell.type(READY)
    assert "Enforce" in shell.type(guide.command("kubectl get bbp"))
    assert "Contract" in shell.type(readme.command("kubectl get bbp,bt"))
    for way in ("--policy", "--zookeeper"):
        explained = shell.type(
            guide.command(f"tidegate explain --user alice --client-id batch-7 {way}")
        )
        assert "20 MB/s" in explained


def _use_until_metered(world: World) -> None:
    wait_until(
        lambda: world.kafka.can_log_in("dave", "right"), "the SCRAM login", timeout_seconds=20
    )
    until = time.monotonic() + 20
    while time.monotonic() < until:
        use(world.kafka, "dave", "clicks.web", "right")


def from_usage(shell: Terminal, guide: Page) -> None:
    asked = guide.command("tidegate import streaming/orders --from-usage")

    def proposed(command: str) -> bool:
        shell.type(command, 0, 1)
        return "user: dave" in shell.type("cat tiers.yaml")

    wait_until(lambda: proposed(asked), "whole windows", timeout_seconds=400, poll_seconds=20)
    shell.type("cp policies/policy.yaml policy.yaml")
    assert proposed(guide.command("tidegate import -f policy.yaml --prometheus"))


def decide_otherwise(world: World, guide: Page) -> None:
    shell = world.shell
    shell.type(guide.command("tidegate override create"))
    wait_until(
        lambda: "Active" in shell.type(guide.command("kubectl get qo")),
        "the override",
        timeout_seconds=60,
        poll_seconds=2,
    )
    shell.type(guide.command("tidegate pause"))
    shell.type("tidegate plan streaming/orders", 0, 2)
    shell.type(guide.command("tidegate resume"))
    shell.type("kubectl delete qo --all && kubectl delete bt --all")
    confirm = guide.command("tidegate confirm-removal")
    held = r"jsonpath={.status.conditions[*].message}"
    wait_until(
        lambda: "tidegate.io/confirm-removal" in shell.type(f"kubectl get bbp orders -o '{held}'"),
        "a held removal",
        timeout_seconds=120,
        poll_seconds=5,
    )
    shell.type(confirm, 2)
    shell.type(f"{confirm} --yes")
    wait_until(
        lambda: "byte_rate" not in shell.type(QUOTA_OF_ALICE),
        "the former quota",
        timeout_seconds=120,
        poll_seconds=5,
    )
    audit = guide.command("tidegate audit --entity USER").replace("USER", "alice")
    assert "alice" in shell.type(f"{audit} < {world.operator_log}")
    shell.type("kubectl delete bbp orders --timeout=120s")


def test_every_printed_command_is_typed_or_left_out(readme: Page, guide: Page) -> None:
    """After the others."""
    for beginning, reason in LEFT_OUT[GUIDE].items():
        if "same line of README" in reason:
            assert any(
                one.startswith(beginning) and one in readme.commands for one in guide.commands
            )
    for page in (readme, guide):
        left_out = LEFT_OUT[page.path]
        untyped = [one for one in page.commands if one not in page.typed]
        unknown = [one for one in untyped if not one.startswith(tuple(left_out))]
        assert unknown == [], f"{page.path} prints what nobody types and LEFT_OUT does not name"
        for beginning, reason in left_out.items():
            assert any(one.startswith(beginning) for one in untyped), f"{beginning}: {reason}"
