"""flair-nas search, as it is typed: what it prints, its exit codes, and how it stops and goes on."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from flair_nas import Genotype
from flair_nas.cli import main, search
from flair_nas.language_model.perplexity import evaluate_stream
from flair_nas.search import estimate
from flair_nas.search.config import SearchConfig
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.objectives import text as text_objective
from flair_nas.search.several_config import SeveralSearchConfig, settings_class
from flair_nas.search.strategies.gradient import GradientSettings, GradientStrategy
from flair_nas.settings.resolve import preset_names, read_mapping, resolve
from flair_nas.storage.resources import resource_path

ROOT = Path(__file__).parents[2]
CAPTURE = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def short_searches_suffice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets searches of a second count as ones that learned something; tests/search/test_health.py is about that."""
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("flair_nas.search.trainer.explain_failure", lambda *_: "")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    draw = random.Random(1)
    words = [f"w{number}" for number in range(20)]
    for part, lines in (("train", 60), ("valid", 20)):
        sentences = [" ".join(draw.choices(words, k=6)) for _ in range(lines)]
        (folder / f"{part}.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return str(folder)


def arguments(text: str, out: Path | None, /, **flags: object) -> list[str]:
    given: dict[str, object] = {"text": text, "nodes": 2, "hidden-size": 4, "batch-size": 4, "bptt": 5, "epochs": 2,
                                "learning-rate": 1.0, "device": "cpu"}  # fmt: skip
    if out is not None:
        given["out"] = out
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    return ["search", *(part for name, value in given.items() for part in (f"--{name}", str(value)))]


@pytest.mark.slow
def test_a_search_prints_the_genotype_where_it_is_and_the_next_command(
    text: str, tmp_path: Path, capsys: CAPTURE
) -> None:
    out = tmp_path / "run"
    assert main(arguments(text, out)) == 0
    shown = capsys.readouterr()
    genotype = Genotype.load(out / "genotype.json")
    first, *rest = shown.out.splitlines()
    assert first == genotype.one_line()
    assert f"genotype: {out / 'genotype.json'}; epochs: 2" in rest[0]
    assert any(
        "next: flair-nas tag train --preset few-sentences --corpus YOUR_CORPUS" in line
        and str(out / "genotype.json") in line
        for line in rest
    )
    assert re.search(
        r"epoch 2 of 2: train perplexity [\d.]+, valid perplexity [\d.]+, MAD intra 0\.\d+, .*left; ", shown.err
    )
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in history] == [1, 2]
    assert history[-1]["genotype"] == genotype.one_line()
    assert genotype.origin["method"].startswith("i-darts, first order, cell")
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert (written["hidden_size"], written["text"]) == (4, text)


@pytest.mark.slow
def test_the_next_command_has_the_same_text_and_sizes(text: str, tmp_path: Path, capsys: CAPTURE) -> None:
    single, run = f"{text}/train.txt", tmp_path / "run"
    flags = ["--valid-share", "0.2", "--vocabulary-size", "15", "--min-count", "2", "--lowercase"]
    assert main([*arguments(single, run, epochs=1), *flags]) == 0
    command = capsys.readouterr().out.splitlines()[-2].removeprefix("  or: flair-nas ")
    assert command.startswith(f"lm train --text {single} {' '.join(flags)} ")
    assert "--epochs" not in command and f" --rnn {run / 'genotype.json'} --out " in command
    assert main([*shlex.split(command)[:-1], str(tmp_path / "lm"), "--epochs=1"]) == 0
    kept = [yaml.safe_load((path / "config.yaml").read_text()) for path in (run, tmp_path / "lm")]
    for name in ("hidden_size", "batch_size", "bptt", "device"):
        assert kept[0][name] == kept[1][name]
    searched, trained = (torch.load(path / "checkpoint.pt", weights_only=True) for path in (run, tmp_path / "lm"))
    assert searched["text"] == trained["fixed"]["text"]


