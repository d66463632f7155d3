"""A corpus and a training run of seconds for taggers, and comparisons of what two runs leave behind."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from flair.data import Dictionary
from flair.models import LanguageModel, SequenceTagger
from gensim.models import KeyedVectors

from flair_nas.settings.resolve import read_settings
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import load_corpus

PEOPLE = ("Ada Byron", "Alan", "Grace Hopper", "Edsger")
PLACES = ("London", "New York", "Oslo")
PATTERNS = (
    ("PER", "saw/VBD", "LOC", "./."),
    ("In/IN", "LOC", ",/,", "PER", "sang/VBD", "./."),
    ("Today/NN", "PER", "left/VBD", "LOC", "for/IN", "good/NN"),
)
WORDS = ("Ada", "Byron", "Alan", "Grace", "Hopper", "Edsger", "London", "New", "York", "Oslo", "saw", "In", "sang")
BATCHES = 3  # an epoch of `settings` over `write_corpus`


def write_corpus(folder: Path) -> str:
    """A corpus of 24 + 6 + 6 different sentences, with columns for part of speech and entity; gives its path."""
    sentences = [
        "\n".join(row for part in pattern for row in _rows(part, person, place))
        for person, place, pattern in itertools.product(PEOPLE, PLACES, PATTERNS)
    ]
    random.Random(0).shuffle(sentences)
    folder.mkdir(parents=True, exist_ok=True)
    for part, chosen in (("train", sentences[:24]), ("dev", sentences[24:30]), ("test", sentences[30:])):
        (folder / f"{part}.txt").write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    return str(folder)


def _rows(part: str, person: str, place: str) -> list[str]:
    if part not in ("PER", "LOC"):
        return [f"{part.split('/')[0]} {part.split('/')[1]} O"]
    words = (person if part == "PER" else place).split()
    return [f"{word} NNP {'I' if index else 'B'}-{part}" for index, word in enumerate(words)]


def write_word_vectors(path: Path) -> KeyedVectors:
    """Vectors of 7 numbers for the words of the demo's dev part, in gensim's own format."""
    words = sorted({token.text.lower() for sentence in load_corpus("demo").corpus.dev for token in sentence})
    vectors = KeyedVectors(vector_size=7)
    vectors.add_vectors(words, numpy.random.default_rng(0).normal(size=(len(words), 7)).astype("float32"))
    vectors.save(str(path))
    return vectors


def write_character_model(path: Path, seed: int = 0, hidden_size: int = 6) -> None:
    """A character language model of Flair's, which reads backward if the file is called so."""
    alphabet = Dictionary()
    for character in "\n abcdefghijklmnopqrstuvwxyz":
        alphabet.add_item(character)
    torch.manual_seed(seed)
    model = LanguageModel(alphabet, path.stem != "backward", hidden_size, 1, embedding_size=5)
    for weight in model.rnn.parameters():
        torch.nn.init.uniform_(weight, -1, 1)
    model.save(path)


def settings(corpus: str, /, **changes: Any) -> TaggerConfig:
    """A run of seconds, with dropout and a falling learning rate, so that a resume has random states to restore."""
    given: dict[str, Any] = {
        "corpus": corpus,
        "rnn": "lstm",
        "embeddings": ["one-hot"],
        "hidden_size": 8,
        "batch_size": 8,
        "epochs": 3,
        "learning_rate": 1.0,
        "patience": 0,
        "locked_dropout": 0.2,
    }
    return TaggerConfig(**(given | changes))


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights in a model file."""
    return SequenceTagger.load(path).state_dict()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def untimed(value: Any) -> Any:
    """JSON data without the figures that differ from run to run: seconds, memory, and the sum of all."""
    if isinstance(value, dict):
        skipped = ("second", "memory")
        return {k: untimed(v) for k, v in value.items() if not any(word in k for word in skipped) and k != "sha256"}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def assert_same_run(one: Path, other: Path) -> None:
    """All that two runs left is equal bit for bit, but for times and memory."""
    assert read_settings(one / "config.yaml", TaggerConfig) == read_settings(other / "config.yaml", TaggerConfig)
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*"))
    assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*"))
    for name in names:
        a, b = one / name, other / name
        if name.endswith("model.pt"):
            torch.testing.assert_close(weights(a), weights(b), rtol=0, atol=0)
        elif name.endswith(("checkpoint.pt", "checkpoint-previous.pt")):
            a, b = (torch.load(path, weights_only=True) for path in (a, b))
            assert untimed(a.pop("history")) == untimed(b.pop("history"))
            torch.testing.assert_close(a.pop("optimizer"), b.pop("optimizer"), rtol=0, atol=0)
            torch.testing.assert_close(a.pop("model"), b.pop("model"), rtol=0, atol=0)
            assert str(a) == str(b)  # what is left: numbers and the random states
            assert all(map(torch.equal, _tensors(a), _tensors(b)))
        elif name.endswith((".json", ".jsonl")):
            assert untimed(lines(a) if name.endswith("l") else json.loads(a.read_text())) == untimed(
                lines(b) if name.endswith("l") else json.loads(b.read_text())
            )
        elif name.endswith(".txt"):
            assert a.read_bytes() == b.read_bytes()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in inner for tensor in _tensors(item)]


def at_batch(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[SequenceTagger], None]) -> None:
    """Does something before the training batch of that number, counted over epochs and seeds from 1."""
    forward_loss, count = SequenceTagger.forward_loss, itertools.count(1)

    def counted(self: SequenceTagger, sentences: Any) -> Any:
        if next(count) == number:
            action(self)
        return forward_loss(self, sentences)

    monkeypatch.setattr(SequenceTagger, "forward_loss", counted)


def press_ctrl_c(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def write_classes(folder: Path, train: int = 24, dev: int = 7, several: bool = False) -> str:
    """Texts that are about the first word of two, which is somewhere in them."""
    draw, words = numpy.random.default_rng(0), ["alpha", "beta"]
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("dev", dev)):
        lines = []
        for number in range(count):
            about = [words[number % 2]] + ["gamma"] * (several and number % 3 == 0)
            text = [*about, *(f"word{draw.integers(9)}" for _ in range(draw.integers(2, 6)))]
            labels = " ".join(f"__label__{word.upper()}" for word in about)
            lines.append(f"{labels} {' '.join(draw.permutation(text))}\n")
        (folder / f"{part}.txt").write_text("".join(lines))
    return str(folder)
