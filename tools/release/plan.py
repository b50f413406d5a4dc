"""What a release is made of before anything is built: its version, its changelog, what is missing.

Everything here is decided from texts and facts that are passed in. `prepared` makes the edits of
the commit that is released, `refusals` says why a tree cannot be released, and `notes` is what
people read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from lab.errors import LabError

# The changelog: sections that begin with `## VERSION - YYYY-MM-DD`, the newest first, and before
# them `## Unreleased`. Each entry is a list item with a tag.


UNRELEASED = "Unreleased"
VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?")
_HEADING = re.compile(r"^## (?P<name>\S+)(?: - (?P<when>.*))?$", re.MULTILINE)
_ENTRY = re.compile(
    r"^- (?:\[(?P<tag>[A-Z]+)\] )?(?P<text>.*(?:\n(?:  .*)?(?=\n|\Z))*)", re.MULTILINE
)
_TAGGED = re.compile(r"^- \[[A-Z]+\] ", re.MULTILINE)
_REMARK = re.compile(r"<!--.*?-->\n*", re.DOTALL)  # for those who write the changelog
_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)]*\)")
_KINDS = {
    "CHANGE": "What needs your attention when you upgrade",
    "FEATURE": "New",
    "ENHANCEMENT": "Better",
    "BUGFIX": "Fixed",
}


@dataclass(frozen=True)
class Section:
    """One version's part of the changelog: what its heading says after the version, and its text.

    `when` is empty where the heading ends with the version.
    """

    version: str
    when: str
    text: str

    def entries(self, tag: str) -> list[str]:
        """The entries with this tag, in their order, without the tag.

        With an empty one: those that have no tag, or one that means nothing here.
        """
        return [
            found["text"].strip()
            for found in _ENTRY.finditer(self.text, len(self._before_entries))
            if (found["tag"] if found["tag"] in _KINDS else "") == tag
        ]

    @property
    def introduction(self) -> str:
        """The text above the first entry with a tag, lists without tags included."""
        return self._before_entries.strip()

    @property
    def _before_entries(self) -> str:
        first = _TAGGED.search(self.text)
        return self.text[: first.start()] if first else self.text

    @property
    def released_on(self) -> date | None:
        """The day in its heading; None where there is something else."""
        try:
            return date.fromisoformat(self.when)
        except ValueError:
            return None


def sections(changelog: str) -> dict[str, Section]:
    """The changelog's sections by version, `UNRELEASED` among them, in their order."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    return {
        heading["name"]: Section(
            heading["name"], heading["when"] or "", changelog[heading.end() : end].strip("\n")
        )
        for heading, end in zip(headings, ends, strict=True)
    }


def section_of(changelog: str, version: str) -> Section:
    """The section of a version; where there is none yet (a dry run), what is unreleased."""
    found = sections(changelog)
    coming = found.get(UNRELEASED, Section(UNRELEASED, "", ""))
    return found.get(version) or Section(version, "", coming.text)


# What a release would be refused for.


@dataclass(frozen=True)
class Tree:
    """The tree that is to be released, as Git and its files have it.

    `versions` has the version by the place that names it, `home` is the project's address in the
    chart, `changes` are the paths that differ from the commit, `tags` the tags of that commit.
    """

    version: str
    versions: Mapping[str, str]
    changelog: str
    changes: Sequence[str]
    tags: Sequence[str]
    home: str


