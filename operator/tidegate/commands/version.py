"""`tidegate version`: which program this is, for bug reports and upgrade scripts. It asks nobody."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, distribution

import typer

from tidegate import __version__
from tidegate.commands import options
from tidegate.commands.context import surroundings_of
from tidegate.commands.output import Document, OutputFormat, Page, publish

CRD_VERSION = "tidegate.io/v1alpha1"
REVISION_VARIABLE = "TIDEGATE_REVISION"  # set when an image is built, where no git is at hand


def version(context: typer.Context, *, output: options.Output = OutputFormat.TABLE, debug: options.Debug = False) -> None:
    """Say which version this is, on which Python, and which custom resources it speaks."""
    around = surroundings_of(context, debug=debug)
    document = version_document()

    def show(page: Page) -> None:
        for name, value in document.items():
            page.say(f"{name:<16}{value}")

    publish(around.out, output, document, show=show)


def version_document() -> Document:
    """`revision` is there only where it is known: in a built image, or installed from a git address."""
    revision = os.environ.get(REVISION_VARIABLE) or _installed_revision()
    facts = {"version": __version__, "python": platform.python_version(), "customResources": CRD_VERSION}
    return facts | ({"revision": revision} if revision else {})


def _installed_revision() -> str | None:
    """The commit that pip or uv noted when the package came from git (PEP 610); None for every other installation."""
    try:
        noted = distribution("tidegate").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    commit = json.loads(noted or "{}").get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None
