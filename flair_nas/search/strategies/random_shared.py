"""Random search with shared weights (Li and Talwalkar, UAI 2019)."""

from __future__ import annotations

import math

from tqdm import tqdm

from flair_nas.search.perturbation import sum_segment_losses
from flair_nas.search.protocols import StepFigures
from flair_nas.search.strategies.whole_cells import Candidates, draw

FINALISTS = 10
"""Candidates that are scored on the whole validation part."""


class SharedRandomSearch(Candidates):
    """One set of weights, trained on another random architecture at each step, which then scores the candidates."""

    def step(self, epoch: int, step: int) -> StepFigures:
        """Draw an architecture and update its weights."""
        self.finished = False  # of a search that is extended
        # numbers below `samples` belong to the candidates
        self.supernet.choose(draw(self.config, self.samples + self.steps_done))
        self.steps_done += 1
        loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        self.supernet.choose(draw(self.config, 0))
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def finish(self, progress: bool) -> None:
        """Score all candidates on a few segments, and the best of them on the whole validation part."""
        module = self.objective.module.eval()
        first: dict[int, float] = {}
        for number in tqdm(range(self.samples), "candidates", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            loss = sum_segment_losses(self.objective, self.config.sample_segments, self.reduce)
            first[number] = math.inf if math.isnan(loss) else loss
        finalists = sorted(first, key=lambda number: (first[number], number))[:FINALISTS]
        self.scores = {}  # those of a search that was extended are of other weights
        for number in tqdm(finalists, "finalists", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            self.scores[number] = self.score()
        self.finished = True
        module.train()
