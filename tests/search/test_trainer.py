"""The search trainer: what a run leaves behind, exact resume after any stop, and how it refuses and ends."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import killing
import pytest
import torch
import yaml
from small_search import (
    JOINT,
    KINDS,
    SMALL,
    Stop,
    assert_same_runs,
    contents,
    differences,
    interrupt,
    no_picture,
    patched,
    small,
    write_text,
)

from flair_nas.drawing import charts
from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype
from flair_nas.library.named import load_genotype
from flair_nas.runs.metric import Evaluation, to_perplexity
from flair_nas.runs.run import RunStopped
from flair_nas.search import health, trainer
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives.text import TextObjective, build, read
from flair_nas.search.protocols import Batch
from flair_nas.search.registry import strategy_class
from flair_nas.search.several_config import settings_class
from flair_nas.search.trainer import SearchResult, search_genotype
from flair_nas.settings.fields import flatten, make_settings
from flair_nas.settings.resolve import preset_names, read_mapping, resolve
from flair_nas.storage.resources import resource_path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=26, valid_lines=8)


def run(text: Path | None, out: Path, **settings: Any) -> SearchResult:
    return search_genotype(small(text, **settings), out, progress=False)


@pytest.fixture(scope="module")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A joint search of three epochs that nobody stopped."""
    return run(text, tmp_path_factory.mktemp("finished") / "run", **THREE).out


@pytest.fixture(autouse=True)
def no_pictures(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "draw_progress", no_picture)


THREE: dict[str, Any] = {"epochs": 3, "bptt": 6, **KINDS["joint"]}


# --- what a run leaves behind ---


@pytest.mark.slow
def test_a_run_folder(finished: Path, text: Path) -> None:
    assert {path.name for path in finished.iterdir()} >= {
        "config.yaml",
        "history.jsonl",
        "genotype.json",
        "checkpoint.pt",
        "checkpoint-previous.pt",
        "progress.svg",
    }
    assert not [path for path in finished.iterdir() if path.name.startswith(".")]
    assert resolve(SearchConfig, file=finished / "config.yaml") == small(text, **THREE)
    history = [json.loads(line) for line in (finished / "history.jsonl").open()]
    assert [line["epoch"] for line in history] == [1, 2, 3]
    for line in history:
        assert line["dev_perplexity"] == pytest.approx(math.exp(line["dev_loss"]))
        assert 2 < line["dev_loss"] < 4 and 2 < line["train_loss"] < 4
        assert set(line["mad"]) == {"intra", "inter"} and line["phase"] in line["mad"]
        rows = {name: len(table) for name, table in line["mixing"].items()}
        gates = {"state_gate_entries": 2, "state_gate": 1, "input_gate_entries": 2, "input_gate": 1}
        assert rows == {"cell": 3, **gates}  # 2 nodes, history 2
        sums = [sum(row) for name, table in line["mixing"].items() for row in table if name != "cell"]
        nodes = [sum(map(sum, group)) for group in (line["mixing"]["cell"][:1], line["mixing"]["cell"][1:])]
        assert sums + nodes == pytest.approx([1.0] * 8, abs=1e-3)
        assert line["seconds"] > 0 and line["cpu_seconds"] > 0 and line["evaluation_seconds"] > 0
        assert Genotype.parse(line["genotype"]).state_gate is not None
        assert line["steps"] >= 4
    assert history[2]["mad"] != history[1]["mad"] != history[0]["mad"]
    genotype = load_genotype(finished / "genotype.json")
    assert genotype == Genotype.parse(history[2]["genotype"])
    assert genotype.origin["method"] == "i-darts, first order, cell and gates, n = 1, seed 1"
    assert genotype.origin["figures"]["epochs"] == 3
    assert genotype.origin["figures"]["supernet_dev_perplexity"] == history[2]["dev_perplexity"]
    assert genotype.origin["corpus"] == "text, 156 training tokens"
    newest, previous = (torch.load(finished / f"checkpoint{name}.pt", weights_only=True) for name in ("", "-previous"))
    assert (newest["finished"], previous["finished"]) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "first"])
