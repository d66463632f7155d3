"""Random search with shared weights (Li and Talwalkar, UAI 2019)."""

from __future__ import annotations

import math

from tqdm import tqdm

from flair_nas.search.perturbation import loss_on_segments
from flair_nas.search.protocols import StepFigures
from flair_nas.search.strategies.whole_cells import Candidates, draw

FINALISTS = 10
"""Candidates that are scored on the whole validation part."""


class SharedRandomSearch(Candidates):
    """One set of weights, trained on another random architecture at each step; then candidates are compared with it.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place.
    """

    def step(self, epoch: int, step: int) -> StepFigures:
        """Draws an architecture and descends its training loss."""
        self.finished = False  # of a search that is extended
        # numbers below `samples` belong to the candidates
        self.supernet.choose(draw(self.config, self.samples + self.steps_done))
        self.steps_done += 1
        loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        self.supernet.choose(draw(self.config, 0))
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def finish(self, progress: bool) -> None:
        """Scores all candidates on a few segments, and the best of them on the whole validation part."""
        module = self.objective.module.eval()
        first: dict[int, float] = {}
        for number in tqdm(range(self.samples), "candidates", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            loss = loss_on_segments(self.objective, self.config.sample_segments, self.reduce)
            first[number] = math.inf if math.isnan(loss) else loss
        finalists = sorted(first, key=lambda number: (first[number], number))[:FINALISTS]
        scores: dict[int, float] = {}  # those of a search that was extended are of other weights
        for number in tqdm(finalists, "finalists", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            scores[number] = self.score()
        self.scores, self.finished = scores, True
        module.train()
