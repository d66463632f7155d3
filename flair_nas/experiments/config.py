"""Settings of a pool of processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flair_nas.settings.fields import device_setting, setting

Settings = Mapping[str, Any]
"""The settings of one run, by name."""


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
