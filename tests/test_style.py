"""Words that docstrings may not begin with, and names that say nothing of the field (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import flair_nas

PACKAGE = Path(flair_nas.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
FIRST_WORDS = {"What", "Whether", "How", "That", "Those", "Of", "Which", "None", "Nothing", "As", "Likewise"}
NAMES = re.compile(r"_?(of|most|least)_\w+|_?(found|given|told|said)")
"""Names of functions, classes, arguments and attributes that the glossary has a better word for."""
KEYS = {"most_identity"}
"""Settings: they are keys of run folders, which keep their names."""


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a module gives to what lives longer than a few lines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        if isinstance(node, ast.FunctionDef):
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                yield argument.arg, node.lineno
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id, line.lineno


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_docstrings_and_names(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            first = text.split()[0].strip(".,:`")
            if first in FIRST_WORDS:
                wrong.append(f"line {getattr(node, 'lineno', 1)}: a docstring begins with {first}")
    wrong += [
        f"line {line}: the name {name}" for name, line in named(tree) if NAMES.fullmatch(name) and name not in KEYS
    ]
    assert not wrong, "\n".join(wrong)


def test_it_looks_at_all() -> None:
    assert len(FILES) > 100
    shown = ast.parse("class A:\n    x: int\n    def of_b(self, given): ...")
    assert [name for name, _ in named(shown)] == ["A", "x", "of_b", "self", "given"]
