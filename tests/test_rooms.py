"""Rooms of the package, and the arrows between them: a lower one never imports an upper one (docs/architecture.md).

A room is a package, or a loose module, beside `flair_nas/__init__.py`; `benchmarks/` and `website/` are rooms, too. An
arrow runs from a room to one that it imports, within functions or for types alone, too. A module that is named in a
string and loaded by that name is imported like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import flair_nas

PACKAGE = Path(flair_nas.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
ORDER = (
    "errors",
    "version",
    "storage",
    "genotype",
    "runtime",
    "settings",
    "runs",
    "drawing",
    "nn",
    "library",
    "supernet",
    "language_model",
    "tagging",
    "embedding",
    "onnx",
    "search",
    "experiments",
    "tune",
    "report",
    "cli",
)
"""All packages and loose modules, from the lowest to the uppermost."""
APART = {("tagging", "language_model")}
"""Pairs that do not import each other, although the order would allow it."""
FLAIR = ("tagging/", "embedding/", "onnx/", "search/objectives/", "experiments/tagging_task.py")
"""Places that may import Flair; others may for types alone."""
LOADERS = {"import_module", "resolve_name"}
"""Functions that import a module by a string."""


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module; that of a package is named after its folder."""
    files = [file for folder in (PACKAGE, ROOT / "benchmarks", ROOT / "website") for file in folder.rglob("*.py")]
    names = {}
    for file in sorted(files):
        base = PACKAGE.parent if file.is_relative_to(PACKAGE) else ROOT
        names[".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__")] = file
    return names


def room_of(name: str) -> str:
    """Return the room of a module: ``flair_nas`` itself for the public names and the command's entry point."""
    first, *rest = name.split(".")
    return rest[0] if first == "flair_nas" and rest and rest[0] != "__main__" else first


@cache
def parse(file: Path) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file: Path, types: bool = True) -> Iterator[str]:
    """Yield the full names that a file imports, within functions too, and for types alone if asked to."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{file}: a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def strings(file: Path) -> set[str]:
    """Return the strings of a file."""
    return {node.value for node in ast.walk(parse(file)) if isinstance(node, ast.Constant) and type(node.value) is str}


def loaded(file: Path) -> Iterator[str]:
    """Yield the modules that a file names in a string and loads.

    A string may be the end of a name, such as ``evolution:Evolution``; the call of the loader then has the beginning.
    It may be in a table of another module, a name in capitals that the file imports.
    """
    calls = [node for node in ast.walk(parse(file)) if isinstance(node, ast.Call)]
    calls = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in LOADERS]
    texts = {node.value for call in calls for node in ast.walk(call) if isinstance(node, ast.Constant)}
    starts = {"", *(text for text in texts if str(text).endswith("."))}
    homes = {name.rpartition(".")[0] for name in imported(file) if name.rpartition(".")[2].isupper()}
    for table in [file, *(modules()[home] for home in homes & modules().keys())] if calls else ():
        for text in strings(table):
            yield from (start + text.partition(":")[0] for start in starts if start or "." in text)


@cache
def arrows(name: str) -> frozenset[str]:
    """Return the modules that a module imports, by statements or by strings."""
    file = modules()[name]
    stub = file.with_suffix(".pyi")  # of public names that are loaded when they are asked for
    found = {*imported(file), *(imported(stub) if stub.exists() else ())}
    homes = {other if other in modules() else other.rpartition(".")[0] for other in found}
    return frozenset({*homes, *loaded(file)} & modules().keys() - {name})


def test_the_order_names_all_packages() -> None:
    assert {room_of(name) for name in modules()} == {*ORDER, "flair_nas", "benchmarks", "website"}


def test_no_import_runs_up() -> None:
    wrong = []
    for name in modules():
        here = room_of(name)
        for other in arrows(name) if here in ORDER else ():
            there = room_of(other)
            if there not in ORDER or ORDER.index(there) > ORDER.index(here) or (here, there) in APART:
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    order = [*TopologicalSorter({name: arrows(name) for name in modules()}).static_order()]  # raises CycleError
    assert {*order} == {*modules()}


def test_there_are_few_rooms_and_arrows() -> None:
    pairs = {(room_of(name), room_of(other)) for name in modules() for other in arrows(name)}
    pairs = {(here, there) for here, there in pairs if here != there}
    assert len({room_of(name) for name in modules()}) <= 23
    assert len(pairs) <= 150


def test_flair_is_imported_in_its_places_alone() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file in modules().values()
        for name in imported(file, types=False)
        if file.is_relative_to(PACKAGE)
        and name.split(".")[0] == "flair"
        and not file.relative_to(PACKAGE).as_posix().startswith(FLAIR)
    ]
    assert wrong == []
