"""Durations in words."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Format a duration as seconds, minutes, or hours and minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
