"""Live lines and log of a search."""

from __future__ import annotations

import logging
import sys
import time

from tqdm import tqdm

from flair_nas.runs.duration import duration
from flair_nas.runs.metric import Metric
from flair_nas.search.protocols import JSON, Strategy

log = logging.getLogger("flair_nas")


class Display:
    """Live lines: epoch, losses, MAD and time left in one, the present genotype in the other.

    Without `progress`, each epoch is logged instead.
    """

    def __init__(self, steps: int, progress: bool, metric: Metric) -> None:
        self.progress, self.steps, self.metric = progress, steps, metric
        self.bar = tqdm(total=steps, unit="step", disable=not progress, leave=False, file=sys.stderr)
        self.line = tqdm(bar_format="{desc}", disable=not progress, leave=False, position=1, file=sys.stderr)
        self.started, self.steps_done = time.perf_counter(), 0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()
        self.bar.close()

    def step(self, epoch: int, epochs: int, training: float, validation: float | None, strategy: Strategy) -> None:
        """Move the bar; the losses are means over this epoch so far."""
        self.steps_done += 1
        if not self.progress:
            return
        if self.bar.n % 10 == 0:  # deriving takes longer than drawing
            parts = [f"train {self.metric.format_loss(training)}"]
            if validation is not None:
                parts.append(f"valid {self.metric.format_loss(validation)}")
            parts += [f"MAD {name} {value:.4f}" for name, value in strategy.figures().get("mad", {}).items()]
            self.bar.set_description_str(f"epoch {epoch}/{epochs}", refresh=False)
            self.bar.set_postfix_str(", ".join(parts), refresh=False)
            self.line.set_description_str(strategy.genotype().one_line())
        self.bar.update()

    def epoch(self, line: JSON, epochs: int) -> None:
        """Log the line of the history of an epoch."""
        seconds = time.perf_counter() - self.started
        left = seconds / max(self.steps_done, 1) * (self.steps - self.steps_done)
        mad = "".join(f", MAD {name} {value:.4f}" for name, value in line.get("mad", {}).items())
        loss, valid = line["training_loss"], self.metric.shown(line[self.metric.key])
        training = "" if loss is None else f"train {self.metric.format_loss(loss)}, "
        text = (
            f"epoch {line['epoch']} of {epochs}: {training}valid {valid}{mad}, {line['seconds']:.0f} s, "
            f"{duration(left)} left; {line['genotype']}"
        )
        if self.progress:
            self.bar.write(text, file=sys.stderr)
        else:
            log.info("%s", text)
