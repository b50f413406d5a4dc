"""The site of docs/ has all that its pages link to, and loads nothing from elsewhere.

That every link leads somewhere is shown by `make docs`, which builds the whole site and takes any warning for an error.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """The hooks as mkdocs loads them: by their path."""
    spec = importlib.util.spec_from_file_location("documentation_site", CHECKOUT / "tools" / "documentation_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def config() -> MkDocsConfig:
    return load_config(str(CHECKOUT / "mkdocs.yml"))


def page(config: MkDocsConfig, path: str) -> Page:
    return Page(None, File(path, config.docs_dir, config.site_dir, use_directory_urls=False), config)


@pytest.mark.parametrize(
    ("at", "written", "shown", "brought"),
    [
        ("operations.md", "[the rights](../examples/rights/operator.yaml)", "[the rights](examples/rights/operator.yaml)", True),
        ("adr/0001-x.md", "[CRDs](../../examples/00-policy.yaml)", "[CRDs](../examples/00-policy.yaml)", True),
        ("user-guide.md", "[examples/](../examples/)", "examples/", False),
        ("index.md", "[how](../CONTRIBUTING.md#start)", "how", False),
        ("adr/0001-x.md", "[limits](../known-limits.md#a)", "[limits](../known-limits.md#a)", False),
        ("index.md", "[gone](../examples/gone.yaml)", "[gone](../examples/gone.yaml)", False),
        ("index.md", "[out](../../etc/passwd)", "[out](../../etc/passwd)", False),
    ],
)
def test_a_link_out_of_the_pages_leads_to_a_copy_or_is_plain_text(
    hooks: ModuleType, config: MkDocsConfig, at: str, written: str, shown: str, brought: bool
) -> None:
    files = Files([])
    assert hooks.on_page_markdown(f"See {written}.", page=page(config, at), config=config, files=files) == f"See {shown}."
    assert bool(len(files)) is brought


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://cdn.test/a.js"></script>',
        "<link rel=stylesheet href=//fonts.test/css>",
        '<img alt="x" src="http://counter.test/1.gif">',
    ],
)
def test_a_page_that_would_load_something_from_elsewhere_is_refused(hooks: ModuleType, config: MkDocsConfig, loads: str) -> None:
    with pytest.raises(PluginError, match=r"index\.md would load .*\.test"):
        hooks.on_post_page(f"<html>{loads}</html>", page=page(config, "index.md"), config=config)


@pytest.mark.parametrize(
    "is_fine", ['<script src="assets/a.js">', '<a href="https://kafka.test/">', '<link rel="canonical" href="https://x.test/">']
)
def test_a_page_may_link_elsewhere(hooks: ModuleType, config: MkDocsConfig, is_fine: str) -> None:
    assert hooks.on_post_page(is_fine, page=page(config, "index.md"), config=config) == is_fine


def test_every_decision_is_in_the_navigation(config: MkDocsConfig) -> None:
    shown = str(config.plugins.on_config(config).nav)
    assert [path.name for path in (CHECKOUT / "docs" / "adr").glob("*.md") if f"adr/{path.name}" not in shown] == []
