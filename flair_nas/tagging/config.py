"""The settings of a tagger's training: names, defaults, help texts, ranges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.nn.layers import LAYER_NAMES, describe_layers
from flair_nas.settings.fields import (
    COUNT,
    PROBABILITY,
    device_setting,
    find_problems,
    get_kinds,
    raise_problems,
    setting,
    takes_flair_names,
)
from flair_nas.settings.optimizer import WARMUP_HELP, find_high_rate
from flair_nas.storage.paths import typed, user_path
from flair_nas.tagging.data.column_rows import ColumnFormat

NAMES = ("demo", "conll_03", "conll_2000", "wnut_17")
"""Names of corpora that are no folders."""
OF_THE_CORPUS = ("char", "one-hot")
"""Embeddings that are made from the corpus. They know only its words."""


def check_corpus(source: str) -> None:
    """Raise an error unless a corpus is a known name or a folder."""
    if source not in NAMES:
        find_folder(source)


def find_folder(source: str) -> Path:
    """Return the folder of a corpus that is not a known name, or raise an error with close matches."""
    folder = user_path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        fault = f"corpus {brief(source)} is a file; give the folder that holds train, dev and test files"
        raise FlairNasError(f"{fault} (flair-nas convert {typed(folder)} --out FOLDER makes one of CSV or JSON)")
    hint = did_you_mean(source.replace("-", "_"), NAMES)
    raise FlairNasError(
        f"unknown corpus {brief(source)}: {hint}give one of {', '.join(NAMES)}, or a folder of column files; "
        f"there is no folder {folder.absolute()}"
    )


def all_different(values: list[Any]) -> str:
    """Return the fault of a list in which a value comes twice, or an empty string."""
    return "" if len(set(values)) == len(values) else "must be different ones"


@dataclass
class _CorpusName:
    corpus: str = setting("demo", "wnut_17, conll_03, conll_2000, demo, or a folder of column files")
    label_type: str | None = setting(None, "label to predict (the corpus's own: ner, or np for conll_2000)")
    columns: str | None = setting(None, "columns of a folder's files, from 0: text=0,ner=3 (the last holds the label)")


@dataclass
class CorpusSettings(ColumnFormat, _CorpusName):
    """Settings that name a corpus, and describe the format of its files."""

    data_root: str | None = setting(None, "folder with the named corpora (Flair's cache)")


@takes_flair_names
@dataclass
class TaggerConfig(CorpusSettings):
    """Settings of `train_taggers`; each is also a flag of ``flair-nas tag train`` and a key of a ``--config`` file.

    The defaults are Flair's, except for the layer and the learning rate. Flair's own names work, too: `rnn_type`,
    `rnn_layers`, `use_crf`, `reproject_embeddings`, `max_grad_norm`, `mini_batch_size`, `max_epochs`,
    `column_delimiter`, `comment_symbol`.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import TaggerConfig
        >>> TaggerConfig(corpus="demo", rnn="small-relu-tanh", embeddings=["english", "char"]).hidden_size
        256
    """

    may_change: ClassVar[tuple[str, ...]] = (
        "epochs",
        "seeds",
        "device",
        "data_root",
        "taught",
        *get_kinds(ColumnFormat),
    )
    """Settings that may change when a run resumes; digests identify the corpus and the labelled sentences."""

    rnn: str = setting("small-relu-tanh", describe_layers(LAYER_NAMES), flair="rnn_type")
    embeddings: list[str] = setting(
        ["glove", "pooled-flair:news-forward", "pooled-flair:news-backward"],
        "glove (of English, as all named ones but de and so on), english (comes with flair-nas), the folder of embed "
        "train, word:PATH, fasttext:PATH, flair:NAME_OR_PATH, pooled-flair:NAME_OR_PATH, transformer:NAME_OR_PATH (its "
        "last layer alone: ,layers=last behind it), char, one-hot",
    )
    hidden_size: int = setting(256, "hidden size H of each direction", **COUNT)
    layers: int = setting(1, "recurrent layers", low=1, high=100, flair="rnn_layers")
    dropout: float = setting(0.0, "dropout before and after the recurrent layer", **PROBABILITY)
    word_dropout: float = setting(0.05, "probability of dropping a word's whole embedding", **PROBABILITY)
    locked_dropout: float = setting(0.5, "variational dropout of the recurrent layer's input and output", **PROBABILITY)
    init_range: float | None = setting(
        None, "weights of a searched layer start uniform in +-this (1.5 / sqrt(H), of gates / sqrt(rows))", low=1e-12,
        high=10,
    )  # fmt: skip
    crf: bool = setting(True, "decode with a CRF; otherwise a softmax per token", flair="use_crf")
    reproject: bool | int = setting(
        True, "a linear map on top of the embeddings: as wide as they are, or to a width of N", low=2, high=1_000_000,
        flair="reproject_embeddings",
    )  # fmt: skip
    optimizer: str = setting("sgd", "sgd or adamw", choices=("sgd", "adamw"))
    learning_rate: float | None = setting(
        None, "learning rate (of adamw 0.001; of sgd the one that the layer is stored with, else 0.2)", low=1e-12,
        high=1e6,
    )  # fmt: skip
    warmup_steps: int = setting(0, WARMUP_HELP, low=0, high=10**9)
    anneal_factor: float = setting(
        0.5, "the learning rate is multiplied by this on a plateau of dev F1", low=1e-6, high=0.999999
    )
    patience: int = setting(3, "epochs without improvement before the learning rate falls", low=0, high=1_000_000)
    train_with_dev: bool = setting(
        False, "learn from dev, too: the training loss then rules the learning rate, the last model is kept, and "
        "figures on dev say nothing",
    )  # fmt: skip
    min_learning_rate: float = setting(1e-4, "training ends below this learning rate", low=0, high=1e6)
    clip: float = setting(5.0, "gradient norm is clipped to this", low=1e-12, high=1e12, flair="max_grad_norm")
    batch_size: int = setting(32, "sentences per batch", **COUNT, flair="mini_batch_size")
    epochs: int = setting(
        100, "epochs at most; the best on dev is kept, by F1 or, of token labels, accuracy", **COUNT, flair="max_epochs"
    )
    seeds: list[int] = setting(
        [1], "each is trained; mean and standard deviation are reported", low=0, high=2**32 - 1, check=all_different
    )
    storage: str | None = setting(
        None,
        "place of the vectors of frozen embeddings: cpu (memory), disk (a file in the cache, shared by all runs on "
        "this corpus), gpu; or none, to compute them in each epoch (cpu, or disk if they are large)",
        choices=("none", "cpu", "disk", "gpu"),
    )
    taught: str | None = setting(
        None, "folder of sentences that teachers have labelled, as flair-nas distil writes it; they are learned, too"
    )
    taught_weight: float = setting(1.0, "weight of their loss; 0 leaves them out", low=0, high=1000)
    precision: str = setting("float32", "float32 or bfloat16 (autocast)", choices=("float32", "bfloat16"))
    device: str | None = device_setting()

    def __post_init__(self) -> None:
        raise_problems(find_problems(self) or find_high_rate(self.optimizer, self.learning_rate))

    def input_size(self, embedded: int) -> int:
        """Return the input size D of the recurrent layer for embeddings of a length."""
        return embedded if isinstance(self.reproject, bool) else self.reproject

    @property
    def embeddings_storage_mode(self) -> Literal["none", "cpu", "gpu"]:
        """Flair's setting of that name; vectors on disk are mapped to memory."""
        return "cpu" if self.storage in (None, "disk") else self.storage  # type: ignore[return-value]  # checked