_REGISTRY = re.compile(
    r"(?:[a-z0-9]|[a-z0-9][a-z0-9.-]*[a-z0-9])(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)
_MOST_SHOWN = 5


def refusals(
    tree: Tree, *, registry: str, key_problem: str | None, with_rollups: bool, today: date
) -> list[str]:
    """Why this cannot be released, each with what to do; empty when it can.

    `key_problem` says what is wrong with the key, None when nothing is.
    """
    return [
        *_version_refusals(tree),
        *_commit_refusals(tree),
        *_changelog_refusals(tree, today),
        *_home_refusals(tree),
        *registry_refusals(registry),
        *([key_problem] if key_problem else []),
        *(
            []
            if with_rollups
            else [
                "ROLLUP=no leaves out the image of rollup Jobs, which the chart names: it is for "
                "dry runs only. Leave it away."
            ]
        ),
    ]


def registry_refusals(registry: str) -> list[str]:
    """Why no image can be named after this registry; empty when one can."""
    if not registry:
        return [
            "There is no registry to push to. Set REGISTRY to its host and folder, such as "
            "REGISTRY=registry.example/team."
        ]
    if not _REGISTRY.fullmatch(registry):
        return [
            f"REGISTRY={registry} is no place for images. Give host and folder in lower case, "
            f"without https:// and without a slash at the end, such as registry.example/team."
        ]
    return []


def _version_refusals(tree: Tree) -> Iterator[str]:
    other = {place: found for place, found in tree.versions.items() if found != tree.version}
    if not VERSION.fullmatch(tree.version):
        yield (
            f"pyproject.toml has version {tree.version}, which is not MAJOR.MINOR.PATCH. `make "
            f"release-prepare VERSION=...` sets one."
        )
    if other:
        shown = ", ".join(f"{place} has {found}" for place, found in sorted(other.items()))
        yield (
            f"pyproject.toml has version {tree.version}, but {shown}. `make release-prepare "
            f"VERSION={tree.version}` sets it everywhere."
        )


def _commit_refusals(tree: Tree) -> Iterator[str]:
    if tree.changes:
        shown = ", ".join(tree.changes[:_MOST_SHOWN])
        more = len(tree.changes) - _MOST_SHOWN
        yield (
            f"The tree is not what is committed: {shown}{f' and {more} more' if more > 0 else ''}. "
            f"Commit these, or put them away with `git stash --include-untracked`."
        )
    wanted = f"v{tree.version}"
    if wanted not in tree.tags:
        has = f"has the tag {', '.join(tree.tags)}" if tree.tags else "has no tag"
        yield (
            f"This commit {has}, and version {tree.version} wants {wanted}. Tag the commit that is "
            f"released: `git tag -s {wanted}`."
        )


def _changelog_refusals(tree: Tree, today: date) -> Iterator[str]:
    found = sections(tree.changelog)
    section = found.get(tree.version)
    prepare = f"`make release-prepare VERSION={tree.version}` makes it of what is unreleased"
    if section is None:
        yield f"CHANGELOG.md has no section {tree.version}. {prepare}."
    elif not section.text.strip():
        yield f"The section {tree.version} of CHANGELOG.md is empty. {prepare}."
    elif (released_on := section.released_on) is None:
        yield (
            f"The section {tree.version} of CHANGELOG.md has no day in its heading: it has to be "
            f"`## {tree.version} - YYYY-MM-DD`. {prepare}."
        )
    elif released_on > today:
        yield (
            f"The section {tree.version} of CHANGELOG.md is of {released_on}, which is still to "
            f"come. Release it that day, or correct its heading."
        )
    unreleased = found.get(UNRELEASED)
    if unreleased is not None and unreleased.text.strip():
        count = len(_TAGGED.findall(unreleased.text))
        yield (
            f"CHANGELOG.md has unreleased entries ({count}), though this commit holds what they "
            f"are about. {prepare}."
        )


def _home_refusals(tree: Tree) -> Iterator[str]:
    host = tree.home.partition("://")[2].partition("/")[0]
    if host.endswith((".example", ".example.com")):
        yield (
            f"charts/tidegate/Chart.yaml names {tree.home} as the project's address, which is a "
            f"placeholder. Write the real one there, wherever it stands, and run `make generate`."
        )


# The commit that is released: the version everywhere, and the changelog's section with its day.


_VERSION = r"[0-9][0-9A-Za-z.+-]*"
# path -> what finds the version there; all of them have to agree
PLACES: Mapping[str, str] = {
    "pyproject.toml": rf'^version = "({_VERSION})"$',
    "uv.lock": rf'^name = "tidegate"\nversion = "({_VERSION})"$',
    "operator/tidegate/__init__.py": rf'^__version__ = "({_VERSION})"$',
    "charts/tidegate/Chart.yaml": rf'^(?:version: |appVersion: ")({_VERSION}?)"?$',
    "Dockerfile": rf'image\.version="({_VERSION})"',
    "image/Dockerfile": rf'image\.version="({_VERSION})"',
}
# names of images and archives, and labels, wherever pages, examples and tests have them
_MENTION = (
    r"(?:(?<=tidegate:)|(?<=tidegate-)|(?<=tidegate-rollup:)|(?<=tidegate-rollup-)"
    r"|(?<=tidegate-console:)|(?<=tidegate-console-)|(?<=tidegate-forwarder:)"
    r'|(?<=tidegate-forwarder-)|(?<=newTag: ")'
    r'|(?<=targetRevision: v)|(?<=kubernetes\.io/version: ")){old}(?![0-9A-Za-z-])'
)


def versions(texts: Mapping[str, str]) -> dict[str, str]:
    """The version that each of `PLACES` names; where one names two, both joined by a comma.

    `texts` has the text of each place. Raises `LabError` where a place names none.
    """
    found = {
        place: sorted(set(re.findall(pattern, texts[place], re.MULTILINE)))
        for place, pattern in PLACES.items()
    }
    silent = [place for place, names in found.items() if not names]
    if silent:
        raise LabError(
            f"No version was found in {', '.join(silent)}. tools/release/plan.py has the pattern "
            f"that looks for it there."
        )
    return {place: ", ".join(names) for place, names in found.items()}


def prepared(texts: Mapping[str, str], version: str, *, today: date) -> dict[str, str]:
    """The texts that change when `version` is to be released, with what they change to.

    `texts` has every file of the tree that may name the version, by its path, CHANGELOG.md and all
    `PLACES` among them. Raises `LabError` for a version that is none, or is out already.
    """
    if not VERSION.fullmatch(version):
        raise LabError(f"{version} is no version: give MAJOR.MINOR.PATCH, such as 0.2.0.")
    old = versions(texts)["pyproject.toml"]
    mention = re.compile(_MENTION.format(old=re.escape(old)))
    changed = {}
    for path, text in texts.items():
        if path == "CHANGELOG.md":
            new = _dated(text, version, today)
        elif path in PLACES:
            new = mention.sub(version, _set_version(path, text, version))
        else:
            new = mention.sub(version, text)
        if new != text:
            changed[path] = new
    return changed


def named_in_sentences(texts: Mapping[str, str], version: str) -> list[str]:
    """Where pages speak of this version or its minor, as `PAGE:LINE`: for people to read."""
    major_minor = re.escape(".".join(version.split(".")[:2]))
    spoken = re.compile(rf"\b(?:at|[Vv]ersion|branch) ?\(?{major_minor}\b")
    return [
        f"{path}:{number}"
        for path, text in texts.items()
        if path.endswith(".md") and path != "CHANGELOG.md"
        for number, line in enumerate(text.splitlines(), start=1)
        if spoken.search(line)
    ]


def _set_version(path: str, text: str, version: str) -> str:
    def with_version(found: re.Match[str]) -> str:
        whole, start = found[0], found.start()
        return whole[: found.start(1) - start] + version + whole[found.end(1) - start :]

    return re.sub(PLACES[path], with_version, text, flags=re.MULTILINE)


def _dated(changelog: str, version: str, today: date) -> str:
    """The changelog with what was unreleased below the version's introduction, and a new day."""
    found = sections(changelog)
    unreleased = found.get(UNRELEASED, Section(UNRELEASED, "", ""))
    section = found.get(version, Section(version, "", ""))
    if section.released_on is not None and not unreleased.text.strip():
        return changelog
    if section.released_on is not None and section.released_on < today:
        raise LabError(
            f"Version {version} is of {section.released_on} in CHANGELOG.md, and there are newer "
            f"entries. Choose the next version for them."
        )
    parts = (_REMARK.sub("", part.text).strip() for part in (section, unreleased))
    body = "\n\n".join(part for part in parts if part)
    head = changelog[: _HEADING.search(changelog).start()]  # type: ignore[union-attr]
    rest = "".join(
        f"\n## {other.version}{f' - {other.when}' if other.when else ''}\n\n{other.text}\n"
        for other in found.values()
        if other.version not in (UNRELEASED, version)
    )
    return f"{head}## {UNRELEASED}\n\n## {version} - {today}\n\n{body}\n{rest}"


# What people read on the page of a release.


@dataclass(frozen=True)
class Pushed:
    """Something in a registry: what it is, its name without tag, its tag and its digest."""

    title: str
    repository: str
    tag: str
    digest: str

    @property
    def pinned(self) -> str:
        """The name that can only ever mean this."""
        return f"{self.repository}@{self.digest}"


def notes(section: Section, pushed: Sequence[Pushed]) -> str:
    """The release notes: how to install, then the changelog's section sorted by what it means."""
    section = replace(section, text=_REMARK.sub("", section.text))
    chart = next((one for one in pushed if one.repository.endswith("/charts/tidegate")), None)
    install = (
        [
            "```sh",
            f"helm install tidegate oci://{chart.repository} --version {chart.tag} "
            f"--namespace tidegate --create-namespace",
            "# or without Helm, from the files of this release:",
            "kubectl apply --server-side -f install.yaml",
            "# the command line without a clone, by uv or as a plugin of kubectl:",
            f"uvx --from tidegate-{section.version}-py3-none-any.whl tidegate --help",
            "kubectl krew install --manifest=krew.yaml "
            f"--archive=kubectl-tidegate-{section.version}.tar.gz",
            "```",
        ]
        if chart
        else []
    )
    rows = [f"| {one.title} | `{one.pinned}` |" for one in pushed]
    table = ["| what | where |", "|---|---|", *rows] if rows else []
    kinds = [
        f"## {title}\n\n" + "\n".join(f"- {_plain(entry)}" for entry in entries)
        for tag, title in {**_KINDS, "": "Other"}.items()
        if (entries := section.entries(tag))
    ]
    parts = [
        f"# Tidegate {section.version}",
        _plain(section.introduction),
        "\n".join(install),
        "\n".join(table),
        "All of it is signed; `docs/releasing.md` has the commands that check it." if rows else "",
        *kinds,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _plain(text: str) -> str:
    """Without links into the tree, which lead nowhere from the page of a release."""
    return _RELATIVE_LINK.sub(r"\1", text)
