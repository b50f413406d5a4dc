"""Which module of the repository imports which, read from the sources without importing anything.

Every import counts: those in functions and those for type checkers too, since a reader has to
follow them all the same.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Module:
    """One source file. `name` is what other modules import it by."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def is_empty(self) -> bool:
        """Nothing in it, or nothing but its docstring."""
        return len(self.tree.body) == bool(self.docstring)


@dataclass(frozen=True, slots=True)
class ImportGraph:
    """Modules by name, and for each the modules that it imports."""

    modules: Mapping[str, Module]
    imports: Mapping[str, frozenset[str]]

    def importers(self, name: str) -> list[str]:
        """The modules that import this one."""
        return sorted(one for one, imported in self.imports.items() if name in imported)


def import_graph(*folders: tuple[Path, Path]) -> ImportGraph:
    """Of all modules below some folders; each comes with the folder that its modules' names begin
    at. Empty `__init__.py` are left out.
    """
    found = [module for start, folder in folders for module in _modules(start, folder)]
    modules = {
        module.name: module for module in found if not (module.is_package and module.is_empty)
    }
    return ImportGraph(
        modules,
        {name: frozenset(_imported(module, modules)) - {name} for name, module in modules.items()},
    )


def _modules(start: Path, folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(start).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        yield Module(name, path, text, ast.parse(text, str(path)))


def _imported(module: Module, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            for alias in node.names:
                yield from [name for name in (f"{base}.{alias.name}", base) if name in known][:1]


def _base(module: Module, node: ast.ImportFrom) -> str:
    """The name between `from` and `import`, relative imports resolved."""
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    parents = package[: len(package) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def circle_in(imports: Mapping[str, Collection[str]]) -> list[str]:
    """Names that import each other in a circle; empty where none do."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as found:
        return sorted(set(found.args[1]))
    return []
