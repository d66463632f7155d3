"""Training taggers: settings, what a run leaves behind, exact resume, and how it stops when something is wrong."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import flair
import numpy
import pytest
import torch
import yaml
from flair.data import Sentence
from flair.models import SequenceTagger
from gensim.models import KeyedVectors
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from small_tagging import (
    BATCHES,
    WORDS,
    assert_same_run,
    at_batch,
    lines,
    press_ctrl_c,
    settings,
    untimed,
    weights,
    write_character_model,
    write_corpus,
)
from small_transformer import write_transformer

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.named import load_genotype
from flair_nas.runs import run
from flair_nas.runs.run import RunStopped
from flair_nas.settings.resolve import preset_names, read_settings, resolve
from flair_nas.tagging import epochs, training
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import describe_corpus, load_corpus
from flair_nas.tagging.evaluation import evaluate_tagger
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.registration import build_rnn
from flair_nas.tagging.training import train_taggers


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def two_seeds(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """A finished run of seeds 1 and 2, never stopped."""
    out = tmp_path_factory.mktemp("two") / "run"
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    return out


# Settings.


@pytest.mark.parametrize(
    ("preset", "corpus", "words"),
    [
        ("i-darts-ner", "conll_03", ["glove"]),
        ("ess-ner", "conll_03", ["glove"]),
        ("ess-wnut", "wnut_17", ["crawl", "twitter"]),
        ("ess-chunk", "conll_2000", ["extvec"]),
    ],
)
def test_presets_hold_the_published_settings(preset: str, corpus: str, words: list[str]) -> None:
    config = resolve(TaggerConfig, kind="tagging", preset=preset)
    published = {"layers": 1, "hidden_size": 512, "learning_rate": 0.1, "clip": 5.0, "epochs": 150}
    i_darts = {"anneal_factor": 0.25, "patience": 2, "batch_size": 32, "train_with_dev": False}
    ess = {"anneal_factor": 0.5, "patience": 3, "batch_size": 24, "train_with_dev": True, "word_dropout": 0.05}
    published |= i_darts if preset == "i-darts-ner" else ess
    assert {name: getattr(config, name) for name in published} == published
    assert (config.corpus, len(config.seeds), config.locked_dropout) == (corpus, 5, 0.5)
    assert config.embeddings == [*words, "pooled-flair:news-forward", "pooled-flair:news-backward"]
    assert preset in preset_names("tagging")
    rnn = "i-darts-ptb" if preset == "i-darts-ner" else "ess-ptb"
    assert (config.rnn, config.init_range) == (rnn, 0.04)


def test_the_preset_of_a_small_cell_is_what_was_measured() -> None:
    config = resolve(TaggerConfig, kind="tagging", preset="small-ner")
    table = yaml.safe_load((Path(__file__).parents[2] / "benchmarks/tables/small_cells.yaml").read_text("utf-8"))
    settings = table["columns"]["WNUT-2017"]["tagging"]
    assert {name: getattr(config, name) for name in settings} == settings
    assert load_genotype(config.rnn).one_line() == table["rows"]["relu0-tanh1"]["rnn"]


def test_a_layer_is_trained_at_the_rate_that_it_is_stored_with(
    corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = dataclasses.replace(Genotype.parse("tanh0"), origin={"learning_rate": 0.05})
    slow.save(tmp_path / "slow.json")
    with caplog.at_level(logging.INFO, "flair_nas"):
        for rnn, rate in (("lstm", 0.2), ("small-relu-tanh", 0.2), (f"{tmp_path / 'slow.json'},dropout=0.1", 0.05)):
            out = tmp_path / rnn.split("/")[-1]
            train_taggers(settings(corpus, rnn=rnn, learning_rate=None, epochs=1), out, progress=False)
            assert read_settings(out / "config.yaml", TaggerConfig)["learning_rate"] == rate
            assert lines(out / "seed-1" / "history.jsonl")[0]["learning_rate"] == rate
            assert f"learning rate {rate:g}, as advised for" in caplog.text
            caplog.clear()
        for rate in (0.5, None):  # the folder's own, when it is run again
            train_taggers(settings(corpus, learning_rate=rate, epochs=1), tmp_path / "own", progress=False)
    assert "as advised" not in caplog.text
    dataclasses.replace(slow, origin={"learning_rate": "fast"}).save(tmp_path / "slow.json")
    with pytest.raises(FlairNasError, match="learning_rate in its origin must be a number above 0, got 'fast'"):
        train_taggers(settings(corpus, rnn=str(tmp_path / "slow.json"), learning_rate=None), tmp_path / "no")


def test_adamw_and_the_steps_of_a_warm_up(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def stepping(self: Any, *arguments: Any, **named: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", stepping)
    caplog.set_level(logging.INFO, "flair_nas")
    config = settings(corpus, optimizer="adamw", learning_rate=None, warmup_steps=4, epochs=2, patience=5)
    train_taggers(config, tmp_path / "run", progress=False)
    assert "learning rate 0.001, as advised for adamw" in caplog.text
    assert rates == pytest.approx([0.00025, 0.0005, 0.00075, 0.001, 0.001, 0.001])
    history = lines(tmp_path / "run" / "seed-1" / "history.jsonl")
    assert [line["learning_rate"] for line in history] == pytest.approx([0.00075, 0.001])
    rates.clear()
    changes = {
        "learning_rate": 1e-6,
        "warmup_steps": 20,
        "epochs": 3,
        "patience": 0,
        "train_with_dev": True,
        "min_learning_rate": 0,
    }
    train_taggers(settings(corpus, optimizer="adamw", **changes), tmp_path / "falling", progress=False)
    shares = [rate / (1e-6 * (step + 1) / 20) for step, rate in enumerate(rates)]
    assert {round(share, 6) for share in shares} >= {1.0, 0.5}  # it falls while it warms up, and is not set back
    with pytest.raises(FlairNasError, match="optimizer adamw takes a learning_rate of about 0.001, got 0.2"):
        settings(corpus, optimizer="adamw", learning_rate=0.2)


def test_a_start_of_weights_is_that_of_the_settings_unless_the_layer_says() -> None:
    def text(rnn: str) -> str:
        return training.rnn_type(TaggerConfig(rnn=rnn, init_range=0.04))

    assert text("darts-v2") == "darts-v2,init_range=0.04" and text("lstm") == "LSTM"
    assert text("darts-v2,init_range=0.1") == "darts-v2,init_range=0.1"
    assert training.rnn_type(TaggerConfig(rnn="darts-v2")) == "darts-v2"
    layer = build_rnn(text("darts-v2"), input_size=30, hidden_size=40)
    assert max(float(weight.abs().max()) for weight in layer.parameters()) <= 0.04


# What a run leaves.


@pytest.mark.slow
def test_a_run_writes_every_file_and_its_settings(two_seeds: Path, corpus: str) -> None:
    each = {"checkpoint.pt", "checkpoint-previous.pt", "model.pt"}
    each |= {"history.jsonl", "metrics.json", "dev.txt", "test.txt"}
    expected = {"config.yaml", "metrics.json", "model.pt", "model.safetensors", "config.json", "seed-1", "seed-2"}
    expected |= {f"seed-{seed}/{name}" for seed in (1, 2) for name in each}
    assert {str(path.relative_to(two_seeds)) for path in two_seeds.rglob("*")} == expected
    assert resolve(TaggerConfig, kind="tagging", file=two_seeds / "config.yaml") == settings(corpus, seeds=[1, 2])
    for seed in (1, 2):
        history = lines(two_seeds / f"seed-{seed}" / "history.jsonl")
        assert [line["epoch"] for line in history] == [1, 2, 3]
        assert all(line["seconds"] > 0 and line["train_loss"] > 0 and line["dev_loss"] > 0 for line in history)
        best = json.loads((two_seeds / f"seed-{seed}" / "metrics.json").read_text())["best_epoch"]
        scores = [(line["dev_f1"], -line["dev_loss"]) for line in history]
        assert scores.index(max(scores)) + 1 == best


def test_the_figures_are_those_of_the_saved_models(two_seeds: Path, corpus: str) -> None:
    metrics = json.loads((two_seeds / "metrics.json").read_text())
    data = load_corpus(corpus).corpus
    for result in metrics["seeds"]:
        folder = two_seeds / f"seed-{result['seed']}"
        tagger = SequenceTagger.load(folder / "model.pt")
        for part, sentences in (("dev", data.dev), ("test", data.test)):
            assert evaluate_tagger(tagger, list(sentences)).f1 == pytest.approx(result[f"{part}_f1"], abs=1e-9)
            rows = [block.split("\n") for block in (folder / f"{part}.txt").read_text().strip().split("\n\n")]
            columns = [list(zip(*(row.split("\t") for row in block), strict=True)) for block in rows]
            assert [list(words) for words, _, _ in columns] == [[token.text for token in s] for s in sentences]
            gold, predicted = [list(c[1]) for c in columns], [list(c[2]) for c in columns]
            counted = 100 * f1_score(gold, predicted, mode="strict", scheme=IOB2)
            assert counted == pytest.approx(result[f"{part}_f1"], abs=1e-9)
        assert result["dev_f1"] == max(line["dev_f1"] for line in lines(folder / "history.jsonl")) > 0
        trained = [p for p in tagger.parameters() if p.requires_grad]
        assert result["parameters"] == metrics["parameters"] == sum(p.numel() for p in trained)
        assert result["rnn_parameters"] == sum(p.numel() for p in tagger.rnn.parameters())


def test_mean_and_sample_deviation_over_seeds(two_seeds: Path) -> None:
    metrics = json.loads((two_seeds / "metrics.json").read_text())
    for name in ("dev_f1", "test_f1", "seconds_per_epoch"):
        values = [result[name] for result in metrics["seeds"]]
        assert metrics["summary"][name]["mean"] == pytest.approx(numpy.mean(values))
        assert metrics["summary"][name]["sd"] == pytest.approx(numpy.std(values, ddof=1)) != 0
    best = max(metrics["seeds"], key=lambda result: result["dev_f1"])["seed"]
    assert (two_seeds / "model.pt").read_bytes() == (two_seeds / f"seed-{best}" / "model.pt").read_bytes()


def test_a_seed_gives_one_model_alone_or_after_another(two_seeds: Path, corpus: str, tmp_path: Path) -> None:
    metrics = train_taggers(settings(corpus, seeds=[2]), tmp_path, progress=False)
    assert metrics["summary"]["dev_f1"]["sd"] is None
    again, second, first = (weights(p / "model.pt") for p in (tmp_path, two_seeds / "seed-2", two_seeds / "seed-1"))
    torch.testing.assert_close(again, second, rtol=0, atol=0)
    assert not torch.equal(first["linear.weight"], second["linear.weight"])
    histories = [untimed(lines(path / "seed-2" / "history.jsonl")) for path in (tmp_path, two_seeds)]
    assert histories[0] == histories[1]


@pytest.fixture(scope="module")
def types(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The corpus with types alone as labels, and O where there is none."""
    folder = tmp_path_factory.mktemp("types")
    for part in ("train", "dev", "test"):
        text = (Path(corpus) / f"{part}.txt").read_text(encoding="utf-8")
        (folder / f"{part}.txt").write_text(re.sub(r"\b[BI]-", "", text), encoding="utf-8")
    return str(folder)


