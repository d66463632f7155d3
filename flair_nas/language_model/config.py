"""The settings of a language model's training: names, defaults, help texts, ranges."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from flair_nas.language_model.text.config import TextSettings
from flair_nas.nn.layers import TEXT_LAYERS, describe_layers
from flair_nas.settings.fields import COUNT, PROBABILITY, device_setting, find_problems, raise_problems, setting
from flair_nas.settings.optimizer import OPTIMIZERS, WARMUP_HELP, find_high_rate


def check_rising(numbers: list[int]) -> str:
    """Return the fault of numbers that do not rise, for the `check` of `setting`, or an empty string."""
    return "" if all(low < high for low, high in itertools.pairwise(numbers)) else "must rise"


@dataclass
class LanguageModelSettings(TextSettings):
    """Settings of a language model's training without its seed.

    The defaults are those of DARTS's retraining on PTB, except for size, epochs, initialisation bounds and learning
    rate, which suit any size.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once.
    """

    rnn: str = setting("gru", describe_layers(TEXT_LAYERS))
    hidden_size: int = setting(200, "hidden size H", **COUNT)
    embedding_size: int | None = setting(None, "embedding size D (as hidden_size)", **COUNT)
    layers: int = setting(1, "recurrent layers", low=1, high=100)
    dropout: float = setting(0.75, "variational dropout of the recurrent layer's output", **PROBABILITY)
    input_dropout: float = setting(0.75, "variational dropout of x, inside the recurrent layer", **PROBABILITY)
    recurrent_dropout: float = setting(0.25, "variational dropout of h", **PROBABILITY)
    embedding_dropout: float = setting(0.2, "variational dropout of the embedding's output", **PROBABILITY)
    word_dropout: float = setting(0.1, "probability of dropping a word's whole embedding", **PROBABILITY)
    tied: bool = setting(True, "the softmax shares the embedding's matrix (never an adaptive softmax)")
    adaptive_cutoffs: list[int] = setting(
        [],
        "adaptive softmax, for large vocabularies: number of types up to each cluster's end",
        check=check_rising,
        **COUNT,
    )
    activation: float = setting(0.0, "alpha, weight of the penalty on large outputs", low=0, high=1e6)
    slowness: float = setting(1e-3, "beta, weight of the penalty on outputs that change fast", low=0, high=1e6)
    optimizer: str = setting("sgd", "sgd, adam or adamw", choices=tuple(OPTIMIZERS))
    learning_rate: float = setting(20.0, "learning rate", low=1e-12, high=1e6)
    warmup_steps: int = setting(0, WARMUP_HELP, low=0, high=10**9)
    lower_after: list[int] = setting(
        [], "epochs after which the learning rate falls to a tenth", check=check_rising, **COUNT
    )
    weight_decay: float = setting(8e-7, "weight decay", low=0, high=1e3)
    clip: float = setting(0.25, "maximum norm of the gradients", low=1e-12, high=1e12)
    averaging: bool = setting(True, "switch to averaged SGD when the validation loss stops improving")
    patience: int = setting(
        5, "averaging begins when the validation loss exceeds the best one of more than this many epochs ago", **COUNT
    )
    average_after: int | None = setting(None, "epoch after which averaging begins at the latest", **COUNT)
    batch_size: int = setting(64, "columns of text that are read side by side", **COUNT)
    bptt: int = setting(35, "steps of truncated back-propagation", **COUNT)
    vary_length: bool = setting(True, "vary the steps around bptt, and the learning rate with them")
    epochs: int = setting(50, "epochs", **COUNT)
    valid_batch_size: int = setting(64, "columns for the perplexity after each epoch, which is approximate", **COUNT)
    eval_batch_size: int = setting(1, "columns for the final perplexity; 1 is exact, more are approximate", **COUNT)
    rollbacks: int = setting(
        0, "how many losses that are not finite to answer by going back to the best epoch (as DARTS)", low=0, high=1000
    )
    init_range: float | None = setting(
        None, "initialisation bound of the layer (1.17 / sqrt(H), which is 0.04 at 850, as in the papers' code)",
        low=1e-12, high=10,
    )  # fmt: skip
    embedding_init_range: float = setting(
        0.1, "initialisation bound of embedding and softmax (the papers' code: 0.04)", low=1e-12, high=10
    )
    precision: str = setting("float32", "float32 or bfloat16 (autocast) in training", choices=("float32", "bfloat16"))
    device: str | None = device_setting()

    def __post_init__(self) -> None:
        raise_problems(find_problems(self) or self._contradictions())

    def _contradictions(self) -> list[str]:
        problems = find_high_rate(self.optimizer, self.learning_rate)
        tied = self.tied and not self.adaptive_cutoffs
        if tied and self.embedding_size not in (None, self.hidden_size):
            problems.append(
                f"tied embeddings need embedding_size = hidden_size, got {self.embedding_size} and {self.hidden_size}"
            )
        if self.vocabulary_size is not None and any(cut >= self.vocabulary_size for cut in self.adaptive_cutoffs):
            problems.append(
                f"adaptive_cutoffs must be below vocabulary_size = {self.vocabulary_size}, got {self.adaptive_cutoffs}"
            )
        if self.unit == "char" and self.adaptive_cutoffs:
            problems.append("adaptive_cutoffs are for the many types of words; leave them out with unit = char")
        if not self.averaging and self.average_after is not None:
            problems.append(f"average_after = {self.average_after} contradicts averaging = false")
        return problems


@dataclass
class LanguageModelConfig(LanguageModelSettings):
    """Settings of `train_language_model`, flags of ``flair-nas lm train`` and keys of its ``--config``.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once.

    Example:
        >>> from flair_nas import LanguageModelConfig
        >>> LanguageModelConfig(text="demo", rnn="small-relu-tanh").unit
        'word'
    """

    may_change: ClassVar[tuple[str, ...]] = (
        "epochs", "device", "text", "eval_batch_size", "init_range", "embedding_init_range"
    )  # fmt: skip
    """Settings that may change when a run resumes. The fingerprint identifies the text; initialisation bounds concern
    the first step only."""

    seed: int = setting(1, "seed of all random numbers", low=0, high=2**32 - 1)
