"""Parts of a corpus or text, by the names of their files: train, dev and test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from flair_nas.errors import FlairNasError

PART_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "testa"),
    "test": ("test", "testing", "testb"),
}
"""Words of file names, by part."""


def parts_in(name: str) -> list[str]:
    """Return the parts that have a word in the name of a file."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    return [part for part, names in PART_NAMES.items() if words & {*names}]


def part_of(file: Path) -> str:
    """Return the part whose word is in a file's name, or an empty string.

    Raises:
        FlairNasError: the name has words of several parts.
    """
    parts = parts_in(file.name)
    if len(parts) > 1:
        raise FlairNasError(f"{file}: the name could mean {' or '.join(parts)}; rename the file")
    return "".join(parts)


def find_parts(files: Iterable[Path]) -> dict[str, Path]:
    """Return the file of each part, in the order train, dev, test; leave out other files.

    Raises:
        FlairNasError: several files could be a part, or a name could mean several parts.
    """
    by_part = [(part_of(file), file) for file in sorted(files)]
    parts = {part: [file for name, file in by_part if name == part] for part in PART_NAMES}
    for part, several in parts.items():
        if len(several) > 1:
            names = ", ".join(file.name for file in several)
            raise FlairNasError(f"{several[0].parent}: several files could be the {part} part ({names}); keep one here")
    return {part: several[0] for part, several in parts.items() if several}
