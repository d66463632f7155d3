"""Comparing language models word by word."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from flair_nas.errors import FlairNasError
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.evaluation import Comparison, WordChange, compare_language_models
from flair_nas.language_model.saved import (
    SavedLanguageModel,
    build_language_model,
    load_language_model,
    save_language_model,
)
from flair_nas.language_model.text.corpus import END, Vocabulary

WORDS = ("the", "cat", END, "sat", "mat", "on", "<unk>", "dog")
VOCABULARY = Vocabulary(WORDS, (90, 80, 70, 60, 50, 40, 30, 20))
LINES = ["the cat sat on the mat", "zebra sat", "", "the the mat"]


def saved(seed: int, vocabulary: Vocabulary = VOCABULARY, **changes: Any) -> SavedLanguageModel:
    config = LanguageModelConfig(rnn="tanh0-relu1,init_range=0.9", hidden_size=6, **changes)
    torch.manual_seed(seed)
    model = build_language_model(config, len(vocabulary)).eval()
    torch.nn.init.uniform_(model.embedding.weight, -1, 1)
    return SavedLanguageModel(model, vocabulary, config, model.layer.genotype, {"text": "none"})


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def plain_losses(model: SavedLanguageModel) -> dict[str, list[float]]:
    """The losses of each word's occurrences, a token at a time."""
    stream = [word for line in LINES for word in [*line.split(), END]]
    state, before, losses = None, WORDS.index(END), defaultdict(list)
    with torch.no_grad():
        for word in stream:
            number = model.vocabulary.index(word)
            output, state = model.model.layer(model.model.embedding.weight[before].view(1, 1, -1), state)
            losses[WORDS[number]].append(-float(model.model.decoder(output)[0, 0].log_softmax(0)[number]))
            before = number
    return losses


def test_every_word_of_the_text_has_its_mean_loss_in_both_models(text: Path) -> None:
    a, b = saved(0), saved(1)
    found = compare_language_models(a, b, text)
    expected_a, expected_b = plain_losses(a), plain_losses(b)
    assert {word.word for word in found.words} == {"the", "cat", "sat", "on", "mat", END, "<unk>"}
    for word in found.words:
        losses_a, losses_b = expected_a[word.word], expected_b[word.word]
        assert word.occurrences == len(losses_a)
        assert word.train_count == VOCABULARY.counts[WORDS.index(word.word)]
        assert word.loss_a == pytest.approx(sum(losses_a) / len(losses_a), rel=1e-5)
        assert word.loss_b == pytest.approx(sum(losses_b) / len(losses_b), rel=1e-5)
    assert found.unknown_share == found.to_dict(0)["unknown_share"] == 1 / 11  # END is no word
    assert found.tokens == 15 == sum(word.occurrences for word in found.words)
    assert found.loss_a == pytest.approx(sum(map(sum, expected_a.values())) / 15, rel=1e-5)
    assert found.difference == pytest.approx(found.loss_b - found.loss_a)
    differences = [word.difference for word in found.words]
    assert differences == sorted(differences) and differences[0] < 0 < differences[-1]


def test_two_equal_models_differ_in_nothing(text: Path) -> None:
    found = compare_language_models(saved(0), saved(0), text)
    assert found.difference == 0 and found.improved(9) == found.worsened(9) == []
    assert [word.word for word in found.words] == [word for word in WORDS if word != "dog"]


def test_models_come_from_files_too_and_lower_case_is_kept(text: Path, tmp_path: Path) -> None:
    text.write_text("\n".join(LINES).upper() + "\n", encoding="utf-8")
    a, b = saved(0, lowercase=True), saved(1, lowercase=True)
    for name, model in (("a", a), ("b", b)):
        (tmp_path / name).mkdir()
        save_language_model(model, tmp_path / name / "model.pt")
    loaded = load_language_model(tmp_path / "a")
    assert loaded.vocabulary == VOCABULARY and loaded.genotype == a.genotype and loaded.config == a.config
    found = compare_language_models(tmp_path / "a", tmp_path / "b" / "model.pt", text)
    assert found == compare_language_models(a, b, text)
    assert {word.word for word in found.words} >= {"the", "cat", "mat"}


def change(word: str, occurrences: int, a: float, b: float) -> WordChange:
    return WordChange(word, 10 * occurrences, occurrences, a, b)


def test_lists_hold_what_changed_most_in_either_direction() -> None:
    words = (change("rare", 1, 9.0, 3.0), change("fell", 5, 4.0, 2.0), change("same", 50, 1.0, 1.0),
             change("rose", 7, 2.0, 3.0), change("up", 2, 1.0, 4.0))  # fmt: skip
    found = Comparison(65, 2.0, 1.5, words)
    assert [w.word for w in found.improved(9)] == ["rare", "fell"]
    assert [w.word for w in found.improved(1)] == ["rare"]
    assert [w.word for w in found.improved(9, min_occurrences=2)] == ["fell"]
    assert [w.word for w in found.worsened(9)] == ["up", "rose"]
    assert [w.word for w in found.worsened(9, min_occurrences=3)] == ["rose"]
    assert [w.word for w in found.frequent(2)] == ["same", "rose"]
    data = json.loads(json.dumps(found.to_dict(1)))
    assert data["difference"] == -0.5 and data["perplexity_a"] == pytest.approx(7.389056)
    assert data["improved"] == [
        {"word": "rare", "train_count": 10, "occurrences": 1, "loss_a": 9.0, "loss_b": 3.0, "difference": -6.0}
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("the", "dog", *WORDS[2:-1], "cat"), "8 types and 8; the first difference is id 1, 'cat' and 'dog'"),
        (WORDS[:-1], "8 types and 7; the first difference is id 7, 'dog' and nothing"),
    ],
)
def test_models_of_different_vocabularies_are_refused(text: Path, words: tuple[str, ...], message: str) -> None:
    other = saved(1, Vocabulary(words, tuple(range(len(words), 0, -1))))
    with pytest.raises(FlairNasError, match=f"different vocabularies.*{message}"):
        compare_language_models(saved(0), other, text)
