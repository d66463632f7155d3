"""Continual searches: the penalties of CAS, weights that are taken, the genotype alone, what earlier tasks lose."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import Stop, assert_same_runs, interrupt
from small_tagging import write_classes, write_corpus

from flair_nas import load_genotype
from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import PERPLEXITY, Guess
from flair_nas.runs.run import RunStopped
from flair_nas.search.bilevel import training_loss
from flair_nas.search.build import make_objective
from flair_nas.search.continual import carried, grams, matrices, overlaps, sparsity
from flair_nas.search.flair_config import ClassificationSearchConfig, TaggingSearchConfig
from flair_nas.search.forgetting import TaskFigures, evaluate_stages
from flair_nas.search.objectives.flair_model import FlairObjective
from flair_nas.search.processes import make_accelerator
from flair_nas.search.strategies.retrained import Retrained
from flair_nas.search.trainer import SearchResult, search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.supernet import BothDirections, CellSupernet

pytestmark = pytest.mark.usefixtures("columns_without_pictures")

PENALTIES: dict[str, Any] = {"sparsity": 1e-2, "orthogonality": 1e-2}
STRATEGIES: dict[str, dict[str, Any]] = {
    "gradient": {},
    "random-shared": {"strategy": "random-shared", "samples": 2, "sample_segments": 1},
    "enas": {"strategy": "enas", "controller_steps": 1, "controller_draws": 2, "controller_size": 4, "samples": 2,
             "sample_segments": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpora")
    corpora = [write_corpus(folder / str(number)) for number in range(2)]
    other = Path(corpora[1]) / "train.txt"
    other.write_text("\n\n".join(other.read_text().split("\n\n")[::-1]))
    return corpora


def settings(corpus: str, **changes: Any) -> TaggingSearchConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["char"], "hidden_size": 6, "nodes": 2, "batch_size": 4, "epochs": 3,
        "retrain_epochs": 1, "learning_rate": 0.5, "device": "cpu",
    }  # fmt: skip
    return make_settings(TaggingSearchConfig, given | changes)


def run(corpus: str, out: Path, **changes: Any) -> SearchResult:
    return search_genotype(settings(corpus, **changes), out, progress=False)


@pytest.fixture(scope="module")
def first(corpora: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_KERNELS", "columns")
        return run(corpora[0], tmp_path_factory.mktemp("first") / "run", sparsity=1e-3).out


def number(seed: int, rows: int, columns: int) -> torch.Tensor:
    """A matrix of a formula, in float64."""
    places = 7 * seed + 3 * torch.arange(rows)[:, None] + 5 * torch.arange(columns) + 1
    return torch.sin(places.double())


def test_penalties_equal_the_authors_functions() -> None:
    """Figures of get_block_sparse_regularization and get_condition2_regularization (ramakanth-pasunuru/CAS-MAS).

    They ran in float64, with weights of 1, on the matrices of `number`. Their orthogonality has no squares.
    """
    shapes = [(3, 5), (3, 5), (3, 3), (3, 3), (3, 3), (3, 3)]
    parts = [number(seed, *shape).requires_grad_() for seed, shape in enumerate(shapes)]
    before = [number(seed + 10, *shape) for seed, shape in enumerate(shapes)]
    rows = sparsity(parts)
    assert rows.item() == pytest.approx(24.13368702863654, abs=1e-12)
    sums = [float(gradient.sum()) for gradient in torch.autograd.grad(rows, parts)]
    expected = [
        0.06722107909446257, 0.057140659688405565, 1.12208508985616, 1.3848435936473096, 0.8033582986996313,
        -0.020500746535376813,
    ]  # fmt: skip
    assert sums == pytest.approx(expected, abs=1e-12)
    changes = [part - old for part, old in zip(parts, before)]
    both = sparsity(changes) + overlaps(changes, grams(before)).sqrt().sum()
    assert sparsity(changes).item() == pytest.approx(20.59796346805154, abs=1e-12)
    assert both.item() == pytest.approx(48.31842855929814, abs=1e-12)
    weighted = [float((g * number(99, *g.shape)).sum()) for g in torch.autograd.grad(both, parts)]
    expected = [
        -11.823509198936636, -7.492664969851765, 0.5902980269078562, 4.646429429197887, 7.51952092529957,
        5.241790883732458,
    ]  # fmt: skip
    assert weighted == pytest.approx(expected, abs=1e-12)


def test_the_matrices_of_a_layer_are_those_of_the_paper() -> None:
    supernet = CellSupernet(2, 3, nodes=2).double()
    parts = [number(seed, *shape) for seed, shape in enumerate([(3, 5), (3, 5), *[(3, 3)] * 4])]
    with torch.no_grad():
        supernet.weight_input.copy_(torch.cat([part[:, :2].t() for part in parts[:2]], 1))
        supernet.weight_hidden.copy_(torch.cat([part[:, 2:].t() for part in parts[:2]], 1))
        for node, weight in enumerate(supernet.weight_nodes):
            weight.copy_(torch.cat([part.t() for part in parts[2 + 2 * node :][:2]], 1))
    assert all(map(torch.equal, matrices(supernet), parts)) and len(matrices(supernet)) == 6
    assert len(matrices(BothDirections(CellSupernet(2, 3, nodes=2, history=2)))) == 2 * (6 + 8)
    assert [part.dim() for part in matrices(CellSupernet(2, 3, nodes=1, recurrence="elementwise"))] == [2, 2, 1, 2, 2]
    change = torch.zeros(3, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        sparsity([change]) + overlaps([change], grams([number(1, 3, 3).float()])).sum(), change
    )
    assert torch.equal(gradient, torch.zeros(3, 3))  # at the first step nothing has changed


def test_the_next_search_takes_layer_and_linear_map(first: Path, corpora: list[str]) -> None:
    accelerator = make_accelerator("cpu", "float32")
    config = settings(corpora[1], after=str(first))
    objective = make_objective(config, accelerator)
    plain = make_objective(settings(corpora[1]), accelerator)
    saved = torch.load(first / "checkpoint.pt", weights_only=True)["model"]
    taken = carried(objective)
    assert {"embedding2nn.weight", "rnn.ahead.weight_nodes", "rnn.back.weight_input"} <= taken.keys()
    for name, weight in objective.module.named_parameters():
        like = saved[name] if name in taken else dict(plain.module.named_parameters())[name]
        assert torch.equal(weight, like), name
    batch = plain.training_batch(1, 0)
    with_penalty = make_objective(settings(corpora[1], after=str(first), **PENALTIES), accelerator)
    for model in (objective, with_penalty):
        model.module.eval()
    losses = [training_loss(model, batch.parts[0]).item() for model in (objective, with_penalty)]
    assert losses[0] == losses[1]  # nothing has changed yet
    with torch.no_grad():
        for model in (objective, with_penalty):
            model.supernet.ahead.weight_nodes[0, 0, 0] += 0.5
            named = dict(model.module.named_parameters())
            named["embedding2nn.weight"][1, 0] += 0.25
            named["embedding2nn.bias"][0] -= 0.125
    losses = [training_loss(model, batch.parts[0]).item() for model in (objective, with_penalty)]
    plain.module.load_state_dict(plain.module.state_dict() | {name: saved[name] for name in taken})
    theta = [part.detach().clone() for part in (*matrices(plain.supernet), saved["embedding2nn.weight"])]
    changed = [*matrices(with_penalty.supernet), dict(with_penalty.module.named_parameters())["embedding2nn.weight"]]
    psi = [part.detach() - before for part, before in zip(changed, theta)]
    products = sum(float((change.t() @ before).square().sum()) for change, before in zip(psi, theta))
    products += (0.125 * saved["embedding2nn.bias"][0].item()) ** 2
    rows = 0.125 + sum(float(change.norm(dim=1).sum()) for change in psi)
    assert rows == pytest.approx(0.875) and products > 1e-3
    assert losses[1] - losses[0] == pytest.approx(1e-2 * rows + 1e-2 * products, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_stage_goes_on_where_it_stopped(kind: str, first: Path, corpora: list[str], tmp_path: Path) -> None:
    changes = {**STRATEGIES[kind], **PENALTIES, "after": str(first), "retrain_epochs": 2, "epochs": 4}
    whole = run(corpora[1], tmp_path / "whole", **changes)
    assert [line.get("alone", False) for line in whole.history] == [False, False, True, True]
    assert len({line["genotype"] for line in whole.history[2:]}) == 1
    shutil.copytree(first, tmp_path / "moved")
    for place in ((2, 1), (3, 1), (4, 1)):
        out = tmp_path / f"stopped{place[0]}"
        with pytest.raises(RunStopped), Stop(*place, interrupt, Retrained):
            run(corpora[1], out, **changes)
        run(corpora[1], out, **changes)
        assert_same_runs(tmp_path / "whole", out)
    moved = run(corpora[1], tmp_path / "whole", **{**changes, "after": str(tmp_path / "moved")})
    assert moved.genotype == whole.genotype


def test_what_is_lost(
    first: Path,
    corpora: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = run(corpora[1], tmp_path / "second", after=str(first), learning_rate=2.0)
    tasks = list(evaluate_stages([first, second.out]))
    assert [len(task.values) for task in tasks] == [2, 1]
    assert tasks[1].values[0] == pytest.approx(second.history[-1]["dev_f1"]) and tasks[1].forgetting == 0
    early, late = (torch.load(out / "checkpoint.pt", weights_only=True)["model"] for out in (first, second.out))
    objective = make_objective(settings(corpora[0]), make_accelerator("cpu", "float32"))
    later = {name: late[name] for name in carried(objective)}
    assert not torch.equal(later["rnn.back.weight_nodes"], early["rnn.back.weight_nodes"])
    objective.module.load_state_dict(early | later)
    objective.supernet.choose(load_genotype(str(first)))
    assert tasks[0].values[1] == pytest.approx(objective.evaluate().value)
    assert tasks[0].forgetting == pytest.approx(tasks[0].values[0] - tasks[0].values[1])
    assert TaskFigures("a text", PERPLEXITY, [20.0, 25.0]).forgetting == 5.0
    assert main(["forgetting", "-q", str(first), str(second.out), "--part", "test"]) == 0
    found = capsys.readouterr().out
    assert found.count("\n| ") == 3 and "mean forgetting of the first 1: " in found
    assert "learned nothing" not in found
    guess = Guess("empty", "finding nothing", -101.0)
    monkeypatch.setattr(FlairObjective, "guess", lambda *_: guess)
    assert main(["forgetting", "-q", str(first), str(second.out)]) == 1
    *_, said, last = capsys.readouterr().out.splitlines()
    for line, stage in ((said, first), (last, second.out)):
        assert line.startswith(f"{stage} learned nothing: its valid F1 is ") and "finding nothing is 101.00" in line
    assert main(["forgetting", "-q", str(first)]) == 2
    assert "at least two searches are needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"orthogonality": 1e-3}, "orthogonality is to the weights of an earlier search: after must name its folder"),
        ({"sparsity": -1.0}, "sparsity must be a number"),
        ({"retrain_epochs": 3}, "retrain_epochs 3 leaves nothing to search: epochs is 3$"),
        ({"warmup_epochs": 2}, "retrain_epochs 1 leaves nothing to search: epochs is 3, and warmup_epochs 2"),
        (
            {"learn": "inter", "history": 1, "fixed": "tanh0-relu0", "after": "x", "retrain_epochs": 0},
            "after continues the search of a cell",
        ),
        ({"strategy": "random-independent", "after": "x"}, "after needs weights that all cells of one task share"),
    ],
)
def test_settings_that_make_no_stage(changes: dict[str, Any], message: str, corpora: list[str]) -> None:
    with pytest.raises(FlairNasError, match=message):
        settings(corpora[0], **changes)


def test_searches_that_cannot_be_continued(first: Path, corpora: list[str], tmp_path: Path, caplog: Any) -> None:
    def refused(message: str, after: Path, **changes: Any) -> None:
        with pytest.raises(FlairNasError, match=message):
            run(corpora[1], tmp_path / "out", after=str(after), **changes)

    refused("there is no search in this folder", tmp_path / "none")
    refused("is a search of another space: nodes 2 there and 3 here, hidden_size 6 there and 4 here", first, nodes=3,
            hidden_size=4)  # fmt: skip
    refused(r"embedding2nn.weight is \[\d+, \d+\] here and \[50, 50\] there", first, embeddings=["char", "one-hot"])
    with pytest.raises(RunStopped), Stop(3, 1, interrupt, Retrained):
        run(corpora[0], tmp_path / "half")
    refused("has finished 2 of 3 epochs; go on with it first: flair-nas search --resume", tmp_path / "half")
    alone = run(corpora[0], tmp_path / "alone", retrain_epochs=0, strategy="random-independent", samples=2).out
    refused("strategy random-independent leaves no weights", alone)
    damaged = shutil.copytree(first, tmp_path / "damaged")
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        (damaged / name).unlink()
        (damaged / name).write_bytes(b"no checkpoint")
    refused("damaged", damaged)
    run(corpora[0], tmp_path / "again", after=str(first))
    assert "that search was on the same data" in caplog.text
    other = run(corpora[0], tmp_path / "other", seed=2).out
    with pytest.raises(FlairNasError, match="the weights of .*other, from which this search goes on, have changed"):
        run(corpora[0], tmp_path / "again", after=str(other))


def test_figures_of_other_data_are_refused(first: Path, corpora: list[str], tmp_path: Path) -> None:
    changed = shutil.copytree(corpora[0], tmp_path / "corpus")
    stages = [run(str(changed), tmp_path / "first").out]
    stages.append(run(corpora[1], tmp_path / "second", after=str(stages[0])).out)
    test = Path(changed) / "test.txt"
    test.write_text(test.read_text().split("\n\n")[0] + "\n\n")
    with pytest.raises(FlairNasError, match="first: its data have changed since the search|needs at least 2 sentences"):
        list(evaluate_stages(stages, "test"))
    dev = Path(changed) / "dev.txt"
    dev.write_text("\n\n".join(dev.read_text().split("\n\n")[:3]) + "\n\n")
    with pytest.raises(FlairNasError, match="first: its data have changed since the search"):
        list(evaluate_stages(stages))


def test_classes_take_the_linear_map_too(tmp_path: Path) -> None:
    texts = write_classes(tmp_path / "texts")
    given: dict[str, Any] = {
        "corpus": texts, "embeddings": ["one-hot"], "hidden_size": 6, "nodes": 2, "batch_size": 4, "epochs": 2,
        "retrain_epochs": 1, "device": "cpu",
    }  # fmt: skip
    first = search_genotype(make_settings(ClassificationSearchConfig, given), tmp_path / "first", progress=False)
    saved = torch.load(first.out / "checkpoint.pt", weights_only=True)["model"]
    config = make_settings(ClassificationSearchConfig, {**given, "after": str(first.out), **PENALTIES})
    objective = make_objective(config, make_accelerator("cpu", "float32"))
    name = "words_word_reprojection_map.weight"
    assert torch.equal(dict(objective.module.named_parameters())[name], saved[name])


def test_another_objective_has_the_penalties(corpora: list[str]) -> None:
    config, accelerator = settings(corpora[0], sparsity=10.0), make_accelerator("cpu", "float32")
    plain = make_objective(settings(corpora[0]), accelerator)
    passed = make_objective(config, accelerator, make=lambda _: make_objective(settings(corpora[0]), accelerator))
    losses = []
    for objective in (plain, passed):
        objective.module.eval()
        losses.append(training_loss(objective, objective.training_batch(1, 0).parts[0]).item())
    assert losses[1] > losses[0] + 10
