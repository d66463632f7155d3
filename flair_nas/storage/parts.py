"""Parts of a corpus or text: train, dev and test, told by the names of their files."""

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
"""Words in the name of a file that tell its part."""


def part_of(file: Path) -> str:
    """Return the part that a file's name has as a word, or an empty text.

    Raises:
        FlairNasError: the name has words of several parts.
    """
    words = set(re.split(r"[^a-z]+", file.name.lower()))
    parts = [part for part, names in PART_NAMES.items() if words & {*names}]
    if len(parts) > 1:
        raise FlairNasError(f"{file}: the name could mean {' or '.join(parts)}; rename the file")
    return "".join(parts)


def find_parts(files: Iterable[Path]) -> dict[str, Path]:
    """Return the file of each part, in the order train, dev, test; others are left out.

    Raises:
        FlairNasError: several files could be a part, or a name could mean several parts.
    """
    found: dict[str, list[Path]] = {part: [] for part in PART_NAMES}
    for file in sorted(files):
        if part := part_of(file):
            found[part].append(file)
    for part, several in found.items():
        if len(several) > 1:
            names = ", ".join(file.name for file in several)
            raise FlairNasError(f"{several[0].parent}: several files could be the {part} part ({names}); keep one here")
    return {part: files[0] for part, files in found.items() if files}
