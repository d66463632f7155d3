"""Choosing Flair's device."""

from __future__ import annotations

import flair

from flair_nas.device import choose_device


def use_device(name: str | None) -> None:
    """Has Flair compute on a device.

    Args:
        name: cpu, cuda or cuda:N; None leaves Flair's choice, a GPU when there is one.

    Raises:
        FlairNasError: no such device here.
    """
    if name is not None:
        flair.device = choose_device(name)
