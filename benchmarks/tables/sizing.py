"""Hidden size at which a layer has as many weights as another one."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from flair_nas import LanguageModelConfig, TaggerConfig, build_embeddings
from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import Settings
from flair_nas.experiments.tasks import TASKS
from flair_nas.language_model.saved import build_language_model
from flair_nas.nn.layers import FLAIR_LAYERS
from flair_nas.tagging.registration import build_rnn

Count = Callable[[Settings], int]
"""Function from the settings of a run to a number of weights."""


def count_layer(data: Any) -> Count:
    """Return a function that counts the weights of a tagger's layer, in both directions."""

    @functools.cache
    def vector_length(*names: str) -> int:
        return int(build_embeddings([*names], data.corpus).embedding_length)

    def count(settings: Settings) -> int:
        config = TaggerConfig(**settings)
        width = config.input_size(vector_length(*config.embeddings))
        sizes: dict[str, Any] = {"hidden_size": config.hidden_size, "num_layers": config.layers, "bidirectional": True}
        with torch.device("meta"):
            if config.rnn.upper() in FLAIR_LAYERS:
                layer: nn.Module = getattr(nn, config.rnn.upper())(width, **sizes)
            else:
                layer = build_rnn(config.rnn, input_size=width, **sizes)
        return sum(weight.numel() for weight in layer.parameters())

    return count


def count_model(data: Any) -> Count:
    """Return a function that counts the weights of a language model: its softmax is as wide as its layer."""

    def count(settings: Settings) -> int:
        with torch.device("meta"):
            model = build_language_model(LanguageModelConfig(**settings), len(data.vocabulary))
        return sum(weight.numel() for weight in model.parameters())

    return count


def matched_size(count: Callable[[int], int], target: int) -> int:
    """Return the hidden size at which `count`, the number of weights, is closest to a target."""
    enough = 2
    while count(enough) < target:
        enough *= 2
    size = bisect.bisect_left(range(enough), target, lo=enough // 2, key=count)
    return min((max(1, size - 1), size), key=lambda size: abs(count(size) - target))


def size_by_count(task: str, settings: Settings, other: Settings) -> dict[str, Any]:
    """Size one row by the weights of another.

    Returns:
        ``hidden_size``, and ``size_ratio``, the weights at that size divided by those of the other layer.

    Raises:
        FlairNasError: even the smallest layer has more weights, as with gates that are as wide as the input.
    """
    count = (count_layer if task == "tagging" else count_model)(TASKS[task].work.read(other))

    def count_at(size: int) -> int:
        return count({**settings, "hidden_size": size})

    target = count(other)
    if count_at(1) > target:
        raise FlairNasError(f"{settings['rnn']} has more weights than {other['rnn']} with any hidden size")
    size = matched_size(count_at, target)
    return {"hidden_size": size, "size_ratio": count_at(size) / target}
