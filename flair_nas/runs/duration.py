"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a duration by its two largest units, such as ``2 h 5 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{round(seconds)} s"
    if minutes < 10:
        return f"{minutes} min" + f" {rest} s" * bool(rest)
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{60 * hours + rest} min" if hours < 2 else f"{hours} h" + f" {rest} min" * bool(rest)
