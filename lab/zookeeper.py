"""A ZooKeeper server, alone or under the lab's brokers, and ensembles of three.

It knows nothing of Kafka's znodes.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lab.cache import RunDirectory
from lab.doctor import refuse_missing
from lab.java import properties, start_java
from lab.network import free_port
from lab.packages import clock_behind, kafka_jars
from lab.process import Opened, Process, patience, wait_until

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_START_TIMEOUT_SECONDS = 60
_TICK_MILLISECONDS = 1000


@dataclass(frozen=True)
class DigestLogin:
    """A user of ZooKeeper's SASL DIGEST-MD5."""

    user: str
    password: str

    def client_section(self) -> str:
        """The JAAS section with which a Java client, such as a broker, logs in."""
        return (
            "Client { org.apache.zookeeper.server.auth.DigestLoginModule required "
            f'username="{self.user}" password="{self.password}"; }};\n'
        )


class ZooKeeperLab(Opened):
    """A ZooKeeper server on a free port of `host`; a context manager.

    Session timeouts from 2 to 20 s are granted. With `logins`, clients may log in by SASL
    DIGEST-MD5 as one of them; others are served still, and ACLs decide what they may do. `settings`
    are added to its own, such as those of a secure port; `java_options` to those of its JVM. Its
    clock may be behind, so that its nodes are old at once. Without `directory` it makes, and
    removes, a run directory of its own.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        logins: tuple[DigestLogin, ...] = (),
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        clock_behind_minutes: int = 0,
        directory: Path | None = None,
    ) -> None:
        self.host = host
        self.logins = logins
        self._clock_behind_minutes = clock_behind_minutes
        self.port = free_port(host)
        self._extra_settings = dict(settings or {})
        self._java_options = tuple(java_options)
        self._directory = directory
        self._process: Process | None = None

    def _open(self, stack: ExitStack) -> None:
        refuse_missing("linux", "util-linux", "java", "maven")
        if self._directory is None:
            self._directory = stack.enter_context(RunDirectory()).path / "zookeeper"
        stack.callback(self.stop)
        self.start()

    @property
    def connect(self) -> str:
        """The connect string, without a chroot."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> Process:
        """The server's process, started or ended."""
        if self._process is None:
            raise RuntimeError("this ZooKeeper was not started yet")
        return self._process

    def start(self) -> None:
        """Start it, again with the data it had, and return when it answers."""
        directory = self._home()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "zoo.cfg").write_text(properties(self._settings(directory)))
        self._process = start_java(
            "zookeeper",
            MAIN_CLASS,
            arguments=["zoo.cfg"],
            options=["-Xmx128m", *self._java_options, *self._login_options(directory)],
            jars=kafka_jars(),
            directory=directory,
            environment=(
                clock_behind(self._clock_behind_minutes) if self._clock_behind_minutes else {}
            ),
        )
        wait_until(
            self._answers,
            "ZooKeeper's first answer",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[self._process],
        )

    def kill(self) -> None:
        """End it as a crash would.

        Clients lose their connection; sessions live on when it is started again in time.
        """
        self.process.kill()

    def stop(self) -> None:
        """End it. Nothing happens when it does not run."""
        if self._process is not None:
            # It has nothing to say to anybody: its data directory goes with the lab, and its
            # orderly end takes longer than a kill.
            self._process.kill()

    def log_text(self) -> str:
        """Everything it has logged, over all its starts."""
        return self.process.log_path.read_text(errors="replace")

    def _home(self) -> Path:
        if self._directory is None:
            raise RuntimeError("this ZooKeeper has no directory; use it as a context manager")
        return self._directory

    def _settings(self, directory: Path) -> dict[str, str]:
        settings = {
            "dataDir": str(directory / "data"),
            "clientPortAddress": self.host,
            "clientPort": str(self.port),
            "tickTime": str(_TICK_MILLISECONDS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        if self.logins:
            settings["authProvider.sasl"] = (
                "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            )
        return settings | self._extra_settings

    def _login_options(self, directory: Path) -> list[str]:
        if not self.logins:
            return []
        users = " ".join(f'user_{login.user}="{login.password}"' for login in self.logins)
        jaas = directory / "server_jaas.conf"
        jaas.write_text(
            f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};\n"
        )
        return [f"-Djava.security.auth.login.config={jaas}"]

    def _answers(self) -> bool:
        return self.said("ruok") == "imok"

    def said(self, command: str) -> str:
        """Its answer to a command of four letters; empty while nothing answers."""
        try:
            with socket.create_connection(
                (self.host, self.port), timeout=patience(1)
            ) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    def mode(self) -> str:
        """standalone, leader, follower or read-only; empty while it serves no one."""
        found = re.search(r"^Mode: (\S+)$", self.said("srvr"), re.MULTILINE)
        return found[1] if found else ""


class ZooKeeperEnsemble(Opened):
    """Three servers on loopback that agree with each other; a context manager.

    It returns once one of them leads. A server without a majority of them answers only clients that
    take what may be out of date (`readonlymode.enabled`).
    """

    def __init__(self) -> None:
        self.servers: list[ZooKeeperLab] = []

    def _open(self, stack: ExitStack) -> None:
        ports = {number: (free_port(), free_port()) for number in (1, 2, 3)}
        members = {f"server.{n}": f"127.0.0.1:{a}:{b}" for n, (a, b) in ports.items()}
        settings = {"initLimit": "10", "syncLimit": "5", **members}
        run = stack.enter_context(RunDirectory()).path
        for number in ports:
            home = run / f"zookeeper-{number}"
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(f"{number}")
            server = ZooKeeperLab(
                settings=settings,
                java_options=["-Dreadonlymode.enabled=true"],
                directory=home,
            )
            self.servers.append(stack.enter_context(server))
        self.wait_for({"leader": 1, "follower": 2})

    @property
    def connect(self) -> str:
        """The connect string that names all three."""
        return ",".join(server.connect for server in self.servers)

    def those(self, mode: str) -> list[ZooKeeperLab]:
        """The servers in this mode."""
        return [server for server in self.servers if server.mode() == mode]

    def wait_for(self, modes: Mapping[str, int]) -> None:
        """Return once as many servers as given are in each mode."""
        wait_until(
            lambda: all(len(self.those(mode)) == count for mode, count in modes.items()),
            f"the modes {dict(modes)} of an ensemble",
            timeout_seconds=_START_TIMEOUT_SECONDS,
        )