def test_accuracy_counts_words_without_a_label(types: str, tmp_path: Path) -> None:
    (result,) = train_taggers(settings(types), tmp_path, progress=False)["seeds"]
    assert all(figures["accuracy"] == result[f"{part}_f1"] for part, figures in result["reports"].items())
    for part in ("dev", "test"):
        rows = [row.split("\t") for row in (tmp_path / "seed-1" / f"{part}.txt").read_text().split("\n") if row]
        right = [gold == predicted for _, gold, predicted in rows]
        assert ["O", "O"] in [row[1:] for row in rows] and not all(right)
        assert result[f"{part}_f1"] == pytest.approx(100 * sum(right) / len(rows))
    history = lines(tmp_path / "seed-1" / "history.jsonl")
    assert result["dev_f1"] == max(line["dev_f1"] for line in history) == history[result["best_epoch"] - 1]["dev_f1"]


def test_training_ends_when_the_learning_rate_is_spent(corpus: str, tmp_path: Path) -> None:
    config = settings(corpus, epochs=50, anneal_factor=1e-3, min_learning_rate=1e-2)
    (result,) = train_taggers(config, tmp_path, progress=False)["seeds"]
    history = lines(tmp_path / "seed-1" / "history.jsonl")
    assert result["learning_rate_exhausted"] and result["epochs"] == len(history) < 50
    again = train_taggers(dataclasses.replace(config, epochs=60), tmp_path, progress=False)
    assert again["seeds"] == [result]


