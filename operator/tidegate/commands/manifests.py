"""Custom resources from YAML files, as `kubectl apply -f` would take them, but read strictly: a spelling mistake is an error.

Objects of other kinds in the same files are passed over, so that a whole application's folder can be given. It asks nobody.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import yaml

from controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, NotFound
from tidegate.resources.kinds import API_VERSION, KINDS, parse_object

Manifest = Mapping[str, Any]
SUFFIXES = (".yaml", ".yml")
STANDARD_INPUT = "-"
_KINDS = frozenset(kind.kind for kind in KINDS)


class _AsKubectlReads(yaml.SafeLoader):
    """YAML in which a time is the text that was written, as it is for kubectl, whether somebody put it into quotes or not."""


_AsKubectlReads.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_manifests(sources: Iterable[str], *, namespace: str, standard_input: TextIO = sys.stdin) -> tuple[Manifest, ...]:
    """Every policy, tier and override in these files and directories (not deeper), in order; each has a namespace afterwards.

    Raises NotFound for a source that does not exist or a directory without YAML, InvalidResource for what does not parse,
    for an object that breaks its schema, and for two objects of the same kind and name.
    """
    manifests: dict[tuple[str, str, str], Manifest] = {}
    for name, text in _texts(sources, standard_input):
        for document in _documents(name, text):
            manifest = _with_namespace(document, namespace)
            parse_object(manifest, strict=True)
            key = (manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            if key in manifests:
                raise InvalidResource(
                    f"{key[0]} {key[1]}/{key[2]} appears twice in the given files, the second time in {name}. Remove one."
                )
            manifests[key] = manifest
    return tuple(manifests.values())


def _texts(sources: Iterable[str], standard_input: TextIO) -> Iterator[tuple[str, str]]:
    for source in sources:
        if source == STANDARD_INPUT:
            yield "standard input", standard_input.read()
            continue
        for path in _paths(Path(source)):
            yield str(path), _text_of(path)


def _paths(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = sorted(path for path in source.iterdir() if path.suffix in SUFFIXES)
    if not found:
        raise NotFound(Reason.INVALID_SPEC, f"Directory {source} has no {' or '.join(SUFFIXES)} file; nothing was planned.")
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(Reason.INVALID_SPEC, f"File {path} cannot be read ({error}); nothing was planned.") from error


def _documents(name: str, text: str) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.load_all(text, Loader=_AsKubectlReads))
    except yaml.YAMLError as error:
        raise InvalidResource(f"{name} is not YAML: {error}. Nothing was planned.") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InvalidResource(f"{name} holds a document that is not an object. Nothing was planned.")
        yield from _ours(name, document)


def _ours(name: str, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document itself, the items of a List, or nothing for a foreign object. Our kinds in an unknown version are refused."""
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, dict):
                yield from _ours(name, item)
        return
    version = str(document.get("apiVersion", ""))
    known_kind = document.get("kind") in _KINDS
    if known_kind and version.partition("/")[0] != API_VERSION.partition("/")[0]:
        raise InvalidResource(f"{name} holds a {document['kind']} of {version or 'no apiVersion'}; this version knows {API_VERSION}.")
    if version.partition("/")[0] == API_VERSION.partition("/")[0]:
        yield document


def _with_namespace(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}
