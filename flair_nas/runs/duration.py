"""Durations in words, and budgets of time."""

from __future__ import annotations

import math
import re

MARGIN = 0.85
"""Fraction of the time left to plan with: some runs take longer than measured."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(text: str) -> float | None:
    """Return the seconds of a text such as ``90m``, or None if it is no time."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    return float(match[1]) * _UNITS[match[2]] if match else None


def format_time(seconds: float) -> str:
    """Return a time, rounded up, as `parse_time` reads it."""
    unit = "h" if seconds > 10 * 3600 else "m" if seconds > 3 * 60 else "s"
    step = 10 if unit == "s" else 1
    return f"{math.ceil(seconds / _UNITS[unit] / step) * step}{unit}"


def check_time(text: str) -> str:
    """Return what is wrong with a time, or an empty string."""
    return "" if parse_time(text) else "must be a time above 0 with its unit, such as 90m, 2h or 1.5h"


def duration(seconds: float) -> str:
    """Format a duration by its two largest units, such as ``2 h 5 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{round(seconds)} s"
    if minutes < 10:
        return f"{minutes} min" + f" {rest} s" * bool(rest)
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{60 * hours + rest} min" if hours < 2 else f"{hours} h" + f" {rest} min" * bool(rest)
