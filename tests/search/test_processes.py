"""Searches in several processes: in step, the same gradients, who writes and speaks, and no process left waiting."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import (
    KINDS,
    NO_DROPOUT,
    Processes,
    assert_same_runs,
    flat,
    objective_of,
    patched,
    small,
    together,
    write_text,
)

from flair_nas import cli
from flair_nas.errors import FlairNasError
from flair_nas.search import trainer
from flair_nas.search.bilevel import ModelOptimizer, first_order, mean_gradients, model_weights, second_order
from flair_nas.search.objectives import text as text_objective
from flair_nas.search.processes import average, by_main, gather, make_accelerator, only_main_logs
from flair_nas.search.strategies.gradient import GradientStrategy
from flair_nas.search.trainer import search_genotype
from flair_nas.storage import files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=40, valid_lines=12)


def run(text: Path, out: Path, **settings: Any) -> str:
    return search_genotype(small(text, **settings), out, progress=False).genotype.one_line()


# --- in step ---


def search_with_hashes(text: Path, folder: Path) -> tuple[dict[str, list[str]], float]:
    """For each kind of search, the hash of all weights after each step; and a random number at the end."""
    hashes: dict[str, list[str]] = {}
    step = ModelOptimizer.step

    def hashing(self: Any, *arguments: Any) -> Any:
        loss = step(self, *arguments)
        numbers = b"".join(weight.detach().numpy().tobytes() for weight in self.objective.module.parameters())
        found.append(hashlib.sha256(numbers).hexdigest())
        return loss

    with patched(ModelOptimizer, "step", hashing):
        for kind in (
            "first",
            "second",
            "joint",
            "inter",
            "random-shared",
            "random-independent",
            "hurdles with gates",
            "enas",
        ):
            found = hashes[kind] = []
            run(text, folder / kind, **{"epochs": 1, **KINDS[kind]})
    return hashes, float(torch.rand(()))


def test_two_processes_are_in_step(text: Path, tmp_path: Path) -> None:
    (left, of_left), (right, of_right) = together(tmp_path / "answers", search_with_hashes, text, tmp_path)
    assert left == right
    assert of_left != of_right  # each draws dropout masks of its own
    assert all(len(set(hashes)) == len(hashes) > 3 for hashes in left.values())


Gradients = dict[str, torch.Tensor]


def gradients_of(text: Path, batch_norm: bool) -> Gradients:
    """All gradients of a step in float64, averaged over the processes, and the losses."""
    config = small(text, **NO_DROPOUT, history=2, learn="joint")
    accelerator = make_accelerator("cpu", "float32")
    with torch.random.fork_rng():
        objective = text_objective.build(config, text_objective.read(config), accelerator)
    if not batch_norm:
        objective.supernet.norm = None
    objective.module.double().train()
    weights, training, validation = (
        model_weights(objective),
        objective.training_batch(1, 0),
        objective.validation_batch(1, 0),
    )
    loss, of_weights = mean_gradients(objective, objective.training_loss, training.parts, weights)
    first_loss, first = first_order(objective, validation)
    second_loss, second = second_order(objective, training, validation, learning_rate=0.5, weight_decay=0.1, clip=0.25)
    losses = torch.tensor([loss, first_loss, second_loss], dtype=torch.float64)
    return {"losses": losses, "weights": flat(of_weights), "first": flat(first), "second": flat(second)}


def gradients_with_and_without(text: Path) -> list[Gradients]:
    return [gradients_of(text, batch_norm) for batch_norm in (False, True)]


def test_averaged_gradients_are_those_of_one_process(text: Path, tmp_path: Path) -> None:
    left, right = together(tmp_path, gradients_with_and_without, text)
    whole = gradients_with_and_without(text)
    for name in whole[0]:
        assert torch.equal(left[0][name], right[0][name]), name
        assert torch.equal(left[1][name], right[1][name]), name
        # without batch normalisation nothing tells how many processes there are
        torch.testing.assert_close(left[0][name], whole[0][name], rtol=1e-9, atol=1e-12)
    # with it, each process normalises by the statistics of its own columns
    distance = (left[1]["weights"] - whole[1]["weights"]).norm() / whole[1]["weights"].norm()
    assert distance > 0.01
    # so that two processes are what one is that computes its batch in two parts
    config = small(text, **NO_DROPOUT, history=2, learn="joint", parts=2)
    objective = objective_of(config, double=True)
    batch = objective.training_batch(1, 0).parts
    _, in_parts = mean_gradients(objective, objective.training_loss, batch, model_weights(objective))
    torch.testing.assert_close(left[1]["weights"], flat(in_parts), rtol=1e-9, atol=1e-12)


def search_without_noise(text: Path, out: Path) -> str:
    """A search of two epochs without dropout, and without statistics over a batch."""

    def without_norm(*arguments: Any) -> Any:
        objective = build(*arguments)
        objective.supernet.norm = None
        return objective

    build = text_objective.build
    with patched(text_objective, "build", without_norm):
        return run(text, out, **NO_DROPOUT, **KINDS["joint"])


def test_a_search_in_two_processes_is_that_of_one(text: Path, tmp_path: Path) -> None:
    left, right = together(tmp_path / "answers", search_without_noise, text, tmp_path / "two")
    assert left == right == search_without_noise(text, tmp_path / "one")
    two, one = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("two", "one"))
    for name, weight in one["model"].items():
        torch.testing.assert_close(two["model"][name], weight, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    for line, expected in zip(two["history"], one["history"], strict=True):
        assert line["dev_loss"] == pytest.approx(expected["dev_loss"], rel=1e-5)
        assert line["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)


def search_on_tags(folder: Path) -> str:
    """A search of an epoch on a few sentences of the demo corpus, without noise."""
    from flair_nas.search.flair_config import TaggingSearchConfig
    from flair_nas.search.objectives import tagging as tagging_objective
    from flair_nas.tagging.data.corpora import load_corpus

    corpus = load_corpus("demo")
    corpus.corpus._train, corpus.corpus._dev = (  # of one length, as each process takes the mean over its own tokens
        [sentence for sentence in part if len(sentence) == 12][:count]
        for part, count in ((corpus.corpus.train, 24), (corpus.corpus.dev, 8))
    )
    config = TaggingSearchConfig(
        embeddings=["one-hot"], reproject=False, hidden_size=6, nodes=2, batch_size=4, epochs=1, device="cpu",
        word_dropout=0.0, locked_dropout=0.0,
    )  # fmt: skip
    build = tagging_objective.build

    def without_norm(*arguments: Any) -> Any:
        objective = build(*arguments)
        for direction in (objective.supernet.ahead, objective.supernet.back):
            direction.norm = None
        return objective

    with patched(tagging_objective, "build", without_norm):
        return search_genotype(config, folder, text=corpus, progress=False).genotype.one_line()


def test_a_search_on_tags_in_two_processes_is_that_of_one(tmp_path: Path) -> None:
    left, right = together(tmp_path / "answers", search_on_tags, tmp_path / "two")
    assert left == right == search_on_tags(tmp_path / "one")
    two, one = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("two", "one"))
    for name, weight in one["model"].items():
        torch.testing.assert_close(two["model"][name], weight, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    ((line,), (expected,)) = two["history"], one["history"]
    assert line["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
    assert line["dev_f1"] == pytest.approx(expected["dev_f1"])


# --- resuming ---


def die_in_epoch(text: Path, out: Path, settings: dict[str, Any], epoch: int, rank: int) -> str:
    """A search in which one process is killed in the middle of an epoch."""
    step = GradientStrategy.step

    def dying(self: Any, now: int, number: int) -> Any:
        if (now, number) == (epoch, 2) and os.environ["RANK"] == str(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, now, number)

    with patched(GradientStrategy, "step", dying):
        return run(text, out, **settings)


RESUMED: dict[str, Any] = {"epochs": 3, **KINDS["joint"]}


@pytest.fixture(scope="module")
def never_stopped(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    together(folder / "answers", run_with, text, folder / "run", RESUMED)
    return folder / "run"


@pytest.mark.parametrize("dies", [0, 1])
def test_two_processes_resume(dies: int, text: Path, never_stopped: Path, tmp_path: Path) -> None:
    outcomes = Processes(tmp_path / "b", die_in_epoch, text, tmp_path / "stopped", RESUMED, 2, dies).outcomes()
    assert outcomes[dies].exitcode == -signal.SIGKILL
    # the one that is left does not wait, and says why it ends
    assert outcomes[1 - dies].error.startswith("FlairNasError: another process of this search has stopped")
    together(tmp_path / "c", run_with, text, tmp_path / "stopped", RESUMED)
    assert_same_runs(never_stopped, tmp_path / "stopped")
    if dies == 0:
        with pytest.raises(FlairNasError, match=r"checkpoint\.pt: this search began with 2 processes and has 1 now"):
            run_with(text, tmp_path / "stopped", RESUMED)


def run_with(text: Path, out: Path, settings: dict[str, Any]) -> str:
    return run(text, out, **settings)


# --- who writes and who speaks ---


def search_and_list_writes(text: Path, out: Path) -> list[str]:
    """The names of the files that this process wrote."""
    written: list[str] = []
    replace = os.replace

    def replacing(source: Any, target: Any) -> None:
        written.append(Path(target).name)
        replace(source, target)

    with patched(files.os, "replace", replacing):
        run(text, out, epochs=1)
        run(text, out, epochs=1)  # finished: a warning
    return written


def test_the_main_process_alone_writes_and_speaks(text: Path, tmp_path: Path) -> None:
    outcomes = Processes(tmp_path / "answers", search_and_list_writes, text, tmp_path / "run").outcomes()
    assert [outcome.error for outcome in outcomes] == ["", ""]
    main, other = outcomes
    assert {"config.yaml", "history.jsonl", "checkpoint.pt", "genotype.json"} <= set(main.result)
    assert "the softmax starts at the frequencies" in main.log[0]
    assert [line.split(":")[0] for line in main.log[1:]] == ["epoch 1 of 1", main.log[-1]]
    assert "is finished" in main.log[-1]
    assert other.result == [] and other.log == []


# --- errors ---


def full_disk(text: Path, out: Path) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def saving(self: Any, finished: bool) -> None:
        with patched(files.os, "fsync", fsync) if self.epoch == 2 else patched(self, "epoch", self.epoch):
            save(self, finished)

    save = trainer._Search._save
    with patched(trainer._Search, "_save", saving):
        run(text, out)


def too_many_processes(text: Path, out: Path) -> None:
    run(text, out, batch_size=4, parts=2)


def poisoned(text: Path, out: Path) -> None:
    def building(*arguments: Any) -> Any:
        objective = build(*arguments)
        if os.environ["RANK"] == "1":  # the other process has to hear of it
            objective.streams["train"] = [torch.zeros_like(columns) for columns in objective.streams["train"]]
            objective.training_loss = lambda batch, keep_state=False: (
                float("nan") * sum(weight.sum() for weight in objective.module.parameters())
            )
        return objective

    build = text_objective.build
    with patched(text_objective, "build", building):
        run(text, out)


@pytest.mark.parametrize(
    ("work", "of_main", "of_other"),
    [
        (full_disk, r"OSError: .*no room to write this file", r"the main process has stopped: .*no room to write"),
        (too_many_processes, "SettingsError: .*batch_size 4 leaves less than 2 sequences.* 2 parts for each of 2 proc",
         "SettingsError: .*batch_size 4 leaves less than 2"),
        (poisoned, r"NotFiniteError: not finite in epoch 1, step 1: training loss nan",
         r"NotFiniteError: not finite in epoch 1, step 1: training loss nan"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
def test_an_error_ends_all_processes(
    work: Callable[..., None], of_main: str, of_other: str, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    main, other = Processes(tmp_path / "answers", work, text, out).outcomes()
    assert re.match(of_main, main.error), main.error
    assert re.search(of_other, other.error), other.error
    if work is full_disk:  # the checkpoint of the first epoch is there, whole
        assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] == 1
        together(tmp_path / "again", run, text, out)
        assert len((out / "history.jsonl").read_text().splitlines()) == 2


def command(text: Path, out: Path, marker: Path) -> int:
    """The command in each process; the main process tells when it has begun to search."""
    finish = trainer._Display.epoch

    def telling(self: Any, line: Any) -> None:
        finish(self, line)
        if os.environ["RANK"] == "0":
            marker.touch()

    # with two sequences in each part and all their inputs dropped, gradients through the normalisation overflow
    flags = (
        "--quiet --device=cpu --hidden-size=6 --nodes=2 --batch-size=4 --epochs=500 --learning-rate=2 --input-dropout=0"
    )
    with patched(trainer._Display, "epoch", telling):
        return cli.main(["search", f"--text={text}", f"--out={out}", *flags.split()])


@pytest.mark.parametrize("to_all", [True, False])
def test_ctrl_c_ends_all_processes(to_all: bool, text: Path, tmp_path: Path) -> None:
    out, marker = tmp_path / "run", tmp_path / "marker"
    search = Processes(tmp_path / "answers", command, text, out, marker)
    end = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < end:
        time.sleep(0.01)
    for process in search.processes if to_all else search.processes[:1]:
        os.kill(process.pid or 0, signal.SIGINT)
    main, other = search.outcomes()
    assert main.result == 130
    assert other.result in ((130, 2) if to_all else (2,))  # it is stopped, too, or hears that the other was
    assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] >= 1
    assert not (out / ".lock").exists()


# --- the parts ---


def test_one_process_needs_no_messages() -> None:
    accelerator = make_accelerator("cpu", "float32")
    average([tensor := torch.ones(2)])
    assert torch.equal(tensor, torch.ones(2))
    assert gather({"a": 1}) == [{"a": 1}]
    assert by_main(accelerator, lambda: 5) == 5
    with pytest.raises(KeyError):
        by_main(accelerator, lambda: {}["missing"])  # type: ignore[var-annotated]


def messages() -> dict[str, Any]:
    accelerator = make_accelerator("cpu", "float32")
    rank = accelerator.process_index
    tensors = [torch.full((2, 3), float(rank)), torch.tensor(4.0 + rank), torch.zeros(0)]
    average(tensors)
    found: dict[str, Any] = {"average": tensors, "gather": gather(rank)}
    found["by_main"] = by_main(accelerator, lambda: f"rank {rank}")
    try:
        by_main(accelerator, lambda: json.loads("no JSON"))
    except ValueError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    with only_main_logs(accelerator):
        trainer.log.warning("within")
    trainer.log.warning("after")
    return found


def test_messages(tmp_path: Path) -> None:
    outcomes = Processes(tmp_path, messages, count=3).outcomes()
    results = [outcome.result for outcome in outcomes]
    for found in results:
        assert torch.equal(found["average"][0], torch.ones(2, 3)) and float(found["average"][1]) == 5.0
        assert found["gather"] == [0, 1, 2]
    assert [found["by_main"] for found in results] == ["rank 0", None, None]
    assert results[0]["error"].startswith("JSONDecodeError: ")
    assert results[1]["error"].startswith("FlairNasError: the main process has stopped: Expecting value")
    assert [outcome.log for outcome in outcomes] == [["within", "after"], ["after"], ["after"]]


@pytest.mark.usefixtures("bfloat16")
def test_precision_may_change_within_a_process() -> None:
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        with make_accelerator("cpu", precision).autocast():
            assert torch.ones(2, 2).mm(torch.ones(2, 2)).dtype == dtype
