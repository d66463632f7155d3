"""Searches whose model is a Flair tagger: what learns on what, batches, figures, resuming, and the command."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import Stop, assert_same_runs, interrupt, with_samples
from small_tagging import write_corpus

from flair_nas import load_genotype
from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import ACCURACY, Evaluation
from flair_nas.runs.run import RunStopped
from flair_nas.search.bilevel import architecture_weights, mean_gradients, model_weights
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.objectives.tagging import TaggingObjective, build, read
from flair_nas.search.processes import make_accelerator
from flair_nas.search.trainer import SearchResult, search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.tagging.evaluation import evaluate_tagger

pytestmark = pytest.mark.usefixtures("columns_without_pictures")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def settings(corpus: str, **changes: Any) -> TaggingSearchConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot", "char"], "hidden_size": 6, "nodes": 2, "batch_size": 4, "epochs": 2,
        "learning_rate": 0.5, "device": "cpu",
    }  # fmt: skip
    return make_settings(TaggingSearchConfig, with_samples(given, changes))


def objective_of(corpus: str, **changes: Any) -> TaggingObjective:
    config = settings(corpus, **changes)
    return build(config, read(config), make_accelerator("cpu", "float32"))


def run(corpus: str, out: Path, **changes: Any) -> SearchResult:
    return search_genotype(settings(corpus, **changes), out, progress=False)


def test_model_and_architecture_learn_on_different_sentences(corpus: str) -> None:
    objective = objective_of(corpus, held_out=0.25)
    streams = {part: {s.to_plain_string() for s in of} for part, of in objective.streams.items()}
    train = {s.to_plain_string() for s in objective.corpus.corpus.train}
    assert {part: len(of) for part, of in objective.streams.items()} == {"train": 18, "valid": 6}
    assert streams["train"] | streams["valid"] == train and not streams["train"] & streams["valid"]
    assert {s.to_plain_string() for s in objective_of(corpus, held_out=0.25).streams["valid"]} == streams["valid"]
    assert {s.to_plain_string() for s in objective_of(corpus, held_out=0.25, seed=2).streams["valid"]} != streams[
        "valid"
    ]
    of_dev = objective_of(corpus, held_out=0.0)
    assert len(of_dev.streams["train"]) == 24
    assert of_dev.streams["valid"] == of_dev.dev
    assert [len(objective_of(corpus, strategy=name).streams["train"]) for name in ("gradient", "enas")] == [12, 12]
    alone = objective_of(corpus, strategy="evolution", child_steps=[6])  # nothing learns on the other half
    assert len(alone.streams["train"]) == 24 and alone.streams["valid"] == alone.dev


def corpus_with_an_unseen_label(folder: Path, seen: str = "PER", unseen: str = "ORG") -> str:
    """Two of the six sentences of dev have a label that train lacks."""
    path = Path(write_corpus(folder)) / "dev.txt"
    changed = [sentence.replace(seen, unseen) for sentence in path.read_text().split("\n\n")[:2]]
    path.write_text("\n\n".join([*changed, *path.read_text().split("\n\n")[2:]]))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("crf", [True, False])
def test_the_architecture_does_not_learn_on_labels_that_train_lacks(
    crf: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = corpus_with_an_unseen_label(tmp_path / "corpus")
    found = run(corpus, tmp_path / "run", held_out=0.0, crf=crf)
    assert len(found.history) == 2 and found.history[-1]["architecture_loss"] > 0
    assert caplog.text.count("2 sentences of dev, with ORG, are left out for the architecture weights") == 1
    objective = objective_of(corpus, held_out=0.0)
    assert len(objective.streams["valid"]) == 4 and len(objective.dev) == 6
    scored = objective.evaluate().value
    objective.model.eval()
    with objective.supernet.batch_statistics():
        assert scored == pytest.approx(evaluate_tagger(objective.model, objective.dev, batch_size=4).f1)


@pytest.mark.slow
@pytest.mark.parametrize("unseen", ["ORG", "O"])  # O: a token that has no label
def test_labels_of_tokens_that_train_lacks(unseen: str, tmp_path: Path) -> None:
    corpus = corpus_with_an_unseen_label(tmp_path / "corpus", " VBD ", f" {unseen} ")
    options: dict[str, Any] = {"label_type": "pos", "columns": "text=0,pos=1", "held_out": 0.0}
    assert len(objective_of(corpus, **options).streams["valid"]) == 4
    run(corpus, tmp_path / "run", **options, epochs=1)


def test_too_few_sentences_with_labels_of_train_are_refused(tmp_path: Path) -> None:
    corpus = corpus_with_an_unseen_label(tmp_path / "corpus")
    with pytest.raises(FlairNasError, match="4 sentences for the architecture weights are less than a batch of 5"):
        objective_of(corpus, held_out=0.0, batch_size=5)


def test_an_epoch_reads_each_sentence_once_but_for_those_that_fill_no_batch(corpus: str) -> None:
    objective = objective_of(corpus, held_out=0.25)  # 18 sentences, 4 a batch
    assert objective.steps(1) == 4

    def epoch(other: TaggingObjective, number: int) -> list[list[str]]:
        return [[s.to_plain_string() for s in other.training_batch(number, step).parts[0]] for step in range(4)]

    first, second = epoch(objective, 1), epoch(objective, 2)
    assert len({sentence for batch in first for sentence in batch}) == 16 and first != second
    torch.manual_seed(99)
    assert epoch(objective_of(corpus, held_out=0.25), 1) == first
    assert objective.validation_batch(1, 0) == objective.validation_batch(1, 1)  # one batch of 4 of the 6
    halves = objective_of(corpus, held_out=0.25, parts=2)
    assert [len(part) for part in halves.training_batch(1, 0).parts] == [2, 2]


def test_the_model_descends_the_loss_of_the_batch_and_the_architecture_that_of_a_token(corpus: str) -> None:
    objective = objective_of(corpus, reproject=False, word_dropout=0.0, locked_dropout=0.0)
    objective.module.eval()
    (batch,) = objective.training_batch(1, 0).parts
    total, tokens = objective.model.forward_loss(batch)
    assert tokens == sum(map(len, batch))
    torch.testing.assert_close(objective.training_loss(batch), total)
    torch.testing.assert_close(objective.validation_loss(batch), total / tokens)
    whole = mean_gradients(objective, objective.training_loss, [batch], model_weights(objective))[1]
    objective.parts = 2
    parted = mean_gradients(objective, objective.training_loss, [batch[:2], batch[2:]], model_weights(objective))[1]
    with objective.supernet.batch_statistics():  # the statistics that are kept are of no part
        torch.testing.assert_close(whole, parted, rtol=1e-4, atol=1e-5)


def test_what_does_not_learn_is_no_weight_and_is_not_saved(corpus: str) -> None:
    objective = objective_of(corpus, embeddings=["char"])
    names = {name.partition(".")[0] for name in objective.module.state_dict()}
    assert {"embeddings", "rnn", "linear", "crf"} <= names
    learned = {id(parameter) for parameter in model_weights(objective)}
    assert not learned & {id(parameter) for parameter in architecture_weights(objective)}
    assert {id(p) for p in objective.model.parameters()} == learned | {id(objective.supernet.ahead.arch)}


def test_the_supernet_reads_what_the_embeddings_are_mapped_to(corpus: str, tmp_path: Path) -> None:
    objective = objective_of(corpus, embeddings=["one-hot"], reproject=5)
    assert tuple(objective.model.embedding2nn.weight.shape) == (5, 100)
    assert objective.supernet.ahead.input_size == 5
    assert len(run(corpus, tmp_path / "run", reproject=5).history) == 2


def test_evaluation_is_of_dev_in_batches_of_two_at_least(corpus: str) -> None:
    objective = objective_of(corpus, batch_size=5)  # dev has 6 sentences
    found = objective.evaluate()
    assert objective.model.training
    objective.model.eval()
    with objective.supernet.batch_statistics():
        expected = evaluate_tagger(objective.model, objective.dev, batch_size=6)
    assert found.value == pytest.approx(expected.f1) and found.loss == pytest.approx(expected.loss)
    assert objective.metric.cost(found) == -found.value
    assert objective_of(corpus, label_type="pos", columns="text=0,pos=1").metric == ACCURACY


KINDS: dict[str, dict[str, Any]] = {
    "first": {},
    "second, on dev, own": {"order": 2, "held_out": 0.0, "directions": "own", "relaxation": "darts"},
    "joint": {"learn": "joint", "history": 2, "phase_steps": 2},
    "inter": {"learn": "inter", "history": 1, "fixed": "relu0-tanh1"},
    "perturbation": {"selection": "perturbation", "selection_steps": 1, "sampling": "straight-through"},
    "random-shared": {"strategy": "random-shared"},
    "halving": {"strategy": "random-independent", "rungs": 2},
    "softmax": {"crf": False, "dropout": 0.2, "input_dropout": 0.2, "recurrent_dropout": 0.2, "parts": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_search_ends_with_its_genotype(kind: str, corpus: str, tmp_path: Path) -> None:
    found = run(corpus, tmp_path / "run", **KINDS[kind])
    assert load_genotype(tmp_path / "run" / "genotype.json") == found.genotype and len(found.genotype.nodes) == 2
    assert found.genotype.origin["corpus"].startswith("corpus") and found.metric.key == "dev_f1"
    assert [line["epoch"] for line in found.history] == [1, 2]
    assert all(0 <= line["dev_f1"] <= 100 for line in found.history)


@pytest.mark.slow
def test_a_tagger_that_is_learned(corpus: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"held_out": 0.0, "locked_dropout": 0.0, "embeddings": ["one-hot"]}
    found = run(corpus, tmp_path / "run", epochs=12, hidden_size=16, **changes)
    assert found.history[-1]["train_loss"] < found.history[0]["train_loss"] / 4
    assert max(line["dev_f1"] for line in found.history) > 60


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped(corpus: str, tmp_path: Path) -> None:
    run(corpus, tmp_path / "whole", epochs=3)
    with Stop(2, 1, interrupt), pytest.raises(RunStopped, match="flair-nas search --resume"):
        run(corpus, tmp_path / "run", epochs=3)
    run(corpus, tmp_path / "run", epochs=3)
    assert_same_runs(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": ["pooled-flair:news-forward"]}, "change while they are used"),
        ({"directions": "own", "selection": "perturbation"}, "directions must be shared"),
        ({"objective": "text"}, "objective must be one of tagging"),
        ({"batch_size": 13}, "12 sentences for the architecture weights are less than a batch of 13"),
        ({"held_out": 0.9}, "2 sentences for the model weights are less than a batch of 4"),
    ],
)
def test_what_cannot_be_used_is_refused(changes: dict[str, Any], message: str, corpus: str, tmp_path: Path) -> None:
    with pytest.raises(FlairNasError, match=message):
        run(corpus, tmp_path / "run", **changes)


def test_test_without_labels_is_not_evaluated(tmp_path: Path) -> None:
    test = Path(write_corpus(tmp_path)) / "test.txt"
    test.write_text(re.sub(r"[BI]-\w+", "O", test.read_text()))
    with pytest.raises(FlairNasError, match="no test sentence has a label of type 'ner'"):
        objective_of(str(tmp_path)).use_test()


# --- the command ---


def command(corpus: str, *more: str) -> list[str]:
    small = "--objective tagging --embeddings one-hot --hidden-size 6 --nodes 2 --batch-size 4 --epochs 1 --device cpu"
    return ["search", *small.split(), "--corpus", corpus, *more]


def test_what_finds_nothing_has_learned_nothing(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaggingObjective, "evaluate_batches", lambda self, size: Evaluation(1.0, 0.0))
    assert main(command(corpus, "-q", "--out", str(tmp_path / "run"))) == 1
    said = capsys.readouterr().out
    assert said.startswith("This search learned nothing: its valid F1 is 0.00, that of finding nothing is 0.00. ")
    assert "tune" not in said


def test_labels_of_tokens_have_to_surpass_the_most_frequent_one(corpus: str) -> None:
    objective = objective_of(corpus, columns="text=0,pos=1,ner=2", label_type="pos")
    tags = [[token.get_label("pos").value for token in sentence] for sentence in objective.dev]
    train = Counter(token.get_label("pos").value for sentence in objective.streams["train"] for token in sentence)
    most, all_tags = train.most_common(1)[0][0], sum(tags, [])
    key, name, cost = objective.guess()
    assert (key, name) == ("majority", f"the label {most} alone")
    assert cost == pytest.approx(-100 * all_tags.count(most) / len(all_tags))


@pytest.mark.slow
def test_the_command_searches_on_tags(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flair_nas.search.trainer.explain_failure", lambda *_: "")  # one epoch may find nothing
    out = tmp_path / "run"
    assert main(command(corpus, "-q", "--out", str(out))) == 0
    said = capsys.readouterr().out
    assert "the supernet's valid F1 is " in said
    assert f"--corpus {corpus} --embeddings one-hot --hidden-size 6 --candidates {out / 'genotype.json'}" in said
    assert main(["search", "-q", "--resume", str(out), "--epochs", "2"]) == 0
    assert len((out / "history.jsonl").read_text().splitlines()) == 2
    assert json.loads((out / "genotype.json").read_text())["origin"]["settings"]["corpus"] == corpus
    assert main(command(corpus, "-q", "--estimate")) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--corpus demo", "--corpus: only with --objective tagging"),
        ("--objective tagging --bptt 3", "--bptt: only with --objective text"),
        ("--objective several --dropout 0.1", "--dropout: only with --objective text or --objective tagging or"),
        ("--objective speech", "objective must be one of text, tagging, classification, several, got 'speech'"),
        ("--preset i-darts-conll03 --text demo", "--text: only with"),
    ],
)
def test_settings_of_another_objective_are_refused(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", *arguments.split(), "--out", "x"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "x").exists()
