"""Help texts and checks of settings on the optimizer, for taggers and language models."""

from __future__ import annotations

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
"""Classes of `torch.optim` by their names in settings."""
ADAM_RATE = 1e-3
"""Usual learning rate of Adam and AdamW."""
WARMUP_HELP = "first steps, in which the learning rate rises from 0"
_MAX_ADAM_RATE = 0.1


def find_high_rate(optimizer: str, rate: float | None) -> list[str]:
    """Return the fault of a learning rate that is one of SGD, if Adam or AdamW is to have it."""
    if optimizer == "sgd" or rate is None or rate <= _MAX_ADAM_RATE:
        return []
    return [f"optimizer {optimizer} takes a learning_rate of about {ADAM_RATE:g}, got {rate:g}"]


def warmup_factor(step: int, steps: int) -> float:
    """Return the factor of the learning rate in a step, counted from 1, of a training with so many steps of warm-up."""
    return min(1.0, step / steps) if steps else 1.0
