"""Rooms: a lower one never imports a higher one (CONTRIBUTING.md), also not within a function or for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import flair_nas

PACKAGE = Path(flair_nas.__file__).parent
FROM_BELOW = ("genotype", "operations", "kernels", "recurrence", "gates", "cell", "recurrent", "supernet")
TOP = ("tagging", "language_model", "search", "select", "tables", "cli")


def above(room: str) -> set[str]:
    """The rooms that one must not import; nobody imports the package itself."""
    if room in TOP:  # texts and tags know nothing of each other
        return {*TOP[TOP.index(room) + 1 :], *({"tagging"} if room == "language_model" else ())}
    return {*TOP, *(FROM_BELOW[FROM_BELOW.index(room) + 1 :] if room in FROM_BELOW else ())}


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, by their full names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{file}: a relative import"
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_no_arrow_runs_up() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.parent == PACKAGE and file.name in ("__init__.py", "__main__.py"):  # the door, and the command
            continue
        forbidden = above(file.relative_to(PACKAGE).parts[0].removesuffix(".py"))
        for name in imported(file):
            package, _, rest = name.partition(".")
            if package == "flair_nas" and (not rest or rest.partition(".")[0] in forbidden):
                found.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert found == []
