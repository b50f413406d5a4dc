"""What mkdocs does not do by itself for the site of docs/: the list of decisions, links to files
beside docs/, and nothing from elsewhere.

The pages are written to be read in the repository as well, where a link may lead to any file of the
checkout. Such a file comes into the site; a link to a folder or to another page of the repository
becomes plain text. What leads nowhere stays as it is, and the strict build refuses it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_CHECKOUT = Path(__file__).resolve().parents[1]
_DECISIONS = "adr/README.md"
_LINK_OUT = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|link(?![^>]+rel=\"?(?:canonical|next|prev))[^>]*?)[^>]*?\s(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the decisions under the page that lists them; a new one needs no line in mkdocs.yml."""
    folder = Path(config.docs_dir)
    decisions = sorted(
        path.relative_to(folder).as_posix()
        for path in (folder / _DECISIONS).parent.glob("[0-9]*.md")
    )
    config.nav = _with_decisions(config.nav, {"Decisions": [_DECISIONS, *decisions]})
    return config


def _with_decisions(entry: Any, decisions: dict[str, list[str]]) -> Any:
    """The navigation, or a part of it, with the section of decisions where it names their list."""
    match entry:
        case list():
            return [_with_decisions(below, decisions) for below in entry]
        case dict():
            return {title: _with_decisions(below, decisions) for title, below in entry.items()}
    return decisions if entry == _DECISIONS else entry


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Bring the files that a page links to into the site."""
    folder = posixpath.dirname(page.file.src_uri)
    docs = Path(config.docs_dir).name

    def brought(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(docs, folder, link[2]))
        source = _CHECKOUT / path
        if path.startswith((f"{docs}/", "../")) or not source.exists():
            return link[0]
        if source.is_dir() or source.suffix == ".md":
            return link[1]
        if files.get_file_from_path(path) is None:
            files.append(File(path, str(_CHECKOUT), config.site_dir, config.use_directory_urls))
        return f"[{link[1]}]({posixpath.relpath(path, folder or '.')})"

    return _LINK_OUT.sub(brought, markdown)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Refuse a page that would load something from another host: a site must neither need another
    host nor disclose its readers to one.
    """
    if elsewhere := sorted(set(_LOADED.findall(output))):
        raise PluginError(
            f"{page.file.src_uri} would load {', '.join(elsewhere)}; put it beside the page instead"
        )
    return output
