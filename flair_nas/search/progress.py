"""What one sees of a search while it runs."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from tqdm import tqdm

from flair_nas.runs.duration import duration
from flair_nas.runs.metric import Measure
from flair_nas.search.protocols import Strategy

log = logging.getLogger("flair_nas")


class Display:
    """The live lines: epoch, losses, MAD and time left in one, the genotype of the moment in the other.

    Args:
        steps: how many there will be in all.
        progress: draw the lines; otherwise each epoch is logged.
        measure: by which losses and epochs are shown.
    """

    def __init__(self, steps: int, progress: bool, measure: Measure) -> None:
        self.progress, self.steps, self.measure = progress, steps, measure
        self.bar = tqdm(total=steps, unit="step", disable=not progress, leave=False, file=sys.stderr)
        self.line = tqdm(bar_format="{desc}", disable=not progress, leave=False, position=1, file=sys.stderr)
        self.started, self.steps_done = time.perf_counter(), 0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()
        self.bar.close()

    def step(self, epoch: int, epochs: int, training: float, validation: float | None, strategy: Strategy) -> None:
        """Moves the bar; the losses are the means of the epoch so far.

        Args:
            epoch: from 1.
            epochs: how many there will be.
            training: of the training part.
            validation: of the validation part, or None.
            strategy: for MAD and the genotype.
        """
        self.steps_done += 1
        if not self.progress:
            return
        if self.bar.n % 10 == 0:  # deriving takes longer than drawing
            mad = strategy.figures().get("mad", {})
            parts = [f"train {self.measure.shown_loss(training)}"]
            if validation is not None:
                parts.append(f"valid {self.measure.shown_loss(validation)}")
            parts += [f"MAD {name} {value:.4f}" for name, value in mad.items()]
            self.bar.set_description_str(f"epoch {epoch}/{epochs}", refresh=False)
            self.bar.set_postfix_str(", ".join(parts), refresh=False)
            self.line.set_description_str(strategy.genotype().one_line())
        self.bar.update()

    def epoch(self, line: dict[str, Any], epochs: int) -> None:
        """Logs an epoch."""
        spent = time.perf_counter() - self.started
        left = spent / max(self.steps_done, 1) * (self.steps - self.steps_done)
        mad = "".join(f", MAD {name} {value:.4f}" for name, value in line.get("mad", {}).items())
        loss, valid = line["training_loss"], self.measure.shown(line[self.measure.key])
        training = "" if loss is None else f"train {self.measure.shown_loss(loss)}, "
        text = (
            f"epoch {line['epoch']} of {epochs}: {training}valid {valid}{mad}, {line['seconds']:.0f} s, "
            f"{duration(left)} left; {line['genotype']}"
        )
        if self.progress:
            self.bar.write(text, file=sys.stderr)
        else:
            log.info("%s", text)