def test_a_corpus_without_a_test_file_has_no_test_figure(corpus: str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    (folder / "test.txt").unlink()
    metrics = train_taggers(settings(str(folder), epochs=1), tmp_path / "run", progress=False)
    assert metrics["seeds"][0]["test_f1"] is None and "test_f1" not in metrics["summary"]
    assert not (tmp_path / "run" / "seed-1" / "test.txt").exists()


# Exact resume.


def interrupt_while(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, wanted: Callable[..., bool]) -> None:
    """Ctrl-C at the first call of a function whose arguments are wanted."""
    function = getattr(module, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if wanted(*args, **kwargs):
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)


INSTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "middle of the second epoch": lambda patch: at_batch(patch, BATCHES + 2, press_ctrl_c),
    "second seed, after annealing": lambda patch: at_batch(patch, 5 * BATCHES + 2, press_ctrl_c),
    "evaluation on dev": lambda patch: interrupt_while(
        patch, epochs, "evaluate_tagger", lambda tagger, *_, **__: "epoch" in str(tagger.model_card)
    ),
    "between model and checkpoint": lambda patch: interrupt_while(
        patch, run, "write_text", lambda path, text: path.name == "history.jsonl" and text.count("\n") == 2
    ),
    "while a checkpoint is written": lambda patch: interrupt_while(
        patch, torch, "save", lambda state, *_, **__: state.get("epoch") == 2
    ),
    "final evaluation": lambda patch: interrupt_while(
        patch, training, "evaluate_tagger", lambda *_, predictions=None, **__: predictions is not None
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("instant", INSTANTS)
def test_a_stopped_run_goes_on_exactly(corpus: str, two_seeds: Path, tmp_path: Path, instant: str) -> None:
    out, config = tmp_path / "run", settings(corpus, seeds=[1, 2])
    with pytest.MonkeyPatch.context() as patch:
        INSTANTS[instant](patch)
        with pytest.raises(KeyboardInterrupt) as caught:  # a bare one that escapes would end pytest
            train_taggers(config, out, progress=False)
    assert isinstance(caught.value, RunStopped)
    assert str(caught.value).endswith(f"go on with: flair-nas tag train --resume {out}")
    assert not list(out.rglob("*.part")) and not (out / "metrics.json").exists()
    train_taggers(config, out, progress=False)
    assert_same_run(out, two_seeds)


@pytest.mark.slow
def test_scores_can_wait(corpus: str, tmp_path: Path, two_seeds: Path) -> None:
    """Trained in two rungs without scores, of a corpus that is loaded; then scored without any training."""
    loaded = load_corpus(corpus)
    rung = settings(corpus, epochs=1)
    metrics = train_taggers(rung, tmp_path, corpus=loaded, parts=(), progress=False)
    (line,) = lines(tmp_path / "seed-1" / "history.jsonl")
    assert metrics["seeds"][0]["dev_f1"] == line["dev_f1"] and metrics["seeds"][0]["test_f1"] is None
    assert not list(tmp_path.rglob("dev.txt")) and not list(tmp_path.rglob("test.txt"))
    config = settings(corpus, seeds=[1, 2])
    train_taggers(config, tmp_path, corpus=loaded, parts=(), progress=False)
    before = (tmp_path / "seed-1" / "checkpoint.pt").read_bytes()
    with mock.patch.object(training, "_run_trainer"):
        train_taggers(config, tmp_path, progress=False)
    assert (tmp_path / "seed-1" / "checkpoint.pt").read_bytes() == before
    assert_same_run(tmp_path, two_seeds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["searched cell", "pooled embeddings", "transformer", "characters", "warm-up"])
def test_a_resume_restores_what_each_part_remembers(corpus: str, tmp_path: Path, kind: str) -> None:
    changes: dict[str, Any] = {
        "searched cell": {"rnn": "tanh0-relu1,recurrent_dropout=0.25,input_dropout=0.1"},
        "pooled embeddings": {"embeddings": [f"pooled-flair:{tmp_path / 'lm.pt'}"]},
        "transformer": {"embeddings": [f"transformer:{tmp_path / 'bert'}", "one-hot"], "storage": "none"},
        "characters": {
            "embeddings": ["char"],
            "crf": False,
            "word_dropout": 0.1,
            "rnn": "tanh0,recurrence=elementwise,recurrent_dropout=0.25",
        },
        "warm-up": {"optimizer": "adamw", "learning_rate": 0.01, "warmup_steps": 5},
    }[kind]
    write_character_model(tmp_path / "lm.pt")
    write_transformer(tmp_path / "bert")
    config = settings(corpus, **changes)
    train_taggers(config, tmp_path / "whole", progress=False)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunStopped):
        at_batch(patch, BATCHES + 2, press_ctrl_c)
        train_taggers(config, tmp_path / "stopped", progress=False)
    train_taggers(config, tmp_path / "stopped", progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_checkpoints_leave_out_what_is_frozen(corpus: str, tmp_path: Path) -> None:
    """The spec gives it back; former checkpoints hold it, too. A model file is whole."""
    write_transformer(tmp_path / "bert")
    write_character_model(tmp_path / "lm.pt")
    specs = [f"transformer:{tmp_path / 'bert'}", f"pooled-flair:{tmp_path / 'lm.pt'}", "one-hot"]
    config = settings(corpus, embeddings=specs)
    metrics = train_taggers(dataclasses.replace(config, epochs=1), tmp_path / "run", progress=False)
    folder = tmp_path / "run" / "seed-1"
    tagger = load_tagger(folder / "model.pt")
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)
    whole = tagger.state_dict()
    assert set(whole) - set(saved["model"]) == {name for name in whole if ".model." in name or ".lm." in name}
    trained = sum(weight.numel() for name, weight in tagger.named_parameters() if name in saved["model"])
    assert metrics["parameters"] == trained
    former = shutil.copytree(tmp_path / "run", tmp_path / "former")
    torch.save(saved | {"model": whole}, former / "seed-1" / "checkpoint.pt")
    for out in ("run", "former"):
        train_taggers(config, tmp_path / out, progress=False)
    assert_same_run(tmp_path / "run", former)
    write_transformer(tmp_path / "other", seed=1)
    shutil.rmtree(tmp_path / "bert")
    (tmp_path / "other").rename(tmp_path / "bert")
    with pytest.raises(FlairNasError, match="file of 0-transformer-bert-.* is another one than when this run began"):
        train_taggers(dataclasses.replace(config, epochs=4), tmp_path / "run", progress=False)


@pytest.mark.slow
def test_dev_can_be_learned_from(corpus: str, tmp_path: Path) -> None:
    """As Flair's train_with_dev: then the last epoch is kept, and the training loss rules the learning rate."""
    changes = {"train_with_dev": True, "learning_rate": 8.0, "anneal_factor": 0.1, "epochs": 5}
    seen: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        loss = SequenceTagger.forward_loss

        def reading(self: Any, sentences: Any) -> Any:
            if self.training:
                seen.update(sentence.to_plain_string() for sentence in sentences)
            return loss(self, sentences)

        patch.setattr(SequenceTagger, "forward_loss", reading)
        metrics = train_taggers(settings(corpus, **changes), tmp_path / "whole", progress=False)
    assert len(seen) == 30
    history = lines(tmp_path / "whole" / "seed-1" / "history.jsonl")
    losses, rates = ([line[name] for line in history] for name in ("train_loss", "learning_rate"))
    expected, best = [8.0], losses[0]
    for value in losses[1:-1]:
        expected.append(expected[-1] * (1 if value < best else 0.1))
        best = min(best, value)
    assert rates[1:] == pytest.approx(expected) and rates[-1] < 8  # else annealing was not put to the test
    assert metrics["seeds"][0]["best_epoch"] == metrics["seeds"][0]["epochs"] == len(history)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunStopped):
        at_batch(patch, 10, press_ctrl_c)
        train_taggers(settings(corpus, **changes), tmp_path / "stopped", progress=False)
    train_taggers(settings(corpus, **changes), tmp_path / "stopped", progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_labels_of_a_dev_that_is_learned_from_are_known(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    dev = tmp_path / "corpus" / "dev.txt"
    dev.write_text(dev.read_text(encoding="utf-8") + "\nMill NNP B-ORG\n", encoding="utf-8")
    config = settings(str(tmp_path / "corpus"), train_with_dev=True, epochs=1, seeds=[3, 2])
    metrics = train_taggers(config, tmp_path / "run", progress=False)
    assert metrics["model_seed"] == 3  # dev tells nothing of them
    assert "ORG" in str(SequenceTagger.load(tmp_path / "run" / "model.pt").label_dictionary.get_items())


@pytest.mark.slow
def test_more_epochs_extend_a_finished_run(two_seeds: Path, corpus: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_taggers(settings(corpus, seeds=[2], epochs=2), out, progress=False)
    train_taggers(settings(corpus, seeds=[1, 2], epochs=3), out, progress=False)
    assert_same_run(out, two_seeds)
    rates = [line["learning_rate"] for line in lines(out / "seed-2" / "history.jsonl")]
    assert rates[0] > rates[-1]  # else annealing was not put to the test


def test_a_finished_run_is_not_trained_again(
    two_seeds: Path, corpus: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = {path: path.stat().st_mtime_ns for path in two_seeds.glob("seed-*/*")}
    metrics = json.loads((two_seeds / "metrics.json").read_text())
    at_batch(monkeypatch, 1, lambda _: pytest.fail("a batch was trained"))
    assert train_taggers(settings(corpus, seeds=[1, 2]), two_seeds, progress=False) == metrics
    assert f"{two_seeds} is finished (epochs: 3, 3), so nothing was trained" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in two_seeds.glob("seed-*/*")} == before


def test_a_finished_run_is_extended_and_never_cut(two_seeds: Path, corpus: str, tmp_path: Path) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    names = ("config.yaml", "metrics.json", "model.pt", "seed-1/metrics.json", "seed-2/metrics.json")
    before = {name: (out / name).read_bytes() for name in names}
    metrics = train_taggers(settings(corpus, seeds=[1], epochs=2), out, progress=False)
    assert [result["seed"] for result in metrics["seeds"]] == [1, 2] and metrics["summary"]["epochs"]["mean"] == 3
    assert {name: (out / name).read_bytes() for name in names} == before
    metrics = train_taggers(settings(corpus, seeds=[3], epochs=1), out, progress=False)
    assert [(result["seed"], result["epochs"]) for result in metrics["seeds"]] == [(1, 3), (2, 3), (3, 3)]
    assert read_settings(out / "config.yaml", TaggerConfig)["seeds"] == [1, 2, 3]


def test_a_seed_that_is_not_done_may_be_left_out(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        at_batch(patch, BATCHES * 3 + 2, press_ctrl_c)
        with pytest.raises(RunStopped):
            train_taggers(settings(corpus, seeds=[1, 2]), tmp_path / "run", progress=False)
    metrics = train_taggers(settings(corpus, seeds=[1]), tmp_path / "run", progress=False)
    assert [result["seed"] for result in metrics["seeds"]] == [1]
    assert read_settings(tmp_path / "run" / "config.yaml", TaggerConfig)["seeds"] == [1]


def test_other_settings_are_refused_and_named(two_seeds: Path, corpus: str) -> None:
    written = (two_seeds / "config.yaml").read_bytes()
    with pytest.raises(FlairNasError) as caught:
        train_taggers(settings(corpus, hidden_size=9, crf=False, epochs=5), two_seeds, progress=False)
    assert "hidden_size was 8 and is now 9" in str(caught.value) and "crf was True and is now False" in str(
        caught.value
    )
    assert "epochs" not in str(caught.value)
    assert (two_seeds / "config.yaml").read_bytes() == written


DAMAGES: dict[str, Callable[[Path], object]] = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped bit": lambda path: flip_a_weight(path),
    "other tagger": lambda path: torch.save({"model": {"linear.weight": torch.zeros(3)}}, path),
}


def flip_a_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(torch.load(path, weights_only=True)["model"]["linear.weight"].numpy().tobytes()) + 1] ^= 1
    path.write_bytes(content)


def stopped_at_the_end(two_seeds: Path, out: Path) -> Path:
    """A copy of a run without the result of its first seed; gives the folder of that."""
    shutil.copytree(two_seeds, out)
    (out / "seed-1" / "metrics.json").unlink()
    return out / "seed-1"


@pytest.mark.parametrize("change", ["other weights", "another size"])
def test_embeddings_whose_file_was_replaced_are_refused(corpus: str, tmp_path: Path, change: str) -> None:
    write_character_model(tmp_path / "lm.pt")
    config = settings(corpus, embeddings=["one-hot", f"flair:{tmp_path / 'lm.pt'}"], epochs=1)
    train_taggers(config, tmp_path / "run", progress=False)
    write_character_model(tmp_path / "lm.pt", seed=1, hidden_size=6 if change == "other weights" else 7)
    with pytest.raises(FlairNasError, match=r"seed-1: the file of .*lm\.pt is another one than when this run began"):
        train_taggers(dataclasses.replace(config, epochs=2), tmp_path / "run", progress=False)


def test_embeddings_with_nan_that_no_word_has_are_the_same_as_before(corpus: str, tmp_path: Path) -> None:
    config = settings(corpus, embeddings=[vectors_with_nan(tmp_path / "vectors", "nowhere")], epochs=1)
    train_taggers(config, tmp_path / "run", progress=False)
    assert train_taggers(dataclasses.replace(config, epochs=2), tmp_path / "run", progress=False)["seeds"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["half", "flipped bit"])
def test_a_damaged_checkpoint_costs_an_epoch(
    two_seeds: Path, corpus: str, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="flair_nas")
    out = tmp_path / "run"
    folder = stopped_at_the_end(two_seeds, out)
    DAMAGES[damage](folder / "checkpoint.pt")
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert f"{folder / 'checkpoint.pt'}: this checkpoint cannot be read" in caplog.text
    assert f"the one before is used: {folder / 'checkpoint-previous.pt'}" in caplog.text
    assert_same_run(out, two_seeds)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints_are_an_error_and_stay(two_seeds: Path, corpus: str, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    folder = stopped_at_the_end(two_seeds, out)
    checkpoints = [folder / "checkpoint.pt", folder / "checkpoint-previous.pt"]
    for path in checkpoints:
        DAMAGES[damage](path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(FlairNasError) as caught:
        train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert f"{checkpoints[0]}: this checkpoint cannot be read" in str(caught.value)
    assert f"To start over, delete {folder}" in str(caught.value)
    assert all(path.name in str(caught.value) for path in checkpoints)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    if damage == "half":  # the advice is good
        shutil.rmtree(folder)
        train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
        assert_same_run(out, two_seeds)


def damage_model(model: Path, damage: str) -> None:
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        model.unlink()
    else:
        model.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "flipped bit"])
def test_a_stopped_seed_whose_best_model_is_missing_or_damaged_is_refused(
    two_seeds: Path, corpus: str, tmp_path: Path, damage: str
) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    damage_model(out / "seed-1" / "model.pt", damage)
    (out / "seed-1" / "metrics.json").unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(
        FlairNasError, match=r"seed-1: model\.pt, the best model so far, is missing or damaged; .*, delete .*/seed-1"
    ):
        train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    if damage != "missing":
        return
    shutil.rmtree(out / "seed-1")  # the advice is good
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert_same_run(out, two_seeds)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "flipped bit"])
@pytest.mark.parametrize("which", ["best", "other"])
def test_a_finished_seed_whose_model_is_missing_or_damaged_holds_nothing_up(
    two_seeds: Path, corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, which: str
) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    best = json.loads((out / "metrics.json").read_text())["model_seed"]
    model = out / f"seed-{best if which == 'best' else 3 - best}" / "model.pt"
    damage_model(model, damage)
    metrics = train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert metrics["model_seed"] == best and (out / "model.pt").read_bytes() == (two_seeds / "model.pt").read_bytes()
    assert f"{model} is missing or damaged" in caplog.text or f"{model} was missing or damaged" in caplog.text
    if which == "best":  # the run has a copy
        assert model.read_bytes() == (out / "model.pt").read_bytes()
        assert_same_run(out, two_seeds)


