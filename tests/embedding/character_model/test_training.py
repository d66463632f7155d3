"""Training of character models: the recipe of Flair's trainer, exact resume, and what is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import flair
import killing
import pytest
import torch
from flair.data import Dictionary
from flair.models import LanguageModel
from flair.trainers.language_model_trainer import LanguageModelTrainer, TextCorpus
from small_character_model import GATED, LINES, run_training, settings, write_text_folder

from flair_nas import FlairNasError, Genotype
from flair_nas.embedding.character_model import text as character_text
from flair_nas.embedding.character_model import training
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.evaluation import evaluate_character_model
from flair_nas.embedding.character_model.training import train_character_models
from flair_nas.runs.run import RunStopped
from flair_nas.tagging.data.character_models import load_character_model, save_character_model


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder as Flair's `TextCorpus` has it, with two files to train on."""
    return write_text_folder(tmp_path_factory.mktemp("text"))


def train(text: str, out: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    return train_character_models(CharacterModelConfig(**settings(text, **changes)), out, progress=False)


# --- the recipe ---


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
def test_weights_and_losses_are_those_of_flairs_trainer(forward: bool, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name, lines in (("train/split", LINES[:1] * 200), ("valid.txt", LINES * 9), ("test.txt", LINES * 5)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    direction = "forward" if forward else "backward"
    changes = {"direction": direction, "random_case": False, "dropout": 0.0, "split_size": 10**6, "patience": 1}
    found = train(str(tmp_path), tmp_path / "run", epochs=3, **changes)[direction]
    ours = load_character_model(tmp_path / "run" / direction / "model.pt")

    flair.device = torch.device("cpu")
    torch.manual_seed(1)
    model = LanguageModel(ours.dictionary, forward, 8, 1, embedding_size=5, dropout=0.0)
    corpus = TextCorpus(tmp_path, ours.dictionary, forward, random_case_flip=False)
    trainer = LanguageModelTrainer(model, corpus)
    recipe = {"sequence_length": 11, "learning_rate": 2.0, "mini_batch_size": 4, "patience": 1, "num_workers": 0}
    trainer.train(tmp_path / "flair", max_epochs=3, **recipe)
    theirs = LanguageModel.load_language_model(tmp_path / "flair" / "best-lm.pt")
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=0, atol=1e-6)
    trainer.model, columns = theirs, trainer._batchify(corpus.test, 4)
    assert trainer.evaluate(columns, 4, 11) == pytest.approx(found["test_flair_loss"], abs=1e-6)
    assert found["test_loss"] == pytest.approx(found["test_flair_loss"] * len(columns) / (len(columns) - 1))


def test_the_learning_rate_falls_when_valid_does_not_get_better(text: str, tmp_path: Path) -> None:
    train(text, tmp_path / "run", learning_rate=1e-6, patience=1, epochs=3)
    history = [json.loads(line) for line in (tmp_path / "run/forward/history.jsonl").read_text().splitlines()]
    rates = [split["learning_rate"] for line in history for split in line["splits"]]
    assert len(rates) == 3 * len(history[0]["splits"]) and {*rates} <= {1e-6 * 0.25**n for n in range(9)}
    assert rates == sorted(rates, reverse=True) and rates[0] == 1e-6 > rates[-1]


# --- resuming ---


@pytest.mark.parametrize("rnn", ["lstm", GATED])
def test_a_stopped_training_goes_on_within_a_split(rnn: str, text: str, tmp_path: Path) -> None:
    step, calls = training._Training.step, iter(range(10**6))

    def stopping(self: Any, *arguments: Any) -> Any:
        if next(calls) in (7, 60, 90):
            raise KeyboardInterrupt
        return step(self, *arguments)

    with (
        mock.patch.object(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0),
        mock.patch.object(training._Training, "step", stopping),
    ):
        for _ in range(3):
            with pytest.raises(RunStopped, match="flair-nas charlm train --resume"):
                train(text, tmp_path / "run", rnn=rnn, direction="both")
        resumed = train(text, tmp_path / "run", rnn=rnn, direction="both")
        whole = train(text, tmp_path / "whole", rnn=rnn, direction="both")
    assert whole.keys() == resumed.keys() == {"forward", "backward"}
    assert not [*killing.differences(killing.contents(tmp_path / "whole"), killing.contents(tmp_path / "run"))]


@pytest.mark.slow
def test_ten_kills_change_nothing(text: str, tmp_path: Path) -> None:
    context = killing.processes("flair_nas.embedding.character_model.training", "small_character_model")
    chosen = settings(
        text, rnn=GATED, epochs=8
    )  # with a checkpoint after each step, all kills together take a run five on
    times = killing.run_whole(context, chosen, tmp_path / "whole", run_training)
    moments = killing.draw_moments(3, 10, seed=3)
    killed = killing.run_killed(context, chosen, tmp_path / "run", times, moments, run_training)
    assert len(killed.epochs) == 10 and len(set(killed.epochs)) > 2
    assert not [*killing.differences(killing.contents(tmp_path / "whole"), killing.contents(tmp_path / "run"))]


def test_epochs_and_a_direction_are_added(text: str, tmp_path: Path) -> None:
    whole = train(text, tmp_path / "whole", epochs=3, direction="both")
    train(text, tmp_path / "run", epochs=2)
    added = train(text, tmp_path / "run", epochs=3, direction="both")
    assert {name: of["test_bits"] for name, of in added.items()} == {n: of["test_bits"] for n, of in whole.items()}


def test_a_direction_is_added_where_the_finished_one_has_no_checkpoints(text: str, tmp_path: Path) -> None:
    forward = train(text, tmp_path / "run")["forward"]
    for path in (tmp_path / "run" / "forward").glob("checkpoint*.pt"):
        path.unlink()
    both = train(text, tmp_path / "run", direction="both")
    assert both["forward"] == forward and both["backward"]["epochs"] == 2
    with pytest.raises(FlairNasError, match="forward: its checkpoints are gone, so this run cannot go on"):
        train(text, tmp_path / "run", direction="both", epochs=3)


def test_a_text_that_is_cut_into_other_splits_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(text, tmp_path / "run", epochs=1)
    monkeypatch.setattr(character_text, "_find_bounds", lambda corpus, *_: [0, len(corpus.train)])
    with pytest.raises(FlairNasError, match="the cut of the text into splits is another one"):
        train(text, tmp_path / "run", epochs=2)


def test_another_text_layer_or_dictionary_is_refused(text: str, tmp_path: Path) -> None:
    Genotype.parse("tanh0").save(tmp_path / "cell.json")
    train(text, tmp_path / "run", rnn=str(tmp_path / "cell.json"), epochs=1)
    Genotype.parse("relu0").save(tmp_path / "cell.json")
    with pytest.raises(FlairNasError, match="the layer is another one than when this run began"):
        train(text, tmp_path / "run", rnn=str(tmp_path / "cell.json"))
    Genotype.parse("tanh0").save(tmp_path / "cell.json")
    with pytest.raises(FlairNasError, match="the text is another one"):
        train("demo", tmp_path / "run", rnn=str(tmp_path / "cell.json"))


# --- what is left behind ---


def test_both_files_hold_the_best_model(text: str, tmp_path: Path) -> None:
    figures = train(text, tmp_path / "run", direction="both", rnn=GATED)
    for direction in ("forward", "backward"):
        folder = tmp_path / "run" / direction
        models = [load_character_model(folder / name) for name in ("model.pt", "model.safetensors")]
        assert [model.is_forward_lm for model in models] == [direction == "forward"] * 2
        scores = [evaluate_character_model(model, text, batch_size=4) for model in models]
        assert scores[0] == scores[1] and scores[0].bits == pytest.approx(figures[direction]["test_bits"])
        assert scores[0].bits < 3.5 and scores[0].unknown_share == 0


def test_a_dictionary_of_a_model_is_taken(text: str, tmp_path: Path) -> None:
    train(text, tmp_path / "first", epochs=1, min_count=100)
    path = tmp_path / "first" / "forward" / "model.safetensors"
    figures = train(text, tmp_path / "second", epochs=1, dictionary=str(path))["forward"]
    assert figures["characters"] == len(load_character_model(path).dictionary) and figures["test_unknown_share"] > 0
    score = evaluate_character_model(path.parents[2] / "second/forward/model.pt", text, batch_size=4)
    assert (score.bits, score.unknown_share) == (figures["test_bits"], figures["test_unknown_share"])
    with pytest.raises(FlairNasError, match="there is no such model; text and common are the other choices"):
        train(text, tmp_path / "third", dictionary="comon")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rnn": "i-darts-ptv"}, "Did you mean i-darts-ptb"),
        ({"lowercase": True}, "lowercase is not for character models"),
        ({"batch_size": 5000}, "too few for 5,000 columns"),
        ({"hidden_size": 0, "direction": "up"}, "hidden_size.*direction|direction.*hidden_size"),
        ({"hidden_size": 0, "lowercase": True}, "lowercase is not for character models.*; hidden_size must be"),
    ],
)
def test_what_cannot_be_used_leaves_no_folder(text: str, tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(FlairNasError, match=message):
        train(text, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_part_that_is_too_short_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("a\n")
    parts = f"train={text}/train/split_0,valid={tmp_path}/valid.txt"
    message = "valid.txt: 2 tokens are too few for 10 columns, each of which needs two; give more text, or "
    with pytest.raises(FlairNasError, match=f"{message}batch_size 1 at most"):
        train(parts, tmp_path / "run", batch_size=10)


def test_a_short_test_part_with_empty_lines_is_scored(text: str, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("ab\n\n\n\n\nc\n")  # five characters beside three empty lines
    parts = f"train={text}/train/split_0,valid={text}/valid.txt,test={tmp_path}/test.txt"
    assert train(parts, tmp_path / "run", epochs=1)["forward"]["test_characters"] == 2  # in two columns of two


def test_a_loss_that_is_not_finite_stops(text: str, tmp_path: Path) -> None:
    with pytest.raises(FlairNasError, match=r"not finite in epoch 1, split \d, step \d+: .* lower learning_rate"):
        train(text, tmp_path / "run", learning_rate=1e6, clip=1e12, rnn="relu0-relu1,highway=false", epochs=9)


def test_the_number_of_steps_is_known_before_they_are_done(text: str, tmp_path: Path) -> None:
    step, steps = training._Training.step, []

    def stopping(self: Any, columns: Any, number: int, hidden: Any) -> Any:
        steps.append(number)
        if len(steps) == 100:
            raise KeyboardInterrupt
        return step(self, columns, number, hidden)

    with (
        mock.patch.object(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0),
        mock.patch.object(training._Training, "step", stopping),
        mock.patch.object(training, "tqdm", wraps=training.tqdm) as bar,
    ):
        with pytest.raises(RunStopped):
            train(text, tmp_path / "run")
        train(text, tmp_path / "run")
    first, second = (call.kwargs for call in bar.call_args_list)
    assert (first["initial"], first["total"]) == (0, len(steps) - 1) and second["total"] == first["total"]
    assert second["initial"] == 99
    _, estimate = training.measure_cost(CharacterModelConfig(**settings(text)), progress=False)
    assert f"splits and {(len(steps) - 1) // 2} steps" in estimate


@pytest.mark.parametrize(("split_size", "splits"), [(2000, 2), (2400, 2), (3000, 1), (3980, 1)])
def test_a_split_of_less_than_half_the_size_is_joined_with_the_one_before(
    text: str, tmp_path: Path, split_size: int, splits: int
) -> None:
    figures = train(text, tmp_path / "run", split_size=split_size)["forward"]  # of 4,080 characters
    (line,) = (tmp_path / "run/forward/history.jsonl").read_text().splitlines()[:1]
    assert len(json.loads(line)["splits"]) == splits and figures["epochs"] == 2


def test_the_figures_of_an_epoch_are_those_of_its_best_split(text: str, tmp_path: Path) -> None:
    losses = iter([2.0, 1.0, 3.0, 4.0, 5.0, 6.0])  # of three splits an epoch
    with mock.patch.object(training, "evaluate_columns", lambda *_: next(losses)):
        figures = train(text, tmp_path / "run", epochs=2)["forward"]
    lines = [json.loads(line) for line in (tmp_path / "run/forward/history.jsonl").read_text().splitlines()]
    assert [line["dev_loss"] for line in lines] == [1.0, 4.0] and figures["best_epoch"] == 1


def test_a_model_worse_than_a_guess_is_told(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(text, tmp_path / "run", epochs=1)
    assert "learned nothing" not in caplog.text
    train(text, tmp_path / "other", epochs=1, learning_rate=1e5)
    assert "bits per character on dev, worse than a guess among" in caplog.text


def test_a_dictionary_that_lacks_characters_of_any_part_is_refused_at_once(text: str, tmp_path: Path) -> None:
    dictionary = Dictionary(add_unk=False)
    for character in sorted({*"\n".join(LINES)}):
        dictionary.add_item(character)
    save_character_model(LanguageModel(dictionary, True, 4, 1), tmp_path)
    (tmp_path / "test.txt").write_text("a new character: é\n" * 9)
    parts = f"train={text}/train/split_0,valid={text}/valid.txt,test={tmp_path}/test.txt"
    with pytest.raises(FlairNasError, match=r"test.txt has characters that are not in .*model.pt, which has no id for"):
        train(parts, tmp_path / "run", dictionary=str(tmp_path / "model.pt"))
    assert not (tmp_path / "run").exists()


def test_a_missing_or_damaged_file_of_data_is_written_again(text: str, tmp_path: Path) -> None:
    whole = train(text, tmp_path / "run", epochs=1)
    data = tmp_path / "run/forward/model.safetensors"
    before = data.read_bytes()
    for change in (data.unlink, lambda: data.write_bytes(before[:-8] + bytes(8))):
        change()
        assert train(text, tmp_path / "run", epochs=1) == whole
        assert evaluate_character_model(data, text, batch_size=4).bits == whole["forward"]["test_bits"]
    pickle = tmp_path / "run/forward/model.pt"
    pickle.write_bytes(pickle.read_bytes()[:-100])
    with pytest.raises(FlairNasError, match="model.pt, the best model so far, is missing or damaged"):
        train(text, tmp_path / "run", epochs=1)


def test_a_direction_is_not_left_out(text: str, tmp_path: Path) -> None:
    train(text, tmp_path / "run", epochs=1, direction="both")
    with pytest.raises(FlairNasError, match="run: direction was both and cannot become backward; --direction both"):
        train(text, tmp_path / "run", epochs=1, direction="backward")
    with mock.patch.object(training._Training, "_end_epoch", side_effect=KeyboardInterrupt), pytest.raises(RunStopped):
        train(text, tmp_path / "stopped", epochs=1, direction="both")
    with pytest.raises(FlairNasError, match="stopped: direction was both and cannot become forward; --direction both"):
        train(text, tmp_path / "stopped", epochs=1, direction="forward")


def test_a_kill_while_the_model_is_evaluated_costs_no_step(text: str, tmp_path: Path) -> None:
    step, counts = training._Training.step, [0]

    def counted(self: Any, *arguments: Any) -> Any:
        counts[-1] += 1
        return step(self, *arguments)

    with mock.patch.object(training._Training, "step", counted):
        with mock.patch.object(training, "evaluate_columns", side_effect=KeyboardInterrupt), pytest.raises(RunStopped):
            train(text, tmp_path / "run", epochs=1)
        counts.append(0)
        resumed = train(text, tmp_path / "run", epochs=1)["forward"]
        counts.append(0)
        whole = train(text, tmp_path / "whole", epochs=1)["forward"]
    assert counts[0] + counts[1] == counts[2] and counts[0] > 0 and resumed["test_bits"] == whole["test_bits"]