def test_every_kind_of_search_ends_with_its_genotype(kind: str, text: Path, tmp_path: Path) -> None:
    result = run(text, tmp_path / "run", **{"epochs": 1, **KINDS[kind]})
    assert load_genotype(tmp_path / "run" / "genotype.json") == result.genotype
    assert len(result.history) == 1 and math.isfinite(result.history[0]["dev_loss"])
    before = contents(tmp_path / "run")
    again = run(text, tmp_path / "run", **{"epochs": 1, **KINDS[kind]})
    assert again.genotype == result.genotype and again.history == result.history
    assert not list(differences(before, contents(tmp_path / "run")))


def test_a_carry_that_nothing_heeds_is_said_with_what_to_do(
    text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(text, tmp_path / "run", strategy="random-shared", epochs=1, carry="gated")
    assert "carry=gated is of gates that are searched, and none are" in caplog.text
    assert "--fixed NAME,carry=gated" in caplog.text


def test_a_search_is_shown_while_it_runs(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**THREE, "epochs": 2}
    search_genotype(small(text, **settings), tmp_path / "shown", progress=True)
    shown = capsys.readouterr().err
    losses = r"train perplexity \d+\.\d, valid perplexity \d+\.\d"
    assert re.search(rf"epoch 1 of 2: {losses}, MAD intra 0\.\d+, MAD inter 0\.\d+, \d+ s, ", shown)
    caplog.set_level(logging.INFO, "flair_nas")
    run(text, tmp_path / "quiet", **settings)
    assert capsys.readouterr() == ("", "")
    derived, *epochs = [message for message in caplog.messages if "<unk>" not in message]
    assert re.search(
        r"the softmax starts at the frequencies of 30 types \(perplexity \d+\.\d on the valid part\)", derived
    )
    assert [message.split(":")[0] for message in epochs] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert_same_runs(tmp_path / "shown", tmp_path / "quiet")


def test_a_seed_gives_the_same_search(finished: Path, text: Path, tmp_path: Path) -> None:
    torch.manual_seed(77)  # what was drawn before does not matter
    run(text, tmp_path / "same", **THREE)
    assert_same_runs(finished, tmp_path / "same")
    run(text, tmp_path / "other", **{**THREE, "seed": 2})
    found = list(differences(contents(finished), contents(tmp_path / "other")))
    assert any("layer.weight_nodes" in line for line in found) and any("history.jsonl" in line for line in found)


def test_a_comparison_sees_one_bit(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    assert_same_runs(finished, tmp_path / "copy")
    state = torch.load(finished / "checkpoint.pt", weights_only=True)
    weight = state["model"]["layer.weight_hidden"]
    weight.view(torch.int32)[1, 2] += 1
    torch.save(state, tmp_path / "copy" / "checkpoint.pt")
    (found,) = differences(contents(finished), contents(tmp_path / "copy"))
    assert re.fullmatch(r"/checkpoint\.pt/model/layer\.weight_hidden: 1 of 72 numbers differ, by \S+ at most", found)


# --- exact resume ---


@pytest.mark.slow
def test_killed_at_random_moments(text: Path, tmp_path: Path) -> None:
    """As `benchmarks/robustness/kill_and_resume.py` does it for all kinds of searches."""
    context = killing.processes()
    settings = {**SMALL, **THREE, "epochs": 6, "text": str(text)}
    times = killing.run_whole(context, settings, tmp_path / "whole")
    moments = killing.draw_moments(settings["epochs"], kills=10, seed=5)
    killed = killing.run_killed(context, settings, tmp_path / "stopped", times, moments)
    assert len(killed.epochs) == 10
    assert len(set(killed.epochs)) > 3
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_ctrl_c(finished: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Stop(2, 3, interrupt), pytest.raises(RunStopped, match=f"go on with: flair-nas search --resume {out}"):
        run(text, out, **THREE)
    run(text, out, **THREE)
    assert_same_runs(finished, out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["random-shared", "halving", "hurdles with gates", "local-search", "enas", "decided", "second"]
)
def test_other_searches_go_on_where_they_stopped(kind: str, text: Path, tmp_path: Path) -> None:
    settings = {**KINDS[kind], "bptt": 6}
    run(text, tmp_path / "whole", **settings)
    owner = strategy_class(settings.get("strategy", "gradient"))
    with Stop(2, 1, interrupt, owner), pytest.raises(RunStopped):
        run(text, tmp_path / "run", **settings)
    finish = owner.finish  # type: ignore[attr-defined]

    def interrupted(self: Any, progress: bool) -> None:
        finish(self, progress)
        raise KeyboardInterrupt

    with patched(owner, "finish", interrupted), pytest.raises(RunStopped):
        run(text, tmp_path / "run", **settings)
    run(text, tmp_path / "run", **settings)
    assert_same_runs(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["gradient", "random-shared", "local-search", "enas"])
def test_a_search_is_extended(strategy: str, text: Path, tmp_path: Path) -> None:
    kind = {**KINDS["joint" if strategy == "gradient" else strategy], "bptt": 6}
    run(text, tmp_path / "long", **{**kind, "epochs": 3})
    run(text, tmp_path / "run", **{**kind, "epochs": 2})
    run(text, tmp_path / "run", **{**kind, "epochs": 3})
    found = list(differences(contents(tmp_path / "long"), contents(tmp_path / "run")))
    if strategy != "gradient":  # the history of the epoch that was added knows of candidates
        names = ("/candidates", "/best_loss", "/genotype", "/strategy/scores")
        found = [line for line in found if not line.split(":")[0].endswith(names)]
    assert not found
    assert load_genotype(tmp_path / "run" / "genotype.json") == load_genotype(tmp_path / "long" / "genotype.json")


def test_a_finished_search_is_left_alone(
    finished: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    with Stop(4, 0, interrupt):
        result = run(text, out, **THREE)
    assert f"{out} is finished, so nothing was searched; --epochs extends it" in caplog.messages
    assert result.genotype == load_genotype(finished / "genotype.json")
    assert_same_runs(finished, out)
    written = (out / "config.yaml").read_bytes()
    run(text, out, **{**THREE, "epochs": 2})
    assert (out / "config.yaml").read_bytes() == written  # with as many epochs as it has


def test_a_finished_search_keeps_the_day_of_its_genotype(finished: Path, text: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    file = out / "genotype.json"
    found = load_genotype(file)
    dataclasses.replace(found, origin={**found.origin, "date": "2020-02-20"}).save(file)
    assert run(text, out, **THREE).genotype.origin["date"] == "2020-02-20"
    assert load_genotype(file).origin["date"] == "2020-02-20"
    file.unlink()  # one that is missing is made anew
    assert run(text, out, **THREE).genotype == found == load_genotype(file)


# --- the end ---


CONVERGES: dict[str, Any] = {"epochs": 9, "bptt": 6, "convergence": 1.0, "convergence_steps": 3}


@pytest.mark.parametrize("joint", [False, True])
def test_a_search_ends_when_it_has_settled(
    joint: bool, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "is_drifting", lambda *_: False)  # of so few steps it cannot be told
    caplog.set_level(logging.INFO, "flair_nas")
    settings = {**CONVERGES, **({**JOINT, "phase_steps": 6} if joint else {})}
    result = run(text, tmp_path / "run", **settings)
    steps = [line["steps"] for line in result.history]
    # at the end of the epoch in which the window, or the second of two phases, was full for the first time
    assert 1 <= len(steps) < 9 and sum(steps) >= (8 if joint else 4)
    if not joint:
        assert sum(steps[:-1]) < 4
    assert "nothing is left to learn after epoch" in caplog.messages[-1]
    # a run that was stopped between its last checkpoint and its end trains no epoch more
    out = tmp_path / "stopped"
    shutil.copytree(tmp_path / "run", out)
    shutil.copy(out / "checkpoint-previous.pt", out / "checkpoint.pt")
    assert not torch.load(out / "checkpoint.pt", weights_only=True)["finished"]
    run(text, out, **settings)
    for path in (tmp_path / "run", out):
        (path / "checkpoint-previous.pt").unlink()
        shutil.copy(path / "checkpoint.pt", path / "checkpoint-previous.pt")
    assert_same_runs(tmp_path / "run", out)
    caplog.clear()
    run(text, out, **settings)
    assert caplog.messages[-1] == f"{out} is finished, so nothing was searched"
    assert_same_runs(tmp_path / "run", out)


# --- not finite ---


def poison(strategy: Any) -> None:
    with torch.no_grad():
        strategy.objective.model.decoder.bias[0] = math.nan


def test_a_poisoned_weight(finished: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Stop(3, 2, poison), pytest.raises(NotFiniteError) as error:
        run(text, out, **THREE)
    assert re.match(
        r"not finite in epoch 3, step 3: validation loss nan; the largest gradient is that of \S+, its norm is "
        rf"nan.* The checkpoint of epoch 2 is kept: {re.escape(str(out / 'checkpoint.pt'))}$",
        str(error.value),
    )
    assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] == 2
    run(text, out, **THREE)
    assert_same_runs(finished, out)


def test_there_is_no_checkpoint_yet(text: Path, tmp_path: Path) -> None:
    with Stop(1, 1, poison), pytest.raises(NotFiniteError, match=r"epoch 1, step 2: .* There is no checkpoint yet\.$"):
        run(text, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.yaml"]


@contextlib.contextmanager
def evaluating(call: int, spoil: Callable[[TextObjective], float]) -> Iterator[None]:
    """At that call of the evaluation something else is done."""
    evaluate, calls = TextObjective.evaluate, [0]

    def spoiled(self: TextObjective) -> Evaluation:
        calls[0] += 1
        if calls[0] != call:
            return evaluate(self)
        loss = spoil(self)
        return Evaluation(loss, to_perplexity(loss))

    with patched(TextObjective, "evaluate", spoiled):
        yield


def test_spoiled_weights_are_not_saved(finished: Path, text: Path, tmp_path: Path) -> None:
    """The last step of an epoch can be the one that spoils them."""
    out = tmp_path / "run"

    def spoil(objective: TextObjective) -> float:
        with torch.no_grad():
            objective.supernet.weight_hidden[0, 0] = math.inf
        return math.nan

    with evaluating(3, spoil), pytest.raises(NotFiniteError) as error:
        run(text, out, **THREE)
    assert re.match(
        r"not finite after epoch 3: layer\.weight_hidden; the largest gradient of the epoch had the norm \S+\."
        rf" A lower .* The checkpoint of epoch 2 is kept: {re.escape(str(out / 'checkpoint.pt'))}$",
        str(error.value),
    )
    run(text, out, **THREE)
    assert_same_runs(finished, out)


def test_an_evaluation_that_is_not_finite_stops_a_search_by_gradient(text: Path, tmp_path: Path) -> None:
    not_finite = pytest.raises(NotFiniteError, match="the valid loss is inf")
    with evaluating(2, lambda objective: math.inf), not_finite as caught:
        run(text, tmp_path / "run", **THREE)
    assert f"The checkpoint of epoch 1 is kept: {tmp_path / 'run' / 'checkpoint.pt'}" in str(caught.value)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["epoch"] == 1


def test_one_random_cell_whose_evaluation_is_not_finite_ends_nothing(
    text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with evaluating(2, lambda objective: math.inf):
        result = run(text, tmp_path / "run", strategy="random-shared", samples=3, epochs=3)
    assert "the valid loss after epoch 2 is inf; the search goes on" in caplog.messages
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (result.out / "history.jsonl").open()]
    assert [line["dev_loss"] is None for line in lines] == [False, True, False]


# --- disks ---


@pytest.mark.slow
@pytest.mark.parametrize("where", ["fsync", "save"])
def test_a_full_disk(where: str, finished: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    save = trainer._Search._save

    def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def saving(self: Any, finished: bool) -> None:
        owner: Any = os if where == "fsync" else torch
        with patched(owner, where, fails if self.epoch == 2 else getattr(owner, where)):
            save(self, finished)

    full = pytest.raises(OSError, match="no room to write")
    with patched(trainer._Search, "_save", saving), full as error:
        run(text, out, **THREE)
    assert error.value.errno == errno.ENOSPC and "is kept" in str(error.value)
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] == 1
    run(text, out, **THREE)
    assert_same_runs(finished, out)


# --- what does not fit ---


@pytest.mark.parametrize(
    "settings", [{"schedule": "cosine"}, {"strategy": "random-independent"}], ids=lambda value: str(value)
)
def test_epochs_that_cannot_be_added(settings: dict[str, Any], text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "run", epochs=1, **settings)
    with pytest.raises(FlairNasError, match="epochs was 1 and is now 2"):
        run(text, tmp_path / "run", epochs=2, **settings)


def test_another_text(tmp_path: Path) -> None:
    text, out = write_text(tmp_path / "text", 30, 10), tmp_path / "run"
    run(text, out, epochs=1)
    with (text / "train.txt").open("a") as stream:
        stream.write("one more line\n")
    with pytest.raises(FlairNasError, match=r"checkpoint\.pt: the data have changed since this search began"):
        run(text, out, epochs=2)


def test_another_fixed_genotype(text: Path, tmp_path: Path) -> None:
    fixed, out = tmp_path / "fixed.json", tmp_path / "run"
    Genotype.parse("relu0-tanh1").save(fixed)
    settings = {"learn": "inter", "history": 2, "fixed": str(fixed)}
    run(text, out, epochs=1, **settings)
    refused = r"the genotype .*fixed\.json, which stays fixed, was relu0-tanh1 when"
    Genotype.parse("relu0-tanh0").save(fixed)
    with pytest.raises(FlairNasError, match=refused):
        run(text, out, epochs=2, **settings)
    dataclasses.replace(Genotype.parse("relu0-tanh1"), highway=False).save(fixed)
    with pytest.raises(FlairNasError, match=refused):
        run(text, out, epochs=2, **settings)


@pytest.mark.parametrize("change", [Path.unlink, Genotype.parse("tanh0-relu1").save], ids=["removed", "written anew"])
def test_a_fixed_genotype_whose_file_changes_during_a_search(
    change: Callable[[Path], Any], text: Path, tmp_path: Path
) -> None:
    fixed, out = tmp_path / "fixed.json", tmp_path / "run"
    Genotype.parse("relu0-tanh1").save(fixed)
    config = small(text, learn="inter", history=2, fixed=str(fixed))
    change(fixed)  # another search may have written it, and goes on
    found = search_genotype(config, out, progress=False).genotype
    assert found.nodes == Genotype.parse("relu0-tanh1").nodes
    Genotype.parse("relu0-tanh1").save(fixed)
    run(text, out, learn="inter", history=2, fixed=str(fixed), epochs=3)  # the checkpoint says what it began with


@pytest.mark.parametrize("kind", ["lm-gated", "tagger/seed-1", "another search"])
def test_a_checkpoint_of_another_run(kind: str, finished: Path, text: Path, tmp_path: Path) -> None:
    out = run(text, tmp_path / "run", epochs=1).out
    other = finished if kind == "another search" else Path(__file__).parents[1] / "saved" / kind
    shutil.copy(other / "checkpoint.pt", out)
    with pytest.raises(
        FlairNasError, match=r"run/checkpoint\.pt: .* may be of another run .*To start over, delete .*run"
    ):
        run(text, out, epochs=2)


def test_another_number_of_processes(finished: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    state["random"] *= 2
    torch.save(state, out / "checkpoint.pt")
    with pytest.raises(FlairNasError, match="this search began with 2 processes and has 1 now, so it would differ"):
        run(text, out, **THREE)


def test_settings_that_contradict_each_other() -> None:
    settings: dict[str, Any] = {"learn": "inter", "fixed": "relu0-tanh", "phase_steps": 5, "batch_size": 10, "parts": 3}
    with pytest.raises(FlairNasError) as error:
        make_settings(SearchConfig, {"strategy": "random-shared", "order": 2, **settings})
    for part in (
        "learn inter needs gates to search: history must be at least 1",
        "phase_steps belongs to strategy gradient, not random-shared",
        "order belongs to strategy gradient, not random-shared",
        "the strategy draws whole cells: learn must be intra or joint",
        "the strategy draws whole cells: fixed must be left out",
        "batch_size 10 cannot be divided into 3 parts",
        "fixed: ",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learn": "inter", "history": 2}, "learn inter needs the cell that stays as it is: fixed must name"),
        ({"learn": "joint"}, "learn joint needs gates to search: history must be at least 1"),
        ({"learn": "joint", "history": 2, "fixed": "darts-v1"}, "learn joint searches cell and gates: fixed must be"),
        ({"learn": "joint", "history": 2, "phase_steps": 9, "convergence": 0.1, "convergence_steps": 9},
         "convergence_steps 9 must be less than phase_steps 9: a phase would always end first"),
        ({"history": 2}, "learn intra does not learn gates: history must be 0"),
        ({"fixed": "darts-v1"}, "fixed darts-v1 has no gates, and learn intra searches its cell anew"),
        ({"epochs": 0}, "epochs must be a whole number from 1"),
        ({"batch_size": 4, "parts": 4}, "batch_size 4 leaves less than 2 sequences in a part, with 4 parts: "),
        ({"fixed": "dart-v1", "learn": "inter", "history": 1}, "fixed: .*Did you mean darts-v1"),
        ({"relaxation": "dart", "order": 3}, "relaxation must be one of darts, i-darts, got 'dart'; order must be"),
        ({"order": 3, "nodes": 0}, "nodes must be .*; order must be a whole number from 1 to 2, got 3"),
        ({"dropout": 1.0, "seed": -1}, "seed must be .*; dropout must be .*, got 1.0"),
        ({"strategy": "evolutoin"}, "strategy must be one of gradient, .*, got 'evolutoin'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FlairNasError, match=f"settings that cannot be used: {message}"):
        make_settings(SearchConfig, settings)


def test_presets(text: Path) -> None:
    names = preset_names("search")
    assert {"darts-ptb", "i-darts-ptb", "ess-ptb", "ess-wt103"} <= set(names)
    for name in set(names) - {"several-small"}:  # whose tasks are the user's
        config_type = settings_class(
            read_mapping(resource_path("presets", "search", f"{name}.yaml")).get("objective", "text")
        )
        config = resolve(config_type, kind="search", preset=name)
        assert yaml.safe_load(yaml.safe_dump(flatten(config))) == flatten(config)
    said = r"unknown preset 'darts-pt'; did you mean darts-ptb or i-darts-ptb\? there are cas-small, darts-ptb"
    with pytest.raises(FlairNasError, match=said):
        resolve(SearchConfig, kind="search", preset="darts-pt")
    config = resolve(SearchConfig, kind="search", preset="i-darts-ptb", flags={"nodes": 3})
    assert (config.nodes, config.hidden_size, config.batch_size, config.bptt, config.epochs) == (3, 300, 256, 35, 40)


# --- texts that move, objectives of one's own ---


def test_a_text_may_move(finished: Path, text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "run", **{**THREE, "epochs": 1})
    moved = tmp_path / "elsewhere" / text.name
    shutil.copytree(text, moved)
    run(moved, tmp_path / "run", **THREE)
    found = list(differences(contents(finished), contents(tmp_path / "run")))
    assert [line.partition(":")[0] for line in found] == ["/config.yaml"] and str(moved) in found[0]


def test_an_objective_whose_batches_are_its_own(text: Path, tmp_path: Path) -> None:
    """A part of a batch is whatever the objective makes of it: here a tuple."""

    class Wrapped(TextObjective):
        def training_batch(self, epoch: int, step: int) -> Batch:
            return Batch([(part,) for part in super().training_batch(epoch, step).parts])

        def training_loss(self, part: Any, keep_state: bool = False) -> torch.Tensor:
            return super().training_loss(part[0], keep_state)

    def make(accelerator: Any) -> TextObjective:
        objective = build(config, read(config), accelerator)
        objective.__class__ = Wrapped
        return objective

    config = small(text, vary_length=False)
    search_genotype(config, tmp_path / "own", objective=make, progress=False)
    run(text, tmp_path / "run", vary_length=False)
    assert_same_runs(tmp_path / "run", tmp_path / "own")


def test_gates_are_searched_in_parts_of_one_sequence(text: Path, tmp_path: Path) -> None:
    """Around a fixed cell there is no batch normalisation, which needs two."""
    assert run(text, tmp_path / "run", **KINDS["inter"], parts=4, epochs=1).genotype.state_gate is not None


@pytest.mark.slow
def test_a_genotype_whose_origin_is_damaged_is_written_again(text: Path, tmp_path: Path) -> None:
    config = small(text, epochs=1)
    search_genotype(config, tmp_path / "run", progress=False)
    path = tmp_path / "run" / "genotype.json"
    whole = path.read_text()
    path.write_text(whole.replace('"figures"', '"figurez"'))
    result = search_genotype(config, tmp_path / "run", progress=False)
    assert result.genotype.origin["figures"]["epochs"] == 1 and path.read_text() == whole
