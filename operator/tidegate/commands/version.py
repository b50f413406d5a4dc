"""`tidegate version`: the version of the program, for bug reports and upgrade scripts."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, distribution

from tidegate import __version__
from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.output import Document, OutputFormat, Page, publish

CRD_VERSION = "tidegate.io/v1alpha1"
REVISION_VARIABLE = "TIDEGATE_REVISION"  # set when an image is built, where no git is at hand


@options.command
def version(
    around: CommandContext,
    *,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show the version of Tidegate.

    Also shows the Python version, the CRD version and, if known, the revision.
    """
    document = version_document()

    def show(page: Page) -> None:
        for name, value in document.items():
            page.say(f"{name:<16}{value}")

    publish(around.out, output, document, show=show)


def version_document() -> Document:
    """`revision` is there where it is known: in an image, or installed from a git address."""
    revision = os.environ.get(REVISION_VARIABLE) or _installed_revision()
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "customResources": CRD_VERSION,
    }
    return facts | ({"revision": revision} if revision else {})


def _installed_revision() -> str | None:
    """The commit of an installation from git (PEP 610); None for every other."""
    try:
        noted = distribution("tidegate").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    commit = json.loads(noted or "{}").get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None
