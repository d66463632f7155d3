"""`benchmarks/on_gpu.py` at toy size on the CPU: all of it runs, nothing is done twice, what fails stops nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import on_gpu

SCRIPT = str(Path(on_gpu.__file__))


def called(out: Path, *more: str, minutes: float = 3) -> list[dict[str, Any]]:
    """The lines that a call adds."""
    before = len(on_gpu.lines_of(out))
    command = [sys.executable, SCRIPT, "--minutes", str(minutes), "--out", str(out), "--device", "cpu", "--toy", *more]
    subprocess.run(command, check=True, capture_output=True)
    return on_gpu.lines_of(out)[before:]


def test_it_measures_each_case_once_and_says_what_it_found(tmp_path: Path) -> None:
    first = called(tmp_path, "--parts", "machine", "correct", "supernet", "search")
    assert not [line for line in first if "error" in line] and {line["device"] for line in first} == {"cpu"}
    checks = [line for line in first if line["part"] == "correct"]
    assert len(checks) > 20 and all(line["ok"] and line["worst"] < 1e-4 for line in checks)
    assert {case for line in checks for case in line["case"].split(", ")} >= {"ragged", "columns", "second order"}
    searches = [line for line in first if line["part"] == "search"]
    assert [line["case"] for line in searches] == ["i-darts-ptb", "darts-ptb"]
    assert all(line["rc"] == 0 and len(line["history"]) == 1 and line["genotype"]["cell"] for line in searches)
    again = called(tmp_path, "--parts", "correct", "supernet", "layers", minutes=0.5)
    assert {line["part"] for line in again} == {"layers"}
    assert all({"plain", "columns", "lstm", "products"} == set(line["ms"]) for line in again)
    command = [sys.executable, SCRIPT, "--table", "--out", str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "| ragged, ess-ptb, columns |" in said and said.count("| right |") == len(checks)
    assert "| m = 3, float32 |" in said and "| search, darts-ptb |" in said


def test_a_command_that_runs_out_of_time_goes_on_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"

    class Stopped(subprocess.Popen[bytes]):
        """Has no time any more as soon as an epoch has its checkpoint."""

        asked = False

        def wait(self, timeout: float | None = None) -> int:
            if self.asked:
                return super().wait(timeout)
            self.asked, before = True, epochs()
            while epochs() < before + 2 and self.poll() is None:  # the line comes before the checkpoint
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(self.args, timeout or 0)

    def epochs() -> int:
        history = out / "history.jsonl"
        return len(history.read_text().splitlines()) if history.exists() else 0

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    options = ["--preset", "i-darts-small", "--hidden-size", "8", "--epochs", "100000", "--text", "demo"]
    first, second = (on_gpu.command(["search"], options, out, torch.device("cpu"), 100) for _ in range(2))
    for found in (first, second):
        assert found["rc"] == 130 and not on_gpu.is_done(found)
    losses = [[line["valid_loss"] for line in found["history"]] for found in (first, second)]
    assert losses[1][: len(losses[0])] == losses[0] and len(losses[1]) > len(losses[0]) > 0


def test_a_case_that_fails_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fail(left: float) -> dict[str, Any]:
        asked.append("fail")
        raise RuntimeError("out of memory")

    def work(left: float) -> dict[str, Any]:
        asked.append("work")
        return {"ms": {"plain": 1.0}}

    cases = [
        on_gpu.Case("layers", "a", 0, fail),
        on_gpu.Case("layers", "b", 0, work),
        on_gpu.Case("layers", "c", 99, work),
    ]
    monkeypatch.setattr(on_gpu, "cases_of", lambda _: cases)
    given = on_gpu.argparse.Namespace(minutes=1, out=tmp_path, work=None, parts=None, name="cpu")
    for _ in range(2):
        on_gpu.measure(given)
    assert asked == ["fail", "work", "fail"]  # for "c" there is no time
    lines = [json.loads(line) for line in (tmp_path / on_gpu.FILE).read_text().splitlines()]
    assert [line["case"] for line in lines] == ["a", "b", "a"] and lines[0]["error"] == "RuntimeError: out of memory"


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    command = [sys.executable, SCRIPT, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no GPU here; --device cpu --toy" in done.stderr
