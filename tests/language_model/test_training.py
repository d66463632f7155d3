"""Training language models: what a run leaves behind, exact resume, averaged SGD, and how it stops."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from killing import contents, differences
from small_language_model import GATED, settings, write_text_folder
from small_search import assert_same_runs

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.language_model import training
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.evaluation import evaluate_language_model
from flair_nas.language_model.perplexity import evaluate_stream
from flair_nas.language_model.saved import encode_text, load_language_model
from flair_nas.language_model.text.corpus import END, load_text
from flair_nas.language_model.training import KEYS, stops_improving, train_language_model
from flair_nas.runs.run import RunStopped
from flair_nas.settings.resolve import load_preset, preset_names, resolve


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path: Path) -> str:
    return write_text_folder(tmp_path / "text")


def stop_after(monkeypatch: pytest.MonkeyPatch, epochs: int) -> None:
    """Interrupts training in the middle of the epoch after so many."""
    clip = training._Training._clip

    def stopping(self: Any, gradients: Any, loss: Any, step: int) -> float:
        if self.epoch == epochs and step == 3:
            raise KeyboardInterrupt
        return clip(self, gradients, loss, step)

    monkeypatch.setattr(training._Training, "_clip", stopping)


# --- what a run leaves behind ---


@pytest.mark.slow
@pytest.mark.parametrize("rnn", ["darts-v1,init_range=0.2,recurrent_dropout=0.1", "lstm", "GRU", GATED])
def test_a_run_learns_and_leaves_everything_behind(text: str, tmp_path: Path, rnn: str) -> None:
    out = tmp_path / "run"
    rate = 1.0 if rnn == "GRU" else 5.0  # which is too high for it
    config = settings(text, rnn=rnn, epochs=8, average_after=None, embedding_size=16, learning_rate=rate)
    metrics = train_language_model(config, out, progress=False)
    names = {path.name for path in out.iterdir()}
    assert names == {
        "config.yaml", "history.jsonl", "metrics.json", "model.pt", "checkpoint.pt", "checkpoint-previous.pt"
    }  # fmt: skip
    assert LanguageModelConfig(**yaml.safe_load((out / "config.yaml").read_text())) == config
    assert json.loads((out / "metrics.json").read_text()) == metrics
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in history] == [1, 2, 3, 4, 5, 6, 7, 8]
    losses = [line["dev_loss"] for line in history]
    assert metrics["best_epoch"] == losses.index(min(losses)) + 1
    vocabulary = len(load_text(text).vocabulary)
    assert metrics["vocabulary"] == vocabulary
    assert vocabulary == 20 and max(metrics["dev_perplexity"], metrics["test_perplexity"]) < 15
    assert history[metrics["best_epoch"] - 1]["train_loss"] < history[0]["train_loss"]
    assert metrics["seconds_per_epoch"] > 0 and metrics["cpu_seconds_per_epoch"] > 0 and metrics["peak_memory_mb"] > 10
    assert all(math.isclose(line["dev_perplexity"], math.exp(line["dev_loss"])) for line in history)

    saved = load_language_model(out)
    assert saved.config == config and not saved.model.training
    assert (saved.genotype is None) == (rnn in ("lstm", "GRU"))
    assert saved.model.layer.recurrent_dropout == (0.1 if "=0.1" in rnn else 0.2)
    assert metrics["parameters"] == sum(p.numel() for p in saved.model.parameters())
    assert metrics["rnn_parameters"] == sum(p.numel() for p in saved.model.layer.parameters())
    corpus = load_text(text)
    assert saved.vocabulary == corpus.vocabulary
    first = corpus.vocabulary.index(END)
    for part, ids in (("valid", corpus.valid), ("test", corpus.test)):
        score = evaluate_stream(saved.model, ids, bptt=7, first=first)
        assert metrics[f"{KEYS[part]}_tokens"] == score.tokens == len(ids)
        assert metrics[f"{KEYS[part]}_perplexity"] == pytest.approx(score.perplexity, rel=1e-5)
        assert evaluate_language_model(out, text, part=part)[:3] == pytest.approx(score, rel=1e-5)


@pytest.mark.slow
def test_the_same_settings_give_the_same_run_and_another_seed_another(text: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_language_model(settings(text), tmp_path / name, progress=False)
    assert_same_runs(tmp_path / "a", tmp_path / "b")
    metrics = train_language_model(settings(text, seed=2), tmp_path / "c", progress=False)
    assert metrics["dev_loss"] != json.loads((tmp_path / "a" / "metrics.json").read_text())["dev_loss"]


def test_without_a_test_part_its_figures_are_null(text: str, tmp_path: Path) -> None:
    (Path(text) / "test.txt").unlink()
    metrics = train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    assert metrics["test_perplexity"] is None and metrics["test_tokens"] is None and metrics["dev_tokens"] > 0


def test_a_corpus_can_be_given_instead_of_a_path(text: str, tmp_path: Path) -> None:
    corpus = load_text(text)
    given = train_language_model(settings(text), tmp_path / "a", progress=False)
    direct = train_language_model(
        dataclasses.replace(settings(text), text=None), tmp_path / "b", corpus=corpus, progress=False
    )
    assert given["dev_loss"] == direct["dev_loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"adaptive_cutoffs": [6]}, {"precision": "bfloat16"}, {"layers": 2, "rnn": "lstm"}],
    ids=["adaptive", "bfloat16", "two layers"],
)
def test_other_forms_train_too(
    text: str, tmp_path: Path, changes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if "precision" in changes:
        request.getfixturevalue("bfloat16")
    config = settings(text, epochs=8, average_after=None, **changes)
    assert train_language_model(config, tmp_path / "run", progress=False)["dev_perplexity"] < 15
    assert load_language_model(tmp_path / "run").model.tied == ("adaptive_cutoffs" not in changes)


def test_untied_embeddings_may_have_a_size_of_their_own(text: str, tmp_path: Path) -> None:
    config = settings(text, tied=False, embedding_size=5, epochs=1)
    train_language_model(config, tmp_path / "run", progress=False)
    model = load_language_model(tmp_path / "run" / "model.pt").model
    assert model.embedding.weight.shape[1] == 5 and model.decoder.weight.shape[1] == 16


def test_a_larger_final_batch_is_used_and_said(text: str, tmp_path: Path) -> None:
    metrics = train_language_model(settings(text, epochs=1, eval_batch_size=4), tmp_path / "run", progress=False)
    assert metrics["eval_batch_size"] == 4
    score = evaluate_language_model(tmp_path / "run", text, batch_size=4)
    assert metrics["test_tokens"] == score.tokens
    assert metrics["test_loss"] == pytest.approx(score.loss, rel=1e-6)
    exact = evaluate_language_model(tmp_path / "run", text)
    assert exact.tokens > score.tokens and exact.loss != pytest.approx(score.loss, rel=1e-4)


def test_epochs_are_reported_to_the_log_without_a_bar_and_drawn_with_one(text, tmp_path, caplog, capsys) -> None:
    with caplog.at_level(logging.INFO, "flair_nas"):
        train_language_model(settings(text, epochs=2), tmp_path / "a", progress=False)
    assert [text[:12] for text in caplog.messages if "<unk>" not in text] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert capsys.readouterr().err == ""
    caplog.clear()
    with caplog.at_level(logging.INFO, "flair_nas"):
        train_language_model(settings(text, epochs=2), tmp_path / "b", progress=True)
    shown = capsys.readouterr().err
    assert "epoch 2/2" in shown and "perplexity" in shown and "epoch" not in caplog.text


# --- the optimizer ---


@pytest.mark.parametrize(
    ("losses", "patience", "stops"),
    [
        ([5, 4, 3, 2, 1], 2, False),
        ([5, 4, 4.5, 4.6], 2, False),  # the best of those more than 2 epochs ago is 5
        ([5, 4, 4.5, 4.6, 4.7], 2, True),
        ([5, 4, 4.5, 4.6, 3.9], 2, False),
        ([5, 4, 4.5, 4.6, 4], 2, False),  # not above
        ([1, 2, 3, 4, 5, 6, 7], 5, True),
        ([1, 2, 3, 4, 5, 6], 5, False),  # too early to say
    ],
)
def test_the_trigger_is_that_of_awd_lstm(losses: list[float], patience: int, stops: bool) -> None:
    assert stops_improving(losses, patience) == stops
    earlier, last = losses[:-1], losses[-1]  # as the AWD-LSTM code has it
    assert (len(earlier) > patience and last > min(earlier[:-patience])) == stops


@pytest.mark.slow
def test_averaging_begins_when_the_validation_loss_stops_improving(text, tmp_path, monkeypatch) -> None:
    scores = iter([3.0, 2.0, 2.5, 2.4, 2.3, 2.2, 2.1])
    validate = training._Training._validate

    def scripted(self: Any) -> Any:
        return validate(self)._replace(loss=next(scores))

    monkeypatch.setattr(training._Training, "_validate", scripted)
    config = settings(text, epochs=7, patience=2, average_after=None)
    metrics = train_language_model(config, tmp_path / "run", progress=False)
    averaged = [json.loads(line)["averaged"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert metrics["averaged_from"] == 6  # epoch 5's 2.3 is above 2.0, the best of the first two
    assert averaged == [False] * 5 + [True] * 2
    assert metrics["best_epoch"] == 2


def test_averaging_can_be_switched_off(text, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training, "stops_improving", lambda *_: True)
    config = settings(text, epochs=2, averaging=False, average_after=None)
    assert train_language_model(config, tmp_path / "a", progress=False)["averaged_from"] is None


def test_the_mean_of_the_weights_is_what_is_evaluated_and_saved(text, tmp_path) -> None:
    metrics = train_language_model(settings(text, epochs=2, average_after=1), tmp_path / "run", progress=False)
    assert metrics["best_epoch"] == 2  # else the last line says nothing
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    saved = torch.load(tmp_path / "run" / "model.pt", weights_only=True)["weights"]["embedding.weight"]
    assert torch.equal(saved, checkpoint["average"]["module.embedding.weight"])
    assert not torch.equal(saved, checkpoint["model"]["embedding.weight"])


def test_averaged_sgd_is_that_of_pytorch_where_the_learning_rate_stays() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1, bias=False, dtype=torch.float64)
    second = torch.nn.Parameter(model.weight.detach().clone())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    asgd = torch.optim.ASGD([second], lr=0.1, weight_decay=0.01, lambd=0, t0=0)
    average = training._Training._new_average(SimpleNamespace(model=model))  # type: ignore[arg-type]
    for step in range(6):
        target = torch.randn(1, 5, dtype=torch.float64)
        for parameter, optimizer in ((model.weight, sgd), (second, asgd)):
            optimizer.zero_grad()
            (parameter - target).square().sum().backward()
            optimizer.step()
        if step:  # PyTorch's forgets the first step
            average.update_parameters(model)
    torch.testing.assert_close(model.weight, second)
    torch.testing.assert_close(average.module.weight, asgd.state[second]["ax"], check_dtype=False)


# --- stopping and going on ---


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_a_stopped_run_goes_on_exactly(text, tmp_path, monkeypatch, epochs: int) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train_language_model(settings(text), whole, progress=False)
    with monkeypatch.context() as patch:
        stop_after(patch, epochs)
        with pytest.raises(RunStopped, match=rf"stopped in epoch {epochs + 1} of 4; .*lm train --resume {stopped}"):
            train_language_model(settings(text), stopped, progress=False)
    torch.manual_seed(99)
    train_language_model(settings(text), stopped, progress=False)
    assert_same_runs(whole, stopped)


@pytest.mark.slow
def test_more_epochs_go_on_from_the_last(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=6), tmp_path / "whole", progress=False)
    train_language_model(settings(text, epochs=3), tmp_path / "longer", progress=False)
    train_language_model(settings(text, epochs=6), tmp_path / "longer", progress=False)
    found = list(differences(contents(tmp_path / "whole"), contents(tmp_path / "longer")))
    assert all(difference.startswith("/model.pt/config/epochs") for difference in found), found


def test_a_finished_run_is_left_as_it_is(text, tmp_path, caplog) -> None:
    first = train_language_model(settings(text), tmp_path / "run", progress=False)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert train_language_model(settings(text), tmp_path / "run", progress=False) == first
    assert "is finished (epochs: 4), so nothing was trained" in caplog.text
    assert train_language_model(settings(text, epochs=2), tmp_path / "run", progress=False) == first
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["epochs"] == 4  # as many as it has
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    unchanged = ("model.pt", "checkpoint.pt", "checkpoint-previous.pt", "metrics.json")
    assert {name: before[name] for name in unchanged} == {name: after[name] for name in unchanged}


def test_figures_that_were_not_written_any_more_are_written_by_the_next_call(text, tmp_path) -> None:
    first = train_language_model(settings(text), tmp_path / "run", progress=False)
    (tmp_path / "run" / "metrics.json").write_text('{"epochs"')
    again = train_language_model(settings(text), tmp_path / "run", progress=False)
    assert again["test_loss"] == first["test_loss"]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == again


# --- what cannot be used ---


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(text, tmp_path, monkeypatch) -> None:
    out = tmp_path / "run"
    train_language_model(settings(text, epochs=1), out, progress=False)
    before = (out / "checkpoint.pt").read_bytes()
    failing(monkeypatch, lambda run, step: step == 3)
    with pytest.raises(FlairNasError) as caught:
        train_language_model(settings(text), out, progress=False)
    message = str(caught.value)
    assert "not finite in epoch 2, step 3: the loss is nan, the largest gradient is that of " in message
    assert f"The last good checkpoint, of epoch 1, is {out / 'checkpoint.pt'}" in message
    assert (out / "checkpoint.pt").read_bytes() == before


def test_a_validation_loss_that_is_not_finite_stops_the_run(text, tmp_path, monkeypatch) -> None:
    train = training._Training._train

    def poisoned(self: Any, bar: Any) -> float:
        loss = train(self, bar)
        with torch.no_grad():
            self.model.decoder.bias[0] = math.inf
        return loss

    monkeypatch.setattr(training._Training, "_train", poisoned)
    with pytest.raises(FlairNasError, match="not finite: the loss on dev is nan after epoch 1. There is no ch"):
        train_language_model(settings(text), tmp_path / "run", progress=False)


def failing(monkeypatch: pytest.MonkeyPatch, when: Callable[[Any, int], bool]) -> None:
    """Lets the loss of steps be not finite."""
    clip = training._Training._clip

    def clipping(self: Any, gradients: Any, loss: Any, step: int) -> float:
        if when(self, step):
            loss = loss._replace(total=loss.total * math.nan)
        return clip(self, gradients, loss, step)

    monkeypatch.setattr(training._Training, "_clip", clipping)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "average_after"), [("sgd", 1), ("adam", 2), ("sgd", 4)])
def test_a_run_goes_back_to_its_best_epoch(text, tmp_path, monkeypatch, caplog, optimizer, average_after) -> None:
    """And goes on from there: stopped right after it, too, as one that was never stopped."""
    config = settings(text, rollbacks=2, optimizer=optimizer, learning_rate=0.01, average_after=average_after)
    failing(monkeypatch, lambda run, step: run.epoch == 2 and step == 3 and run.rollbacks < 2)
    whole = train_language_model(config, tmp_path / "whole", progress=False)
    assert whole["rollbacks"] == 2 and whole["epochs"] == 4
    history = contents(tmp_path / "whole")["history.jsonl"]
    assert [line["epoch"] for line in history] == [1, 2, 3, 4] and history[2]["rollbacks"] == 2
    assert "not finite in epoch 3, step 3: the loss is nan" in caplog.text
    assert f"Going back to epoch {2}, for the 2. time" in caplog.text
    save = training._Training.save

    def stopping(self: Any) -> None:
        save(self)
        if self.rollbacks == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Training, "save", stopping)
        with pytest.raises(RunStopped):
            train_language_model(config, tmp_path / "run", progress=False)
    train_language_model(config, tmp_path / "run", progress=False)
    assert_same_runs(tmp_path / "run", tmp_path / "whole")


def test_going_back_ends_after_its_number_and_needs_an_epoch(text, tmp_path, monkeypatch) -> None:
    failing(monkeypatch, lambda run, step: run.epoch == 1 and step == 2)
    with pytest.raises(FlairNasError, match=r"epoch 2, step 2: .*, after going back 3 times\. A lower"):
        train_language_model(settings(text, rollbacks=3), tmp_path / "run", progress=False)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["epoch"] == 1
    failing(monkeypatch, lambda run, step: True)
    with pytest.raises(FlairNasError, match=r"epoch 1, step 1: .*There is no checkpoint yet\."):
        train_language_model(settings(text, rollbacks=3), tmp_path / "other", progress=False)
    assert not (tmp_path / "other" / "checkpoint.pt").exists()


def test_the_learning_rate_is_lowered_after_its_epochs(text, tmp_path, monkeypatch) -> None:
    found: dict[int, set[float]] = {}
    step = torch.optim.Adam.step

    def stepping(self: Any, *arguments: Any) -> Any:
        found.setdefault(len(seen), set()).add(self.param_groups[0]["lr"])
        return step(self, *arguments)

    seen: list[int] = []
    evaluate = training._Training._validate
    monkeypatch.setattr(training._Training, "_validate", lambda self: (seen.append(1), evaluate(self))[1])
    monkeypatch.setattr(torch.optim.Adam, "step", stepping)
    options = {"optimizer": "adam", "learning_rate": 0.01, "lower_after": [1, 3], "vary_length": False}
    train_language_model(
        settings(text, averaging=False, average_after=None, **options), tmp_path / "run", progress=False
    )
    rounded = {epoch: [round(rate, 9) for rate in rates] for epoch, rates in found.items()}
    assert rounded == {0: [0.01], 1: [1e-3], 2: [1e-3], 3: [1e-4]}


@pytest.mark.slow
def test_a_warm_up_goes_on_exactly(text, tmp_path, monkeypatch) -> None:
    """AdamW, stopped after an epoch of half as many steps as the warm-up has."""
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def stepping(self: Any, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", stepping)
    options = {"optimizer": "adamw", "learning_rate": 0.01, "vary_length": False}
    train_language_model(settings(text, epochs=1, **options), tmp_path / "one", progress=False)
    count = len(rates)
    config = settings(text, warmup_steps=2 * count, **options)
    rates.clear()
    train_language_model(config, tmp_path / "whole", progress=False)
    assert rates == pytest.approx([0.01 * min(1, (step + 1) / (2 * count)) for step in range(4 * count)])
    with monkeypatch.context() as patch, pytest.raises(RunStopped):
        stop_after(patch, 1)
        train_language_model(config, tmp_path / "stopped", progress=False)
    train_language_model(config, tmp_path / "stopped", progress=False)
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


def test_other_settings_and_other_text_are_refused(text, tmp_path) -> None:
    out = tmp_path / "run"
    train_language_model(settings(text, epochs=1), out, progress=False)
    with pytest.raises(FlairNasError, match="other settings: hidden_size was 16 and is now 9; bptt was 5 and is now 7"):
        train_language_model(settings(text, hidden_size=9, bptt=7), out, progress=False)
    other = write_text_folder(tmp_path / "other", lines=50)
    before = (out / "config.yaml").read_bytes()
    with pytest.raises(FlairNasError, match="the text is another one than when this run began"):
        train_language_model(settings(other), out, progress=False)
    assert (out / "config.yaml").read_bytes() == before  # what is refused changes nothing
    same = write_text_folder(tmp_path / "moved")
    assert train_language_model(settings(same), out, progress=False)["epochs"] == 4


def test_a_genotype_file_that_has_changed_is_refused(text, tmp_path) -> None:
    genotype = tmp_path / "cell.txt"
    genotype.write_text("tanh0-relu1")
    config = settings(text, rnn=str(genotype))
    train_language_model(dataclasses.replace(config, epochs=1), tmp_path / "run", progress=False)
    genotype.write_text("tanh0-relu0")
    with pytest.raises(FlairNasError, match="the layer is another one than when this run began"):
        train_language_model(config, tmp_path / "run", progress=False)
    assert load_language_model(tmp_path / "run").genotype.one_line() == "tanh0-relu1"  # the model has its own


def test_a_genotype_file_of_which_only_the_origin_has_changed_is_the_same(text, tmp_path) -> None:
    file = tmp_path / "cell.json"
    config = settings(text, rnn=str(file))
    for date, epochs in (("2026-01-01", 1), ("2026-01-02", 2)):
        dataclasses.replace(Genotype.parse("tanh0-relu1"), origin={"date": date}).save(file)
        train_language_model(dataclasses.replace(config, epochs=epochs), tmp_path / "run", progress=False)
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", ["search-cell", "tagger/seed-1"])
def test_a_checkpoint_of_another_kind_of_run_is_refused(text: str, tmp_path: Path, kind: str) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    shutil.copy(Path(__file__).parents[1] / "saved" / kind / "checkpoint.pt", tmp_path / "run")
    with pytest.raises(
        FlairNasError, match=r"run/checkpoint\.pt: .* may be of another run .*To start over, delete .*run"
    ):
        train_language_model(settings(text), tmp_path / "run", progress=False)


def test_a_run_whose_best_model_is_missing_is_refused(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    (tmp_path / "run" / "model.pt").unlink()
    with pytest.raises(FlairNasError, match=r"model\.pt, the best model so far, is missing"):
        train_language_model(settings(text), tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rnn": "lsmt"}, "unknown rnn 'lsmt'. Did you mean LSTM"),
        ({"rnn": "darts-v1,dropuot=0.1"}, "unknown option 'dropuot=0.1'"),
        ({"rnn": "lstm,init_range=0.1"}, "lstm takes none"),
        ({"optimizer": "adam"}, "optimizer adam takes a learning_rate of about 0.001, got "),
        ({"device": "gpu"}, "device must be cpu, cuda or cuda:N, got 'gpu'"),
        ({"adaptive_cutoffs": [100_000]}, "cutoffs"),
        ({"adaptive_cutoffs": [2, 5, 9]}, "3 adaptive_cutoffs need a hidden_size of at least 64"),
        ({"batch_size": 10_000}, "too few for 10,000 columns"),
        ({"text": None}, "no text: give a folder with train and valid text"),
        ({"text": "nowhere"}, "there is no such folder or file"),
    ],
)
def test_what_cannot_be_used_is_refused_and_leaves_nothing(
    text, tmp_path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FlairNasError, match=message):
        train_language_model(settings(text, **changes), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_settings_that_contradict_each_other_are_all_named() -> None:
    with pytest.raises(FlairNasError) as caught:
        LanguageModelConfig(dropout=1.5, epochs=0, adaptive_cutoffs=[5, 5], precision="half")
    for name in ("dropout", "epochs", "adaptive_cutoffs", "precision"):
        assert f"{name} must" in str(caught.value)
    with pytest.raises(FlairNasError, match="tied embeddings need.*got 5 and 200; average_after = 3 contradicts"):
        LanguageModelConfig(embedding_size=5, averaging=False, average_after=3)
    with pytest.raises(FlairNasError, match=r"adaptive_cutoffs must be below vocabulary_size = 9, got \[4, 9\]"):
        LanguageModelConfig(embedding_size=5, vocabulary_size=9, adaptive_cutoffs=[4, 9])


@pytest.mark.parametrize("name", preset_names("language_model"))
def test_presets_are_settings(name: str) -> None:
    assert load_preset("language_model", name, LanguageModelConfig)["rnn"]
    assert resolve(LanguageModelConfig, kind="language_model", preset=name, flags={"text": "x"}).text == "x"


def test_the_published_presets() -> None:
    preset = load_preset("language_model", "darts-ptb", LanguageModelConfig)
    published = {
        "hidden_size": 850, "batch_size": 64, "bptt": 35, "epochs": 3000, "learning_rate": 20, "weight_decay": 8e-7,
        "clip": 0.25, "dropout": 0.75, "recurrent_dropout": 0.25, "input_dropout": 0.75, "embedding_dropout": 0.2,
        "word_dropout": 0.1, "slowness": 1e-3, "tied": True, "patience": 5,
    }  # fmt: skip
    published |= {"init_range": 0.04, "embedding_init_range": 0.04, "rollbacks": 10}
    assert {name: preset[name] for name in published} == published
    large = load_preset("language_model", "wt103", LanguageModelConfig)
    recipe = {
        "embedding_size": 400, "hidden_size": 2500, "optimizer": "adam", "learning_rate": 1e-3, "lower_after": [12],
        "bptt": 140, "batch_size": 60, "epochs": 14, "slowness": 0, "activation": 0, "averaging": False, "dropout": 0.1,
    }  # fmt: skip
    assert {name: large[name] for name in recipe} == recipe and large["adaptive_cutoffs"]


# --- files ---


@pytest.mark.parametrize("content", [b"", b"no model", None], ids=["empty", "text", "another dictionary"])
def test_a_file_that_is_no_language_model_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.pt"
    if content is None:
        torch.save({"weights": torch.ones(1)}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(FlairNasError, match=r"model\.pt: this is no language model that can be loaded"):
        load_language_model(tmp_path)


def test_the_model_of_another_command_is_refused_as_such(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(1, 1), tmp_path / "model.pt")
    with pytest.raises(FlairNasError, match="can be loaded: it holds more than data, or is damaged"):
        load_language_model(tmp_path)
    (tmp_path / "config.yaml").write_text("corpus: demo\nrnn: lstm\nembeddings: [one-hot]\n")
    with pytest.raises(FlairNasError, match="can be loaded: its folder is a run of flair-nas tag train"):
        load_language_model(tmp_path)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlairNasError, match="no epoch of a training run has ended there"):
        load_language_model(tmp_path)
    with pytest.raises(FlairNasError, match="there is no such model"):
        load_language_model(tmp_path / "nothing.pt")


def test_text_is_read_in_the_words_of_a_vocabulary_that_is_given(text: str, tmp_path: Path) -> None:
    corpus = load_text(text)
    for part in ("valid", "test"):
        np.testing.assert_array_equal(encode_text(text, corpus.vocabulary, part=part), getattr(corpus, part))
    file = tmp_path / "new.txt"
    file.write_text("the Zebra sat\n\nmat\n", encoding="utf-8")
    words = [corpus.vocabulary.words[number] for number in encode_text(file, corpus.vocabulary)]
    assert words == ["the", "<unk>", "sat", END, END, "mat", END]
    with pytest.raises(FlairNasError, match="has no dev part; there are train, valid, test"):
        encode_text(text, corpus.vocabulary, part="dev")
    (Path(text) / "test.txt").unlink()
    with pytest.raises(FlairNasError, match="has no test part; there are train, valid"):
        encode_text(text, corpus.vocabulary)


def test_a_file_of_nothing_but_a_byte_order_mark_holds_no_words(text: str, tmp_path: Path) -> None:
    corpus = load_text(text)
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf")
    with pytest.raises(FlairNasError, match="holds no words"):
        encode_text(tmp_path / "bom.txt", corpus.vocabulary)


class Attack:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "run"))


def test_code_in_a_model_is_not_run(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    path = tmp_path / "run" / "model.pt"
    data = torch.load(path, weights_only=True)
    torch.save({**data, "origin": Attack(tmp_path / "attacked")}, path)
    with pytest.raises(FlairNasError, match=r"model\.pt: this is no language model that can be loaded"):
        load_language_model(path)
    assert not (tmp_path / "attacked").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "attacked").read_text() == "run"  # it would have been


def test_a_model_with_flipped_bytes_is_refused(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    path = tmp_path / "run" / "model.pt"
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 64):
        content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FlairNasError, match=r"model\.pt: this is no language model that can be loaded"):
        load_language_model(path)


def test_a_file_that_asks_for_more_than_there_is_is_refused(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    path = tmp_path / "run" / "model.pt"
    data = torch.load(path, weights_only=True)
    data["config"]["hidden_size"] = 1_000_000
    torch.save(data, path)
    with pytest.raises(FlairNasError, match="hidden_size 1000000"):
        load_language_model(path)


def test_a_model_with_another_vocabulary_is_refused(text, tmp_path) -> None:
    train_language_model(settings(text, epochs=1), tmp_path / "run", progress=False)
    path = tmp_path / "run" / "model.pt"
    data = torch.load(path, weights_only=True)
    for changes in ({"words": ["a", "b"], "counts": [1, 2]}, {"words": [1, 2, 3]}, {"counts": [1]}, {"words": None}):
        torch.save({**data, **changes}, path)
        with pytest.raises(FlairNasError, match=r"model\.pt: this is no language model that can be loaded"):
            load_language_model(path)


@pytest.mark.slow
def test_defaults_bear_a_cell_that_bounds_nothing(tmp_path: Path) -> None:
    """With ±2/√H, rate 10 and published dropouts, relu and identity edges made states grow beyond all numbers."""
    config = LanguageModelConfig("demo", rnn="i-darts-ptb", batch_size=16, epochs=1, averaging=False, device="cpu")
    metrics = train_language_model(config, tmp_path, progress=False)
    assert metrics["dev_perplexity"] < 400


def test_a_loss_without_a_perplexity_is_not_finite(tmp_path: Path) -> None:
    """States that grow without end give losses that are finite and mean nothing, before they are not."""
    rnn = "relu0-relu1-relu2,highway=false,init_range=5"
    config = LanguageModelConfig("demo", rnn=rnn, hidden_size=16, batch_size=16, epochs=1, device="cpu")
    with pytest.raises(FlairNasError, match=r"not finite in epoch 1, step \d+: the loss is \d"):
        train_language_model(config, tmp_path, progress=False)
    assert not (tmp_path / "model.pt").exists() and not (tmp_path / "metrics.json").exists()
