"""Order of the packages: a lower one never imports an upper one (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import flair_nas

PACKAGE = Path(flair_nas.__file__).parent
ORDER = (
    "errors",
    "version",
    "storage",
    "runtime",
    "settings",
    "runs",
    "drawing",
    "genotype",
    "library",
    "nn",
    "supernet",
    "language_model",
    "tagging",
    "character_model",
    "onnx",
    "search",
    "experiments",
    "select",
    "report",
    "cli",
)
"""All packages and loose modules, from the lowest to the uppermost."""
APART = {("tagging", "language_model")}
"""Pairs that do not import each other, although the order would allow it."""
FLAIR = ("tagging/", "character_model/", "onnx/", "search/objectives/", "experiments/tagging_task.py")
"""Places that may import Flair; others may for types alone."""


def modules() -> dict[str, Path]:
    """Return the file of each module, without the package's entry points."""
    entries = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file not in entries]
    return {".".join(("flair_nas", *file.relative_to(PACKAGE).with_suffix("").parts)): file for file in files}


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


def test_the_order_names_all_packages() -> None:
    assert {name.split(".")[1] for name in modules()} == set(ORDER)


def test_no_import_runs_up() -> None:
    wrong = []
    for name, file in modules().items():
        here = name.split(".")[1]
        for other in imported(file):
            parts = other.split(".")
            if parts[0] != "flair_nas":
                continue
            there = parts[1]
            if there not in ORDER or ORDER.index(there) > ORDER.index(here) or (here, there) in APART:
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    """Imports for types alone may name each other: `search.config` and the strategies that check it do."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, file in known.items():
        ends = [end for other in imported(file, types=False) for end in (other, other.rpartition(".")[0])]
        graph[name] = {end for end in ends if end in known and end != name}
    order = [*TopologicalSorter(graph).static_order()]  # raises CycleError, which names the cycle
    assert set(order) >= set(known)


def test_flair_is_imported_in_its_places_alone() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file in modules().values()
        for name in imported(file, types=False)
        if name.split(".")[0] == "flair" and not file.relative_to(PACKAGE).as_posix().startswith(FLAIR)
    ]
    assert wrong == []
