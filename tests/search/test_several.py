"""Searches on several tasks: one architecture, turns, losses on one scale, resuming, settings."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from small_search import Stop, assert_same_runs, flat, interrupt, with_samples, write_text
from small_tagging import write_corpus

from flair_nas import load_genotype
from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import Guess
from flair_nas.runs.run import RunStopped
from flair_nas.search.bilevel import architecture_weights, first_order, model_weights
from flair_nas.search.objectives.flair_model import FlairObjective
from flair_nas.search.objectives.several import SeveralObjective, build, read
from flair_nas.search.objectives.text import TextObjective
from flair_nas.search.processes import make_accelerator
from flair_nas.search.protocols import Batch
from flair_nas.search.several_config import SeveralSearchConfig
from flair_nas.search.trainer import SearchResult, search_genotype
from flair_nas.settings.fields import make_settings

pytestmark = pytest.mark.usefixtures("columns_without_pictures")

TEXT: dict[str, Any] = {"objective": "text", "batch_size": 4, "bptt": 12, "learning_rate": 2.0, "vary_length": False}
TAGS: dict[str, Any] = {
    "objective": "tagging", "embeddings": ["one-hot", "char"], "batch_size": 4, "learning_rate": 0.5, "clip": 1.0,
}  # fmt: skip
SMALL: dict[str, Any] = {"hidden_size": 6, "nodes": 2, "epochs": 2, "device": "cpu"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "gradient": {},
    "second order": {"order": 2},
    "perturbation": {"sampling": "straight-through", "selection": "perturbation", "selection_steps": 1},
    "joint": {"learn": "joint", "history": 2, "phase_steps": 3},
    "random-shared": {"strategy": "random-shared"},
    "local-search": {"strategy": "local-search", "child_steps": [3]},
    "enas": {"strategy": "enas", "controller_steps": 2, "controller_draws": 2, "controller_size": 4},
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tasks")
    text = {**TEXT, "name": "prose", "text": str(write_text(folder / "text"))}
    return [text, {**TAGS, "name": "names", "corpus": write_corpus(folder / "corpus")}]


def settings(tasks: list[Any], **changes: Any) -> SeveralSearchConfig:
    return make_settings(SeveralSearchConfig, {**with_samples(SMALL, changes), "tasks": tasks})


def run(tasks: list[Any], out: Path, **changes: Any) -> SearchResult:
    return search_genotype(settings(tasks, **changes), out, progress=False)


def objective_of(config: SeveralSearchConfig) -> SeveralObjective:
    return build(config, read(config), make_accelerator("cpu", "float32"))


def one_task(config: SeveralSearchConfig, number: int) -> SeveralObjective:
    """The objective of a single task, which the settings refuse."""
    name, task = list(config.named_tasks.items())[number]
    alone = dataclasses.replace(config)
    alone.named_tasks, alone.tasks = {name: task}, alone.tasks[number : number + 1]
    return build(alone, read(alone), make_accelerator("cpu", "float32"))


@pytest.mark.parametrize("number", [0, 1])
def test_a_single_task_equals_a_search_of_its_own_to_the_bit(
    number: int, tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(tasks, weight_decay=1e-4)
    (task := list(config.named_tasks.values())[number]).epochs = 2
    alone = search_genotype(task, tmp_path / "alone", progress=False)
    with_one = search_genotype(
        dataclasses.replace(config, learning_rate=config.learning_rate),
        tmp_path / "one", objective=lambda accelerator: one_task(config, number), progress=False,
    )  # fmt: skip
    weights = [
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["model"].values() for name in ("alone", "one")
    ]
    assert torch.equal(*(flat(w.double() for w in of) for of in weights))
    assert alone.genotype == with_one.genotype
    assert alone.history[-1]["architecture_loss"] == with_one.history[-1]["architecture_loss"]


def test_two_copies_of_a_task_have_the_gradient_of_one(tasks: list[dict[str, Any]], caplog: Any) -> None:
    config = settings([tasks[0], {**tasks[0], "name": "again"}])
    double, single = objective_of(config), one_task(config, 0)
    assert "tasks prose and again have the same data" in caplog.text
    found = [architecture_gradient(objective) for objective in (double, single)]
    assert found[1].abs().max() > 1e-4
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def architecture_gradient(objective: SeveralObjective) -> torch.Tensor:
    """The gradient on the first batches, in float64 and without dropout."""
    objective.module.double().eval()
    with objective.supernet.batch_statistics():
        return flat(first_order(objective, objective.validation_batch(1, 0))[1])


def test_losses_come_to_one_scale(tasks: list[dict[str, Any]]) -> None:
    config = settings(tasks, weights=[1.0, 3.0])
    objective = objective_of(config)
    prose, names = (one_task(config, number) for number in (0, 1))
    for single, module in zip((prose, names), objective.module):
        single.module[0].load_state_dict(module.state_dict())
    m_prose, m_names = objective.untrained
    assert [*prose.untrained, *names.untrained] == pytest.approx([m_prose, m_names], rel=1e-3)
    assert m_prose > 1.1 * m_names
    mean = (m_prose + m_names) / 2
    for single in (prose, names):
        single.shares = [1.0]
    expected = 0.25 * mean / m_prose * architecture_gradient(prose)
    expected += 0.75 * mean / m_names * architecture_gradient(names)
    torch.testing.assert_close(architecture_gradient(objective), expected, rtol=1e-6, atol=1e-9)
    objective = objective_of(config)
    found = objective.evaluate()
    cost, figures = found.value, found.figures["tasks"]
    parts = [figures["prose"]["dev_loss"] / m_prose, 1 - figures["names"]["dev_f1"] / 100]
    assert cost == pytest.approx(0.25 * parts[0] + 0.75 * parts[1])
    guess = objective.objectives[0].guess()
    assert objective.guess().cost == pytest.approx(0.25 * guess.cost / m_prose + 0.75)
    with torch.no_grad():
        next(iter(objective.objectives[1].module.parameters())).fill_(math.nan)
    assert objective.evaluate().loss == math.inf


def test_one_genotype_runs_in_all_tasks(tasks: list[dict[str, Any]]) -> None:
    objective = objective_of(settings(tasks))
    cell = load_genotype("relu0-tanh1")
    objective.supernet.choose(cell)
    prose, names = objective.supernet.parts
    assert [part._chosen.genotype for part in (prose, names.ahead, names.back)] == [cell] * 3


def test_tasks_share_one_architecture_and_their_order_does_not_matter(tasks: list[dict[str, Any]]) -> None:
    objective = objective_of(settings(tasks))
    prose, names = objective.supernet.parts
    assert prose.arch is names.ahead.arch is names.back.arch
    assert prose.weight_hidden is not names.ahead.weight_hidden
    assert architecture_weights(objective) == [prose.arch]
    assert len(model_weights(objective)) == sum(len(batch.weights or []) for batch in first_batches(objective))
    other = objective_of(settings(tasks[::-1]))
    with torch.no_grad():
        architecture_weights(other)[0].copy_(prose.arch)
    found = objective.evaluate()
    assert found.value == pytest.approx(other.evaluate().value, rel=1e-6)
    assert found.figures["tasks"].keys() == {"prose", "names"}


def first_batches(objective: SeveralObjective) -> list[Batch]:
    batches = [objective.training_batch(1, step) for step in range(4)]
    return [next(batch for batch in batches if batch.parts[0].task == task) for task in (0, 1)]


def test_shared_weights_need_one_width(tasks: list[dict[str, Any]]) -> None:
    with pytest.raises(FlairNasError, match=r"shared_weights: weight_input is .*set reproject: 6 in the files"):
        objective_of(settings(tasks, shared_weights=True))
    narrow = [tasks[0], {**tasks[1], "reproject": 6}, {**tasks[1], "reproject": 6, "name": "more", "batch_size": 6}]
    prose, names, more = objective_of(settings(narrow, shared_weights=True)).supernet.parts
    assert prose.weight_nodes is names.ahead.weight_nodes is more.ahead.weight_nodes
    assert names.back.weight_input is more.back.weight_input is not names.ahead.weight_input


def test_turns_are_equal_or_by_size(tasks: list[dict[str, Any]]) -> None:
    equal = objective_of(settings(tasks))
    steps = [objective.steps(1) for objective in equal.objectives]
    assert steps[0] > 2 * steps[1] and equal.steps(1) == 2 * steps[1]
    assert [equal._turn(1, step)[0] for step in range(4)] == [0, 1, 0, 1]
    text = equal.objectives[0]
    with mock.patch.object(text, "training_batch", wraps=text.training_batch) as read:
        equal.training_batch(2, 0)
        equal.training_batch(1 + steps[0], 2)
    # the text goes on where its last turn ended
    assert [call.args for call in read.call_args_list] == [(1, steps[1]), (1 + steps[1], 1)]
    by_size = objective_of(settings(tasks, balance="size"))
    turns = [by_size._turn(1, step) for step in range(by_size.steps(1))]
    for task, count in enumerate(steps):
        assert [place for of, place in turns if of == task] == list(range(count))
    between = [place for place, (task, _) in enumerate(turns) if task == 1]
    assert max(b - a for a, b in zip(between, between[1:])) <= -(-len(turns) // steps[1])


def test_a_step_changes_the_weights_of_its_task_alone(tasks: list[dict[str, Any]]) -> None:
    from flair_nas.search.bilevel import ModelOptimizer

    config = settings(tasks, weight_decay=0.1)
    objective = objective_of(config)
    before = [flat(module.parameters()).clone() for module in objective.module]
    optimizer = ModelOptimizer(objective, config)
    batch = objective.training_batch(1, 1)
    optimizer.step(1, 1, batch)
    same = [torch.equal(flat(module.parameters()), old) for module, old in zip(objective.module, before)]
    assert same == [True, False] and batch.clip == 1.0
    assert optimizer.learning_rate(1, batch) == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_goes_on_where_it_stopped(kind: str, tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    changes = STRATEGIES[kind]
    whole = run(tasks, tmp_path / "whole", **changes)
    figures = whole.history[-1]["tasks"]
    assert figures["prose"]["dev_perplexity"] > 1 and 0 <= figures["names"]["dev_f1"] <= 100
    from flair_nas.search.registry import strategy_class

    owner = strategy_class(settings(tasks, **changes).strategy_name)
    with pytest.raises(RunStopped), Stop(2, 1, interrupt, owner):
        run(tasks, tmp_path / "stopped", **changes)
    run(tasks, tmp_path / "stopped", **changes)
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


def test_the_command_keeps_what_the_files_say(
    tasks: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{task['name']}.yaml") for task in tasks]
    for file, task in zip(files, tasks):
        Path(file).write_text(json.dumps({key: value for key, value in task.items() if key != "name"}))
    flags = ["--hidden-size", "6", "--nodes", "2", "--epochs", "1", "--device", "cpu"]
    out = str(tmp_path / "out")
    code = main(["search", "-q", "--objective", "several", "--tasks", *files, *flags, "--out", out])
    assert code in (0, 1)
    for file in files:
        Path(file).unlink()
    assert main(["search", "-q", "--resume", out, "--epochs", "2"]) in (0, 1)
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert len(history) == 2 and history[1]["tasks"].keys() == {"prose", "names"}
    assert "--candidates" in capsys.readouterr().out
    origin = json.loads((tmp_path / "out" / "genotype.json").read_text())["origin"]
    assert "prose: " in origin["corpus"] and "learning_rate: 0.5" in origin["settings"]["tasks"][1]
    assert not any(str(tmp_path.parent) in task for task in origin["settings"]["tasks"][:1])  # text is a place


@pytest.mark.parametrize(
    ("changed", "whole", "message"),
    [
        (None, {}, "tasks must be at least two, got 1"),
        ({"hidden_size": 12}, {}, "task names: .*settings that belong to the whole search: hidden_size 12 .there 6."),
        (
            {"strategy": "enas"},
            {},
            "task names: .*that belong to the whole search: strategy 'enas' .there 'gradient'.",
        ),
        ({"name": "prose"}, {}, "task prose: another task has this name"),
        ({"objective": "tags"}, {}, "task names: unknown objective 'tags'; there are text, tagging"),
        ({"emb": 1}, {}, "task names: its settings: unknown settings emb"),
        ({"directions": "own"}, {}, "task names: it sets directions 'own', and all have one architecture"),
        ({"batch_size": 1}, {}, "task names: .*batch_size must be"),
        ({}, {"weights": [1.0]}, r"weights must be as many as the tasks, 2, and not all 0, got \[1.0\]"),
        ({}, {"weights": [0.0, 0.0]}, r"weights must be as many as the tasks, 2, and not all 0, got \[0.0, 0.0\]"),
        ({}, {"learning_rate": 3.0}, "learning_rate belongs to each task, in its file"),
        ({}, {"parts": 3}, "task prose: .*batch_size 4 cannot be divided into 3 parts"),
        ({"corpus": Path("x")}, {}, "a task has something else than text and numbers"),
    ],
)
def test_settings_that_make_no_search(
    changed: dict[str, Any] | None, whole: dict[str, Any], message: str, tasks: list[dict[str, Any]]
) -> None:
    given = tasks[:1] if changed is None else [tasks[0], {**tasks[1], **changed}]
    with pytest.raises(FlairNasError, match=message):
        settings(given, **whole)


def test_tasks_may_move(tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    run(tasks, tmp_path / "run")
    shutil.copytree(tasks[0]["text"], tmp_path / "text")
    moved = [{**tasks[0], "text": str(tmp_path / "text")}, tasks[1]]
    assert len(run(moved, tmp_path / "run", epochs=3).history) == 3
    with pytest.raises(FlairNasError, match="the data have changed"):
        run([{**tasks[0], "bptt": 11}, tasks[1]], tmp_path / "run", epochs=4)
    with pytest.raises(FlairNasError, match="a search on 2 tasks takes a list with the data of each"):
        read(settings(tasks), "text")


def test_what_is_wrong_with_the_data_of_a_task_names_it(tasks: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a b c\n")
    config = settings([{**tasks[0], "text": str(tmp_path), "name": "no valid part"}, tasks[1]])
    with pytest.raises(FlairNasError, match="task no valid part: .*valid"):
        objective_of(config)
    with pytest.raises(FlairNasError, match=r"cannot read this file of settings"):
        settings([str(tmp_path / "none.yaml"), tasks[1]])
    with pytest.raises(FlairNasError, match="task 2: its settings: not a YAML file"):
        settings([tasks[0], "{name: ["])


# --- tasks on which nothing was learned ---


def surpass(monkeypatch: pytest.MonkeyPatch, prose: float, names: float) -> None:
    """Let the tasks have these costs to surpass."""
    monkeypatch.setattr(TextObjective, "guess", lambda *_: Guess("unigram", "word frequencies", prose))
    monkeypatch.setattr(FlairObjective, "guess", lambda *_: Guess("empty", "finding nothing", names))


@pytest.mark.parametrize("kind", ["gradient", "local-search", "random-shared"])
def test_a_search_says_on_which_tasks_it_learned_nothing(
    kind: str, tasks: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surpass(monkeypatch, prose=0.0, names=-101.0)
    found = run(tasks, tmp_path / "none", **STRATEGIES[kind])
    assert not found.learned
    assert re.fullmatch(
        r"This search learned nothing: prose's valid perplexity is [\d.]+, that of word frequencies is 1\.0; "
        r"names's valid F1 is [\d.]+, that of finding nothing is 101\.00\. Give it more --epochs, or another "
        r"learning_rate or a smaller batch_size in the file of a task\. Its genotype is arbitrary\.",
        found.verdict,
    )
    assert load_genotype(str(tmp_path / "none")).origin["verdict"] == found.verdict
    assert run(tasks, tmp_path / "none", **STRATEGIES[kind]).verdict == found.verdict  # it is read again
    surpass(monkeypatch, prose=99.0, names=-101.0)
    some = run(tasks, tmp_path / "none", **STRATEGIES[kind])
    assert some.learned and some.verdict.startswith("This search learned nothing on 1 of 2 tasks: names's valid F1 is ")
    assert "Its genotype rests on the others. " in some.verdict  # and what the strategy says
    surpass(monkeypatch, prose=99.0, names=1.0)
    assert "learned nothing" not in run(tasks, tmp_path / "none", **STRATEGIES[kind]).verdict