def test_quiet_prints_the_result_alone(text: str, tmp_path: Path, capsys: CAPTURE) -> None:
    assert main([*arguments(text, tmp_path / "run", epochs=1), "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", preset_names("search"))
def test_every_preset_is_a_search_and_small_ones_are_small(name: str) -> None:
    config_type = settings_class(
        read_mapping(resource_path("presets", "search", f"{name}.yaml")).get("objective", "text")
    )
    several = config_type is SeveralSearchConfig
    given: dict[str, Any] = {"tasks": ["{name: a}", "{name: b, objective: tagging}"]} if several else {}
    config = resolve(config_type, kind="search", preset=name, flags=given)
    if isinstance(config, SearchConfig):
        assert config.text is None
    if name.endswith("-small"):
        most = 52 if name == "predictor-tags-small" else 9  # an epoch of some thousand sentences takes seconds
        assert config.hidden_size == 64 and config.epochs <= most
    else:
        of_text = 200 if name == "enas-ptb" else 300
        assert config.hidden_size == (of_text if isinstance(config, SearchConfig) else 256)


def from_preset(name: str) -> tuple[SearchConfig, Any]:
    """The settings of a preset, and those of its strategy."""
    config = resolve(SearchConfig, kind="search", preset=name)
    return config, config.strategy


def test_the_presets_of_the_papers_have_their_settings() -> None:
    ess, own = from_preset("ess-wt103")
    assert (ess.nodes, ess.history, ess.batch_size, ess.bptt, ess.learn) == (12, 5, 128, 70, "joint")
    assert (own.arch_learning_rate, own.inter_learning_rate) == (1e-3, 1e-4)
    for name, relaxation, order in (
        ("darts-ptb", "darts", 1),
        ("darts-ptb-second", "darts", 2),
        ("i-darts-ptb", "i-darts", 1),
        ("i-darts-ptb-second", "i-darts", 2),
        ("ess-ptb", "darts", 1),
    ):
        config, own = from_preset(name)
        assert (own.relaxation, own.order, config.learning_rate, config.clip) == (relaxation, order, 20, 0.25)
        assert (config.init_range, config.embedding_init_range, config.vary_length) == (0.04, 0.04, False)
        assert not config.frequency_bias
        assert (own.phase_steps, config.epochs) == ((115, 111) if name == "ess-ptb" else (None, config.epochs))
    tags = resolve(TaggingSearchConfig, kind="search", preset="i-darts-conll03")
    assert (tags.corpus, tags.nodes, tags.batch_size, tags.hidden_size, tags.epochs) == ("conll_03", 8, 256, 256, 40)
    assert tags.reproject == 256  # H = D
    assert (tags.learning_rate, tags.strategy) == (
        0.1,
        GradientSettings(arch_learning_rate=3e-3, arch_weight_decay=1e-3),
    )


def test_an_estimate_measures_and_writes_nothing(text: str, tmp_path: Path, capsys: CAPTURE) -> None:
    assert main([*arguments(text, tmp_path / "run"), "--estimate"]) == 0
    shown = capsys.readouterr().out
    # a tied embedding of 22 types and its bias; W_x, W_h and two W_i of 4 x 8
    assert f"parameters: {22 * 4 + 22 + 4 * 32:,} model weights, 15 architecture weights" in shown
    assert re.search(r"a step: [\d.]+ s; the evaluation after an epoch: \d+ s\n", shown)
    assert re.search(r"an epoch of \d+ steps, with it: \d+ s\nall 2 epochs: \d+ s\n", shown)
    assert not (tmp_path / "run").exists()
    assert main([*arguments(text, None), "--estimate"]) == 0  # without a folder
    # later epochs of the bundled text have more segments than the first, whose two are all there is to measure
    assert (
        main(["search", "--text", "demo", "--nodes", "1", "--hidden-size", "4", "--device", "cpu", "--estimate"]) == 0
    )


def test_an_estimate_takes_a_few_steps_and_a_piece_of_the_valid_part(
    text: str, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, read = [], []
    step, score = GradientStrategy.step, evaluate_stream
    monkeypatch.setattr(GradientStrategy, "step", lambda *now: steps.append(now) or step(*now))
    monkeypatch.setattr(text_objective, "evaluate_stream", lambda *a, **k: read.append(len(a[1])) or score(*a, **k))
    assert main([*arguments(text, None, bptt=3), "--estimate"]) == 0
    assert len(steps) == 6 and read == [2 * 3 * 4 + 1]  # of 140 tokens
    monkeypatch.setattr(estimate, "ENOUGH", 0.0)
    assert main([*arguments(text, None, bptt=3), "--estimate"]) == 0
    assert len(steps) == 6 + 1  # where steps take long


def test_without_a_preset_a_search_says_how_long_it_takes_and_what_takes_minutes(
    text: str, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_estimate", lambda *given: 0)
    assert main(["search", "--text", text, "--estimate"]) == 0
    said = capsys.readouterr().err
    assert "about seven hours" in said and "presets on -small take minutes" in said
    for flags in (["--preset", "i-darts-small"], ["--epochs", "1"]):
        assert main(["search", "--text", text, *flags, "--estimate"]) == 0
        assert "seven hours" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"preset": "i-darts-pbt"}, ("i-darts-pbt", "i-darts-ptb")),
        ({"learn": "joint"}, ("history must be at least 1",)),
        ({"learn": "inter", "phase-steps": 5}, ("history", "fixed", "phase_steps")),
        ({"population": 5}, ("population belongs to strategy evolution, not gradient",)),
        (
            {"order": 2, "strategy": "random-shared", "batch-size": 5, "parts": 2},
            ("order belongs to strategy gradient", "cannot be divided"),
        ),
        ({"fixed": "nothing-known"}, ("fixed", "nothing-known")),
        ({"text": "no/such/folder"}, ("no/such/folder",)),
        ({"batch-size": 5000}, ("train", "5,000")),
        ({"nodes": 0}, ("nodes",)),
        ({"parts": 0}, ("parts must be",)),
        ({"hidden-size": 10**12}, ("hidden_size must be",)),
        (
            {"learn": "joint", "history": 3, "convergence": 0.1, "convergence-steps": 100},
            ("convergence_steps 100 must be less than the steps of a phase",),
        ),
        ({"device": "tpu"}, ("device", "tpu")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_named_and_leaves_nothing(
    text: str, tmp_path: Path, capsys: CAPTURE, flags: dict[str, object], words: tuple[str, ...]
) -> None:
    assert main(arguments(text, tmp_path / "run", **flags)) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("flair-nas: ") and len(shown.splitlines()) == 1
    assert all(word in shown for word in words), shown
    assert not list((tmp_path / "run").glob("*"))


def test_an_adaptive_softmax_is_one_flag(text: str, tmp_path: Path, capsys: CAPTURE) -> None:
    assert main([*arguments(text, tmp_path / "run", epochs=1), "--adaptive-cutoffs", "8"]) == 0
    model = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["model"]
    assert model["adaptive.head.weight"].shape == (9, 4)
    assert main([*arguments(text, tmp_path / "other"), "--adaptive-cutoffs", "5,10,15"]) == 2
    assert "adaptive_cutoffs need a hidden_size of at least 64" in capsys.readouterr().err


def test_no_folder_no_text_and_a_resume_of_nothing(text: str, tmp_path: Path, capsys: CAPTURE) -> None:
    assert main(arguments(text, None)) == 2
    assert "--out DIR is needed" in capsys.readouterr().err
    assert main(["search", "--out", str(tmp_path / "run"), "--device", "cpu"]) == 2
    assert "--text" in capsys.readouterr().err
    assert main(["search", "--resume", str(tmp_path)]) == 2
    assert "no run to go on with" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_search_says_how_to_go_on_and_does(text: str, tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "flair_nas", *arguments(text, out, epochs=2000)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert f"flair-nas search --resume {out}" in errors.splitlines()[-1]
    done = torch.load(out / "checkpoint.pt", weights_only=True)["epoch"]
    assert 1 <= done < 2000
    assert main(["search", "--resume", str(out), "--epochs", str(done + 1)]) == 0
    assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] == done + 1
