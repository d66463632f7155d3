"""Random damage to a file, as disks, copies that were cut off, and people do it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

KINDS = ("cut", "bits", "bytes", "zeros", "noise", "append", "empty", "delete", "folder", "swap")


class Damage(NamedTuple):
    """What is done to a file."""

    kind: str  # one of KINDS
    place: float  # where it begins, as a share of the file
    size: int  # how many bits or bytes it is about
    seed: int  # of places and bytes that are drawn, and of the file that it is swapped with

    def apply(self, path: Path, others: list[Path]) -> set[Path]:
        """Damages a file, which may be swapped with another; gives what is no longer as it was."""
        content, draw = bytearray(path.read_bytes()), random.Random(self.seed)
        start = int(self.place * len(content))
        end = min(start + self.size, len(content))
        if self.kind == "swap":
            other = draw.choice(others)
            held = other.read_bytes()
            other.write_bytes(content)
            path.write_bytes(held)
            return {path, other}
        elif self.kind in ("delete", "folder"):
            path.unlink()
            if self.kind == "folder":
                path.mkdir()
        else:
            if self.kind == "cut":
                del content[start:]
            elif self.kind == "zeros":
                content[start:end] = bytes(end - start)
            elif self.kind == "noise":
                content[start:end] = draw.randbytes(end - start)
            elif self.kind == "append":
                content += draw.randbytes(self.size)
            elif self.kind == "empty":
                content.clear()
            for _ in range(min(self.size, 64) if content and self.kind in ("bits", "bytes") else 0):
                place = draw.randrange(len(content))
                content[place] ^= 1 << draw.randrange(8) if self.kind == "bits" else draw.randrange(1, 256)
            path.write_bytes(content)
        return {path}


DAMAGES = st.builds(
    Damage,
    kind=st.sampled_from(KINDS),
    place=st.floats(0, 1, exclude_max=True),
    size=st.integers(1, 64) | st.integers(1, 5000),
    seed=st.integers(0, 2**32 - 1),
)


def files_of(folder: Path) -> list[Path]:
    """All files below a folder that are read again, in an order that is always the same."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".svg", ".txt")]
