"""Description of this processor."""

from __future__ import annotations

import contextlib


def read_processor() -> dict[str, str]:
    """Return the lines of /proc/cpuinfo for the first core, by name; none where there is no such file."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        first = iter(lambda: lines.readline().strip(), "")  # up to the empty line after the first core
        parts = (line.partition(":") for line in first)
        return {name.strip(): value.strip() for name, _, value in parts}
    return {}
