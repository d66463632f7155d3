"""``flair-nas distil``: what it prints and leaves, how it goes on from each stage, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_jobs import run_jobs_here
from small_tagging import press_ctrl_c, settings, write_corpus

from flair_nas.cli import main
from flair_nas.experiments import tagging_task
from flair_nas.tagging.distillation import targets
from flair_nas.tagging.training import train_taggers

pytestmark = pytest.mark.slow

LINES = ["Ada Byron saw London .", "In Oslo , Alan sang .", "Today Edsger left New York for good", "It rained"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def teacher(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    train_taggers(settings(corpus, epochs=12, batch_size=4, device="cpu"), out, progress=False)
    return out


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the trainings, which run in this process; files of targets hold two sentences."""
    monkeypatch.setattr(targets, "CHUNK", 2)
    return run_jobs_here(monkeypatch, tmp_path)


@pytest.fixture
def distil(corpus: str, teacher: Path, tmp_path: Path) -> Callable[..., int]:
    (tmp_path / "raw.txt").write_text("\n".join(LINES), encoding="utf-8")
    small = "--embeddings one-hot --hidden-size 8 --batch-size 8 --learning-rate 1 --epochs 2 --seeds 1"
    few = "--trials 2 --fresh-seeds 2 --budget 1h --device cpu"

    def run(out: str, *more: str) -> int:
        what = ["--corpus", corpus, "--teacher", str(teacher), "--text", str(tmp_path / "raw.txt")]
        return main(["distil", *what, "--out", str(tmp_path / out), *small.split(), *few.split(), *more])

    return run


def ledger_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "ledger.json").read_text())["runs"]
    return found


def test_it_says_what_the_teacher_gives_and_judges_the_student(
    distil: Callable[..., int], jobs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distil("run") == 0
    said = capsys.readouterr()
    assert "has the labels of the corpus, and gives probabilities" in said.err
    assert re.search(r"raw.txt: teachers have labelled 4 sentences, and found labels in [1-4]\n", said.err)
    assert "taught" in said.out and f"report: flair-nas report {tmp_path / 'run'}" in said.out
    assert main(["tag", "predict", "-q", "--model", str(tmp_path / "run"), "Ada"]) == 0
    before = [*jobs]
    (tmp_path / "raw.txt").unlink()  # what is labelled is not labelled again
    assert main(["distil", "-q", "--resume", str(tmp_path / "run")]) == 0
    assert jobs == before


def test_it_goes_on_after_ctrl_c_at_each_stage_and_in_another_folder(
    distil: Callable[..., int], jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, train, out = targets._write, tagging_task.train, tmp_path / "stopped"

    def stop_at_second(file: Path, *rest: Any) -> None:
        if file.name == "00001.npz":
            press_ctrl_c()
        write(file, *rest)

    monkeypatch.setattr(targets, "_write", stop_at_second)
    assert distil("stopped") == 130
    assert [file.name for file in (out / "taught").iterdir()] == ["00000.npz"]
    monkeypatch.setattr(targets, "_write", write)

    def stop_at_third(*arguments: Any) -> Any:
        return press_ctrl_c() if len(jobs) == 3 else train(*arguments)

    monkeypatch.setattr(tagging_task, "train", stop_at_third)
    assert main(["distil", "-q", "--resume", str(out)]) == 130
    monkeypatch.setattr(tagging_task, "train", train)
    moved = tmp_path / "elsewhere" / "run"
    shutil.move(out, moved)
    assert main(["distil", "-q", "--resume", str(moved)]) == 0
    assert distil("whole") == 0
    whole, own = ledger_of(tmp_path / "whole"), ledger_of(moved)
    assert {*whole} == {*own}
    assert all(own[name].get(key) == run.get(key) for name, run in whole.items() for key in ("dev", "counts"))


def test_the_crf_may_vary_beside_the_weight(distil: Callable[..., int], tmp_path: Path) -> None:
    assert distil("run", "-q", "--vary", "taught", "crf", "--trials", "4", "--fresh-seeds", "1") == 0
    report = (tmp_path / "run" / "report.md").read_text()
    assert "crf False" in report and "taught weight 3; crf True" in report


def test_a_teacher_with_other_labels_is_told(
    distil: Callable[..., int], corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = settings(corpus, columns="text=0,pos=1", device="cpu", epochs=1)
    train_taggers(other, tmp_path / "pos", progress=False)
    assert distil("run", "--teacher", str(tmp_path / "pos")) == 2
    said = capsys.readouterr().err
    assert "has other tags, and gives its best ones: none of the corpus" in said
    assert "the teachers find nothing in" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--text", "none.txt"], "text none.txt: there is no such file or folder"),
        (["--teacher", "none"], "none: there is no such model; give the folder of a training run"),
        (["--taught", "x"], "--taught is what distil makes of --text; leave it out"),
        (["--budget", "0.001s"], "there was no time to label a thousand sentences; raise --budget"),
    ],
)
def test_bad_settings_are_refused(
    more: list[str], message: str, distil: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distil("run", *more) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "run").exists() == (more[0] == "--budget")  # a higher one goes on there
