"""Wrote the files beside it, at commit e87e376, so that later versions can be held against what that one computed.

    python tests/saved/make.py

Run again, it would write what the version at hand computes: only for a change that is meant to change results. Folders
hold a run that was stopped after its first epoch, and in ``expected.json`` what came out of one that was not stopped.
Their cell is in ``gated.json``. Settings and checkpoints of the searches were brought to a later form.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flair.data import Sentence

from flair_nas import (
    LanguageModelConfig,
    SearchConfig,
    TaggerConfig,
    load_language_model,
    load_tagger,
    search_genotype,
    train_language_model,
    train_taggers,
)
from flair_nas.language_model.perplexity import evaluate_stream
from flair_nas.language_model.saved import encode_text
from flair_nas.search.strategies.gradient import GradientSettings
from flair_nas.search.strategies.random_cells import RandomSharedSettings

HERE = Path(__file__).parent
SENTENCE = "Dr Helen Marsh opened the market in Leeds ."
KEPT = ("config.yaml", "checkpoint.pt", "model.pt")

TAGGER = TaggerConfig(
    corpus="corpus",
    rnn="gated.json",
    embeddings=["char"],
    hidden_size=6,
    batch_size=4,
    learning_rate=0.3,
    locked_dropout=0.2,
    epochs=1,
    device="cpu",
)
LANGUAGE_MODEL = LanguageModelConfig(
    text="text",
    vocabulary_size=120,
    hidden_size=8,
    batch_size=8,
    bptt=10,
    learning_rate=3.0,
    average_after=1,
    epochs=1,
    device="cpu",
)
SEARCH = SearchConfig(
    text="text", vocabulary_size=120, nodes=3, hidden_size=8, batch_size=8, bptt=10, learning_rate=5.0, epochs=1,
    device="cpu",
)  # fmt: skip
JOINT: dict[str, Any] = {
    "learn": "joint", "history": 2, "strategy": GradientSettings(relaxation="darts", phase_steps=7), "carry": "gated",
}  # fmt: skip
SHARED = RandomSharedSettings(samples=3, sample_segments=2)
RUNS: dict[str, tuple[Callable[..., Any], Any]] = {
    "tagger": (train_taggers, TAGGER),
    "lm-gated": (train_language_model, replace(LANGUAGE_MODEL, rnn="gated.json")),
    "lm-lstm": (train_language_model, replace(LANGUAGE_MODEL, rnn="lstm")),
    "search-cell": (search_genotype, replace(SEARCH, strategy=GradientSettings(order=2))),
    "search-joint": (search_genotype, replace(SEARCH, learning_rate=1.0, **JOINT)),
    "search-random": (search_genotype, replace(SEARCH, strategy=SHARED)),
}
FIGURES = ("train_loss", "dev_loss", "dev_f1", "architecture_loss", "mad", "genotype")


def figures_of(name: str, out: Path) -> dict[str, Any]:
    """What the second epoch of a run came to."""
    history = out / "seed-1" / "history.jsonl" if name == "tagger" else out / "history.jsonl"
    line = json.loads(history.read_text().splitlines()[1])
    return {key: line[key] for key in FIGURES if key in line}


def scores_of(name: str, model: Path) -> Any:
    """What a saved model computes: a tagger's scores of all tags of a sentence, a language model's loss on text."""
    if name == "tagger":
        tagger = load_tagger(model)
        sentence = Sentence(SENTENCE, use_tokenizer=False)
        tagger.predict(sentence, return_probabilities_for_all_classes=True)
        return [[float(label.score) for label in token.get_tags_proba_dist("ner")] for token in sentence]
    saved = load_language_model(model)
    ids = encode_text("text", saved.vocabulary, part="valid")
    return [[evaluate_stream(saved.model, ids, batch_size=1).loss]]


def draw() -> list[float]:
    """Random numbers of the kinds that training draws, which differ between versions of PyTorch."""
    torch.manual_seed(1)
    normal = torch.randn(20)
    return [*torch.empty(20).bernoulli_(0.5).tolist(), *normal.tolist(), *torch.randperm(20).double().tolist()]


def main() -> None:
    """Writes everything."""
    os.chdir(HERE)
    expected: dict[str, Any] = {"random": draw()}
    for name, (train, config) in RUNS.items():
        kept, work = HERE / name, HERE / "work" / name
        train(config, work, progress=False)
        for path in sorted(work.rglob("*")):
            if path.name in KEPT and not (name == "tagger" and path == work / "model.pt"):
                place = kept / path.relative_to(work)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
        if name.startswith("lm"):
            expected[name] = {"scores": scores_of(name, kept / "model.pt")}
        elif name == "tagger":
            expected[name] = {"scores": scores_of(name, kept / "seed-1" / "model.pt")}
        train(replace(config, epochs=2), work, progress=False)
        expected.setdefault(name, {})["figures"] = figures_of(name, work)
    shutil.rmtree(HERE / "work")
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