def test_the_best_seed_without_any_model_is_refused_when_all_else_is_done(
    two_seeds: Path, corpus: str, tmp_path: Path
) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    best = json.loads((out / "metrics.json").read_text())["model_seed"]
    for folder in (out, out / f"seed-{best}"):
        damage_model(folder / "model.pt", "flipped bit")
    with pytest.raises(FlairNasError, match=rf"seed-{best}/model\.pt is missing or damaged, .* delete"):
        train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    shutil.rmtree(out / f"seed-{best}")  # the advice is good
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert_same_run(out, two_seeds)


def test_figures_of_fewer_epochs_than_the_model_has_are_made_again(corpus: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (first,) = train_taggers(settings(corpus, epochs=1), out, progress=False)["seeds"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunStopped):
        at_batch(patch, BATCHES + 2, press_ctrl_c)
        train_taggers(settings(corpus, epochs=3), out, progress=False)
    (again,) = train_taggers(settings(corpus, epochs=1), out, progress=False)["seeds"]
    assert (first["epochs"], again["epochs"]) == (1, 2)
    assert again["dev_f1"] == max(line["dev_f1"] for line in lines(out / "seed-1" / "history.jsonl"))


# Numbers that are not finite.


def vectors_with_nan(path: Path, word: str) -> str:
    vectors = KeyedVectors(vector_size=5)
    words = [*dict.fromkeys([*WORDS, word])]
    table = numpy.random.default_rng(0).normal(size=(len(words), 5)).astype("float32")
    table[words.index(word), 2] = numpy.nan
    vectors.add_vectors(words, table)
    vectors.save(str(path))
    return f"word:{path}"


def finite(checkpoint: Path, leave_out: str = "never") -> bool:
    model = torch.load(checkpoint, weights_only=True)["model"]
    return all(torch.isfinite(tensor).all() for name, tensor in model.items() if leave_out not in name)


@pytest.mark.parametrize("storage", ["none", "cpu"])
def test_nan_in_word_vectors_is_found_where_it_enters(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    # only one training sentence has the word, so the batch can be told
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    text = (folder / "train.txt").read_text().replace("Oslo", "London")
    (folder / "train.txt").write_text(text + "\nOslo NNP B-LOC\nsang VBD O\n")
    embeddings = [vectors_with_nan(tmp_path / "nan.gensim", "Oslo")]
    seen: list[str] = []
    forward_loss = SequenceTagger.forward_loss

    def noted(self: SequenceTagger, sentences: Any) -> Any:
        seen.append(" ".join(sentence.to_plain_string() for sentence in sentences))
        return forward_loss(self, sentences)

    monkeypatch.setattr(SequenceTagger, "forward_loss", noted)
    config = settings(str(folder), embeddings=embeddings, storage=storage, batch_size=5)
    with pytest.raises(FlairNasError) as caught:
        train_taggers(config, tmp_path / "run", progress=False)
    (batch,) = [number for number, words in enumerate(seen, start=1) if "Oslo" in words]
    assert batch == len(seen)
    checkpoint = tmp_path / "run" / "seed-1" / "checkpoint.pt"
    for part in (f"epoch 1, batch {batch} ", "the word 'Oslo' in 'Oslo sang'", "mend the embeddings", str(checkpoint)):
        assert part in str(caught.value)
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 0 and finite(checkpoint, leave_out="embeddings.")


@pytest.mark.slow
def test_nan_in_the_second_epoch_keeps_the_checkpoint_of_the_first(
    corpus: str, tmp_path: Path, two_seeds: Path
) -> None:
    config, out = settings(corpus, seeds=[1]), tmp_path / "run"

    def spoil(tagger: SequenceTagger) -> None:
        with torch.no_grad():
            next(tagger.embeddings.parameters()).fill_(torch.nan)

    with pytest.MonkeyPatch.context() as patch:
        at_batch(patch, BATCHES + 2, spoil)
        with pytest.raises(FlairNasError, match=r"epoch 2, batch 2 .*The checkpoint of epoch 1 is kept"):
            train_taggers(config, out, progress=False)
    checkpoint = out / "seed-1" / "checkpoint.pt"
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 1 and finite(checkpoint)
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert_same_run(out, two_seeds)


def test_nan_in_a_word_of_dev_is_an_error(corpus: str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    for name in ("train", "test"):
        file = folder / f"{name}.txt"
        file.write_text(file.read_text().replace("Oslo", "London"))
    assert "Oslo" in (folder / "dev.txt").read_text()
    config = settings(str(folder), embeddings=[vectors_with_nan(tmp_path / "nan.gensim", "Oslo")])
    with pytest.raises(FlairNasError, match="Oslo"):
        train_taggers(config, tmp_path / "run", progress=False)


def test_a_loss_that_explodes_gets_advice(corpus: str, tmp_path: Path) -> None:
    rnn = "relu0-relu1,init_range=5,highway=false"
    config = settings(corpus, learning_rate=1e6, clip=1e12, patience=30, epochs=20, crf=False, rnn=rnn)
    with pytest.raises(FlairNasError, match=r"not finite in epoch \d+, batch \d .*lower learning rate"):
        train_taggers(config, tmp_path / "run", progress=False)
    assert finite(tmp_path / "run" / "seed-1" / "checkpoint.pt")


# The folder.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"corpus": "dmo"}, "did you mean demo"),
        ({"embeddings": ["one-hott"]}, "did you mean one-hot"),
        ({"rnn": "i-dart-ptb"}, "Did you mean i-darts-ptb"),
        ({"device": "gpu"}, "device must be cpu, cuda or cuda:N"),
    ],
)
def test_a_mistyped_setting_can_be_put_right_in_the_same_folder(
    corpus: str, tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    out = tmp_path / "run"
    with pytest.raises(FlairNasError, match=expected):
        train_taggers(settings(corpus, **changes), out, progress=False)
    metrics = train_taggers(settings(corpus, epochs=1), out, progress=False)
    assert metrics["seeds"][0]["epochs"] == 1


@pytest.mark.parametrize("other", ["relu0-tanh0", "relu0-tanh0-tanh1"])
def test_a_genotype_file_that_changed_is_not_resumed_with(corpus: str, tmp_path: Path, other: str) -> None:
    file = tmp_path / "cell.json"
    load_genotype("tanh0-relu1").save(file)
    config = settings(corpus, rnn=str(file), epochs=1)
    train_taggers(config, tmp_path / "run", progress=False)
    load_genotype(other).save(file)
    with pytest.raises(FlairNasError, match="the layer is another one than when this run began"):
        train_taggers(dataclasses.replace(config, epochs=2), tmp_path / "run", progress=False)


@pytest.mark.parametrize("part", ["dev", "test"])
def test_a_label_that_train_never_has_counts_as_missed_and_is_announced(
    corpus: str, tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="flair_nas")
    shutil.copytree(corpus, folder := tmp_path / "corpus")
    file = folder / f"{part}.txt"
    file.write_text(file.read_text(encoding="utf-8").replace("-LOC", "-CUTLERY"), encoding="utf-8")
    metrics = train_taggers(settings(str(folder), epochs=3, learning_rate=1e-4), tmp_path / "run", progress=False)
    assert f"CUTLERY occurs in {part} and not in train" in caplog.text
    assert "CUTLERY" in metrics["seeds"][0]["reports"][part]["label_set"]


@pytest.mark.parametrize("epochs", [1, 2], ids=["finished", "to be extended"])
def test_a_corpus_that_changed_is_not_gone_on_with(corpus: str, tmp_path: Path, epochs: int) -> None:
    shutil.copytree(corpus, folder := tmp_path / "corpus")
    config = settings(str(folder), epochs=1)
    train_taggers(config, tmp_path / "run", progress=False)
    if epochs == 2:  # then the checkpoint tells; else the result of the seed does
        (tmp_path / "run" / "seed-1" / "metrics.json").unlink()
    file = folder / "train.txt"
    file.write_text(file.read_text(encoding="utf-8").replace("-LOC", "-CUTLERY"), encoding="utf-8")
    with pytest.raises(FlairNasError, match="the corpus is another one than when this run began"):
        train_taggers(dataclasses.replace(config, epochs=epochs), tmp_path / "run", progress=False)


def test_a_seed_that_found_nothing_says_so(corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train_taggers(settings(corpus, seeds=[1, 2], epochs=1, learning_rate=0.05, crf=False), tmp_path, progress=False)
    assert "seeds 1, 2 found nothing on dev in any epoch" in caplog.text


def test_what_was_read_is_logged_and_what_only_flairs_trainer_sees_is_not(
    corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="flair"), caplog.at_level(logging.INFO, logger="flair_nas"):
        flair.logger.propagate = True
        try:
            train_taggers(settings(corpus, epochs=1), tmp_path / "quiet", progress=False)
            assert not [record for record in caplog.records if record.name == "flair"]
            train_taggers(settings(corpus, epochs=1), tmp_path / "run", progress=False, verbose=True)
        finally:
            flair.logger.propagate = False
    text = caplog.text
    assert "sentences (train, dev, test), beginning" in text and re.search(r"ner: LOC \d+, PER \d+", text)
    assert "Corpus: " not in text and "Test data not provided" not in text
    assert "Model:" in text  # Flair did speak
    assert "seed 1, epoch 1 of 1: loss" in text


def test_labels_are_counted_and_one_that_occurs_once_is_suspicious(
    corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="flair_nas")
    shutil.copytree(corpus, folder := tmp_path / "corpus")
    train = folder / "train.txt"
    text = train.read_text(encoding="utf-8")
    describe_corpus(load_corpus(str(folder)))
    assert f"ner: LOC {text.count('B-LOC')}, PER {text.count('B-PER')}\n" in caplog.text
    assert "a single example" not in caplog.text
    train.write_text(text.replace("B-PER", "B-PRE", 1), encoding="utf-8")
    describe_corpus(load_corpus(str(folder)))
    assert "train has a single example of PRE, too little to learn from" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("rnn", ["lstm", "tanh0-relu1,init_range=0.3"])
def test_bfloat16_trains_as_float32_does(corpus: str, tmp_path: Path, rnn: str) -> None:
    histories = {}
    # batches of 4, so that the weights of an epoch's first batch are no good for its last
    changes = {"rnn": rnn, "epochs": 2, "batch_size": 4, "learning_rate": 0.3, "locked_dropout": 0.0}
    for precision in ("float32", "bfloat16"):
        config = settings(corpus, precision=precision, word_dropout=0.0, **changes)
        train_taggers(config, tmp_path / precision, progress=False)
        histories[precision] = lines(tmp_path / precision / "seed-1" / "history.jsonl")
    for name in ("train_loss", "dev_loss"):
        exact, rounded = ([line[name] for line in histories[precision]] for precision in ("float32", "bfloat16"))
        assert rounded == pytest.approx(exact, rel=0.03) and rounded != exact
        assert exact[1] < 0.5 * exact[0]


def test_a_tagger_is_loaded_without_its_vocabulary_being_listed(
    two_seeds: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flair.logger, "propagate", True)
    caplog.set_level("INFO", logger="flair")
    SequenceTagger.load(two_seeds / "model.pt")
    assert any(line.startswith("SequenceTagger predicts: ") for line in caplog.messages)
    caplog.clear()
    load_tagger(two_seeds)
    assert caplog.messages == []


# What is large or damaged.


def test_a_model_with_flipped_bytes_is_refused(two_seeds: Path, tmp_path: Path) -> None:
    content = bytearray((two_seeds / "model.pt").read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 64):
        content[place] ^= 0xFF
    (path := tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(FlairNasError, match=r"model\.pt: not a whole tagger file"):
        load_tagger(path)


@pytest.mark.parametrize(
    ("tokens", "changes", "warned"), [(4001, {}, True), (3999, {}, False), (4001, {"crf": False}, False)]
)
def test_a_sentence_that_a_crf_takes_gigabytes_for_is_told(
    tokens: int, changes: dict[str, Any], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = write_corpus(tmp_path)
    with open(tmp_path / "train.txt", "a") as stream:
        stream.write("\n" + "word NN O\n" * tokens)
    training._warn_of_length(settings(corpus, batch_size=32, **changes), load_corpus(corpus))
    assert ("--no-crf" in caplog.text and f"{tokens} tokens" in caplog.text) == warned


@pytest.mark.parametrize("blank", ["\n", ""])
def test_a_file_without_empty_lines_is_suspicious(blank: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="flair_nas")
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(f"Ada B-PER\nsang O\n{blank}" * 600, encoding="utf-8")
    describe_corpus(load_corpus(str(tmp_path)))
    assert (
        "train.txt:1: a sentence of 1,200 words begins here" in caplog.text and "is one missing?" in caplog.text
    ) is not bool(blank)


@pytest.mark.slow
def test_damaged_figures_of_a_seed_are_made_again(two_seeds: Path, corpus: str, tmp_path: Path) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    path = out / "seed-1" / "metrics.json"
    path.write_text(path.read_text().replace('"epochs": 3', '"epochs": 4'))
    train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)
    assert_same_run(out, two_seeds)


def test_what_belongs_to_another_seed_is_not_taken(two_seeds: Path, corpus: str, tmp_path: Path) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    for name in ("metrics.json", "checkpoint.pt"):
        first, second = (out / f"seed-{seed}" / name for seed in (1, 2))
        held = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(held)
    with pytest.raises(FlairNasError, match=r"seed-1: the seed is another one than when this run began"):
        train_taggers(settings(corpus, seeds=[1, 2]), out, progress=False)


@pytest.mark.parametrize("changes", [{"random": None}, {"optimizer": {}}, {"best": ["a"]}, {"history": [1]}])
def test_a_checkpoint_with_right_sums_and_other_content_is_refused(
    two_seeds: Path, corpus: str, tmp_path: Path, changes: dict[str, Any]
) -> None:
    shutil.copytree(two_seeds, out := tmp_path / "run")
    for path in (out / "seed-1").glob("checkpoint*.pt"):
        torch.save({**torch.load(path, weights_only=True), **changes}, path)
    with pytest.raises(FlairNasError, match=r"checkpoint\.pt: this checkpoint cannot be "):
        train_taggers(settings(corpus, seeds=[1, 2], epochs=4), out, progress=False)


# --- the width of the map on top of the embeddings ---


@pytest.mark.slow
def test_a_tagger_whose_layer_reads_a_map_of_another_width(tmp_path: Path) -> None:
    """It is loaded as data, from its pickle, and by Flair alone, which knows maps as wide as the embeddings only."""
    corpus = write_corpus(tmp_path / "corpus")
    train_taggers(settings(corpus, reproject=5, epochs=2), tmp_path / "run", progress=False)
    taggers = [load_tagger(tmp_path / "run"), load_tagger(tmp_path / "run" / "model.pt")]
    sentences = [str(s.to_plain_string()) for s in load_corpus(corpus).corpus.dev]
    said = []
    for tagger in taggers:
        assert tuple(tagger.embedding2nn.weight.shape) == (5, 100) and tagger.rnn.input_size == 5
        said.append([str(sentence) for sentence in predicted(tagger, sentences)])
    assert (tmp_path / "run" / "model.safetensors").exists()
    script = f"""
from flair.data import Sentence
from flair.models import SequenceTagger
tagger = SequenceTagger.load({str(tmp_path / "run" / "model.pt")!r})
sentences = [Sentence(text) for text in {sentences!r}]
tagger.predict(sentences)
print(len(tagger.embedding2nn.weight), *map(str, sentences), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-len(sentences) - 1 :] == ["5", *said[0]] and said[0] == said[1]


def predicted(tagger: SequenceTagger, texts: list[str]) -> list[Sentence]:
    sentences = [Sentence(text) for text in texts]
    tagger.predict(sentences)
    return sentences


def test_a_number_that_flair_is_given_is_true_as_before(tmp_path: Path) -> None:
    corpus = load_corpus(write_corpus(tmp_path / "corpus"))
    made = training.build_tagger(settings("demo"), corpus)
    tagger = SequenceTagger(
        embeddings=made.embeddings, tag_dictionary=made.label_dictionary, tag_type="ner", reproject_embeddings=5
    )
    tagger.save(tmp_path / "model.pt")
    assert tuple(SequenceTagger.load(tmp_path / "model.pt").embedding2nn.weight.shape) == (100, 100)
