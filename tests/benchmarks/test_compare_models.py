"""Two language models are compared word by word."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from benchmarks.search.compare_models import compare_models, to_tables
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.saved import SavedLanguageModel, build_language_model
from flair_nas.language_model.text.corpus import END, Vocabulary

WORDS = ("the", "cat", END, "sat", "mat", "on", "<unk>", "dog")
VOCABULARY = Vocabulary(WORDS, (90, 80, 70, 60, 50, 40, 30, 20))
LINES = ["the cat sat on the mat", "zebra sat", "", "the the mat"]


def make_model(seed: int) -> SavedLanguageModel:
    config = LanguageModelConfig(rnn="tanh0-relu1,init_range=0.9", hidden_size=6)
    torch.manual_seed(seed)
    model = build_language_model(config, len(VOCABULARY)).eval()
    torch.nn.init.uniform_(model.embedding.weight, -1, 1)
    return SavedLanguageModel(model, VOCABULARY, config, model.layer.genotype, {"text": "none"})


def compute_losses(model: SavedLanguageModel) -> dict[str, list[float]]:
    """Compute the losses of each word's occurrences, a token at a time."""
    stream = [word for line in LINES for word in [*line.split(), END]]
    state, before, losses = None, WORDS.index(END), defaultdict(list)
    with torch.no_grad():
        for word in stream:
            number = model.vocabulary.index(word)
            output, state = model.model.layer(model.model.embedding.weight[before].view(1, 1, -1), state)
            losses[WORDS[number]].append(-float(model.model.decoder(output)[0, 0].log_softmax(0)[number]))
            before = number
    return losses


def test_every_word_of_the_text_has_its_mean_loss_in_both_models(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    models = [make_model(0), make_model(1)]
    words = compare_models(*models, str(text))
    expected = [compute_losses(model) for model in models]
    assert {word.word for word in words} == {"the", "cat", "sat", "on", "mat", END, "<unk>"}
    for word in words:
        losses = [of[word.word] for of in expected]
        assert word.occurrences == len(losses[0]) and word.train_count == VOCABULARY.counts[WORDS.index(word.word)]
        means = [sum(of) / len(of) for of in losses]
        assert [word.loss_a, word.loss_b] == pytest.approx(means, rel=1e-5)
    assert words[0].difference < 0 < words[-1].difference
    better, worse, frequent = to_tables(words, 2, 1).split("\n\n")
    assert better.splitlines()[2].startswith(f"| {words[0].word} | -") and words[-1].word in worse.splitlines()[2]
    assert [row.split(" | ")[4] for row in frequent.splitlines()[2:]] == ["4", "4"]
