"""What API servers of several versions of Kubernetes say to objects, without a server.

`lab/kubernetes/crdcheck_binary` is one program on the library that an API server admits custom
resources with, k8s.io/apiextensions-apiserver. It is built once for each version, from a file of
pins of its own. Only `make test-crds` needs it: the builds take minutes.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab.errors import LabError
from lab.packages import GoModule

_END_TIMEOUT_SECONDS = 10.0


def _module(minor: str) -> GoModule:
    return GoModule(
        program=f"crdcheck-{minor}",
        directory=Path(__file__).parent / "crdcheck_binary",
        package="./cmd/crdcheck",
        title=f"the admission of custom resources of Kubernetes {minor}",
        takes="some minutes",
        packages_compiled=700,
        pins=f"kubernetes-{minor}.mod",
    )


# By the minor version of Kubernetes; the patch is in the file of pins.
ADMISSIONS: Mapping[str, GoModule] = {
    minor: _module(minor)
    for minor in (
        "1.30",
        "1.32",
        "1.34",
    )
}


@dataclass(frozen=True)
class Said:
    """The answer to one object: what is `kept` of it, or, where that is None, why it is
    `refused`.
    """

    kept: dict[str, Any] | None
    refused: str


class Admission:
    """The program for one version, as long as it is asked; a context manager.

    `library` is the version of the library that it was built with, and `rules_since` the version of
    Kubernetes whose functions it lets rules of new definitions use.
    """

    def __init__(self, minor: str) -> None:
        self._title = ADMISSIONS[minor].title
        self._program = subprocess.Popen(
            [str(ADMISSIONS[minor].binary())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._program.stdin is None or self._program.stdout is None:
            raise self._ended()
        self._asked, self._answers = self._program.stdin, self._program.stdout
        about = self._answer()
        self.library, self.rules_since = str(about["version"]), str(about["cel"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets it end by closing its input."""
        try:
            self._program.communicate(timeout=_END_TIMEOUT_SECONDS)
        finally:
            self._program.kill()

    def create(self, document: Mapping[str, Any]) -> Said:
        """The answer to creating this object, strictly: a definition, or one of a kind defined
        before.

        Where it has a status, that is written next, and what is kept of both is returned.
        Raises `LabError` where the program has ended.
        """
        try:
            self._asked.write(json.dumps(document) + "\n")
            self._asked.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        return Said(answer.get("kept"), answer.get("refused", ""))

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> LabError:
        return LabError(
            f"{self._title} has ended instead of answering. What it said of it is on stderr, above."
        )
