"""The settings of a character language model's training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flair_nas.language_model.text.config import TextSettings
from flair_nas.nn.layers import TEXT_LAYERS, describe_layers
from flair_nas.settings.fields import COUNT, PROBABILITY, device_setting, setting

DIRECTIONS = ("forward", "backward")


def _refuse_lowercase(value: bool) -> str:
    """Refuse lower case: the model's file cannot say it, and Flair would give the model capitals."""
    advice = "write the text in lower case, and give FlairEmbeddings is_lower=True"
    return f"is not for character models ({advice})" if value else ""


@dataclass
class CharacterModelConfig(TextSettings):
    """Settings of `train_character_models`, flags of ``flair-nas charlm train`` and keys of its ``--config``.

    The recipe is Flair's: SGD, with a learning rate that falls when the loss on dev stops falling. The default size
    suits a CPU; the preset ``flair`` has Flair's size.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once. Training checks `rnn`.

    Example:
        >>> from flair_nas import CharacterModelConfig
        >>> CharacterModelConfig(text="demo", direction="forward").rnn
        'lstm'
    """

    may_change: ClassVar[tuple[str, ...]] = ("epochs", "device", "text", "direction")
    """Settings that may change when a run resumes."""

    unit: str = setting("char", "tokens of the text; always char", choices=("char",))
    lowercase: bool = setting(False, "read words in lower case; always false", check=_refuse_lowercase)
    direction: str = setting("forward", "forward, backward, or both in turn", choices=(*DIRECTIONS, "both"))
    dictionary: str = setting(
        "text",
        "characters that have ids: text (of the training part), common (Flair's, a download), or those of "
        "a model's file: .safetensors, or .pt, which can run code",
    )
    rnn: str = setting("lstm", describe_layers(TEXT_LAYERS, transformers=False))
    hidden_size: int = setting(256, "hidden size H", **COUNT)
    embedding_size: int = setting(100, "embedding size D", **COUNT)
    layers: int = setting(1, "recurrent layers", low=1, high=100)
    dropout: float = setting(0.1, "dropout of the embedding and of the layer's output", **PROBABILITY)
    random_case: bool = setting(True, "read one line in a hundred in lower case, and one in capitals")
    learning_rate: float = setting(20.0, "learning rate of SGD", low=1e-12, high=1e6)
    anneal_factor: float = setting(0.25, "what the learning rate is multiplied by when it falls", low=1e-6, high=0.99)
    patience: int = setting(10, "splits without a better loss on dev, after which the learning rate falls", **COUNT)
    clip: float = setting(0.25, "maximum norm of the gradients", low=1e-12, high=1e12)
    batch_size: int = setting(100, "columns of text that are read side by side", **COUNT)
    bptt: int = setting(250, "steps of truncated back-propagation", **COUNT)
    split_size: int = setting(
        10_000_000, "characters that are shuffled together; the loss on dev is taken after each split", low=1000,
        high=10**9,
    )  # fmt: skip
    epochs: int = setting(10, "epochs", **COUNT)
    precision: str = setting("float32", "float32 or bfloat16 (autocast) in training", choices=("float32", "bfloat16"))
    device: str | None = device_setting()
    seed: int = setting(1, "seed of all random numbers", low=0, high=2**32 - 1)

    def directions(self) -> tuple[str, ...]:
        """Return the directions to train."""
        return DIRECTIONS if self.direction == "both" else (self.direction,)
