"""Settings of a pool of processes, and budgets of time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from flair_nas.settings.fields import setting

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(budget: str) -> float | None:
    """The time that a text such as ``90m`` stands for, in seconds; None if it stands for none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", budget.strip())
    return float(found[1]) * _UNITS[found[2]] if found else None


def budget_of(seconds: float) -> str:
    """A time as `seconds_of` reads it, rounded up."""
    unit = "h" if seconds > 10 * 3600 else "m" if seconds > 3 * 60 else "s"
    step = 10 if unit == "s" else 1
    return f"{math.ceil(seconds / _UNITS[unit] / step) * step}{unit}"


def is_time(budget: str) -> str:
    """What is wrong with a text that is to be a time."""
    return "" if seconds_of(budget) else "must be a time with its unit, such as 90m, 2h or 1.5h"


@dataclass
class PoolSettings:
    """Which processes do the work."""

    workers: int | None = setting(
        None, "processes that train side by side (one a core, or one a GPU)", low=1, high=1000
    )
    engine: str = setting(
        "processes", "where they are: processes of this machine, or ray, a Ray cluster", choices=("processes", "ray")
    )
    ray_address: str | None = setting(
        None, "engine ray: the address of a cluster, as auto (one is started on this machine)"
    )
    device: str | None = setting(None, "cpu, cuda or cuda:N (a GPU when there is one)")

    def pool_problems(self) -> list[str]:
        """What contradicts itself."""
        if self.ray_address is not None and self.engine != "ray":
            return ["ray_address belongs to engine ray"]
        return []
