"""The settings of a training of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flair_nas.runs.duration import check_time
from flair_nas.settings.fields import COUNT, device_setting, find_problems, get_kinds, raise_problems, setting
from flair_nas.tagging.config import CorpusSettings
from flair_nas.tagging.data.column_rows import ColumnFormat


@dataclass
class EmbeddingConfig(CorpusSettings):
    """Settings of `train_embeddings`, flags of ``flair-nas embed train`` and keys of its ``--config``.

    The epochs depend on the size of the text where they are not given, so that small texts are read more often.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once.

    Example:
        >>> from flair_nas import EmbeddingConfig
        >>> EmbeddingConfig(text="demo", characters=False).width
        100
    """

    may_change: ClassVar[tuple[str, ...]] = ("text", "device", "data_root", *get_kinds(ColumnFormat))
    """Settings that may change when a run resumes; the digest identifies the text."""

    text: str | None = setting(
        None,
        "raw text, a sentence or a paragraph a line: a file, a folder with train files, or demo, the bundled text",
    )
    corpus: str | None = setting(  # type: ignore[assignment]  # none is the default
        None, "in place of a text: a corpus, as for tag train, whose training sentences are read"
    )
    words: bool = setting(True, "train word vectors")
    characters: bool = setting(True, "train a forward and a backward character model")
    budget: str | None = setting(
        None, "time to spend, as 30m or 2h: fewer epochs, or a part of the text, if all would take longer",
        check=check_time,
    )  # fmt: skip
    width: int = setting(100, "numbers of a word vector", **COUNT)
    rows: int = setting(2**17, "vectors of parts of words, which words that are not in the text get", **COUNT)
    min_count: int | None = setting(
        None, "words with fewer occurrences have no vector of their own (2, or 5 from a million words on)", **COUNT
    )
    epochs: int = setting(0, "epochs of the word vectors; 0 for 30, if the text is small, to 5", low=0, high=1_000_000)
    hidden_size: int = setting(256, "hidden size H of a character model", **COUNT)
    character_epochs: int = setting(
        0, "epochs of each character model; 0 for 12, if the text is small, to 3", low=0, high=1_000_000
    )
    workers: int = setting(1, "threads that train word vectors; more than one are not deterministic", low=1, high=1000)
    device: str | None = device_setting()
    seed: int = setting(1, "seed of all random numbers", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        problems = find_problems(self)
        if (self.text is None) == (self.corpus is None):
            problems.append("give either a text or a corpus")
        if not (self.words or self.characters):
            problems.append("words and characters are both off, so there is nothing to train")
        raise_problems(problems)
