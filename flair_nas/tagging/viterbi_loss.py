"""Flair's CRF loss in time linear in the length of sentences, with the same value and the same gradients.

Flair's loop picks the scores of time step t out of [B, T, tags, tags], and autograd gives each such pick a gradient as
large as all scores, zeros but for one step: T times T of them a batch. Taken apart once, each step has one of its own.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from torch import Tensor


class _ByStep:
    """Scores [B, T, tags, tags] that are taken apart into time steps; in all else the tensor itself."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self._steps = scores.unbind(1)  # T of [B, tags, tags]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scores, name)

    def __getitem__(self, place: tuple[Any, ...]) -> Tensor:
        sentences, step, *tags = place
        of_step: Tensor = self._steps[step]
        return of_step[tuple([sentences, *tags])]


def register_viterbi_loss(module: ModuleType) -> None:
    """Has `ViterbiLoss` of `flair.models.sequence_tagger_utils.viterbi` take its scores apart; once is enough."""
    loss = module.ViterbiLoss
    if getattr(loss, "_flair_nas_registered", False):
        return
    flair_forward = loss.forward

    @functools.wraps(flair_forward)
    def forward(self: Any, features_tuple: tuple[Any, ...], targets: Tensor) -> Tensor:
        scores, *rest = features_tuple
        found: Tensor = flair_forward(self, (_ByStep(scores), *rest), targets)
        return found

    loss.forward = forward
    loss._flair_nas_registered = True
