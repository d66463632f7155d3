"""Settings of a pool of processes, and budgets of time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flair_nas.settings.fields import device_setting, setting

Settings = Mapping[str, Any]
"""The settings of one run, by name."""

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


@dataclass
class PoolSettings:
    """Settings of the processes that train."""

    workers: int | None = setting(
        None, "processes that train side by side (one a core, or one a GPU)", low=1, high=1000
    )
    engine: str = setting(
        "processes", "where they are: processes of this machine, or ray, a Ray cluster", choices=("processes", "ray")
    )
    ray_address: str | None = setting(
        None, "engine ray: the address of a cluster, as auto (one is started on this machine)"
    )
    device: str | None = device_setting()

    def pool_problems(self) -> list[str]:
        """Return a sentence for each contradiction."""
        misplaced = self.ray_address is not None and self.engine != "ray"
        return ["ray_address belongs to engine ray"] if misplaced else []
