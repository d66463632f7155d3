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
import gpu_cases
import gpu_tables
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
    assert len(checks) > 20 and all(line["ok"] for line in checks)
    assert all(line["worst"] < 1e-4 for line in checks if "float32" in line["case"])
    assert {case for line in checks for case in line["case"].split(", ")} >= {"ragged", "columns", "second order"}
    searches = [line for line in first if line["part"] == "search"]
    assert [line["case"] for line in searches] == ["i-darts-ptb", "darts-ptb"]
    assert all(len(line["history"]) == 1 and line["genotype"]["cell"] for line in searches)
    for line in searches:  # one epoch at toy size may learn nothing, which is 1
        assert line["rc"] == ("learned nothing" in line["genotype"]["origin"]["verdict"])
    assert {line["kernels"] for line in searches} == {"columns"}  # right, and faster than the equations
    again = called(tmp_path, "--parts", "correct", "supernet", "layers", "profile", minutes=0.5)
    assert {line["part"] for line in again} == {"layers", "profile"}
    layers = [line for line in again if line["part"] == "layers"]
    assert all({"plain", "columns", "products"} <= set(line["ms"]) for line in layers)
    assert all("lstm" in line["ms"] for line in layers if "bfloat16" not in line["case"])  # it wants AVX-512
    profiles = [line["profile"] for line in again if line["part"] == "profile"]
    assert len(profiles) == 2 and all(p["columns"]["launches"] > 0 and p["columns"]["kernels"] for p in profiles)
    command = [sys.executable, SCRIPT, "--table", "--out", str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "| ragged, ess-ptb, columns, float32 |" in said and said.count("| right |") == len(checks)
    assert "| m = 3, float32 |" in said and "| search, darts-ptb | columns |" in said
    assert "| training, 2x3x8, i-darts-ptb, tf32 |" in said and "| search, i-darts-ptb | 1 |" in said


def test_a_command_that_runs_out_of_time_goes_on_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"

    class Stopped(subprocess.Popen[bytes]):
        """Has no time any more as soon as an epoch has its checkpoint."""

        asked = False

        def communicate(self, input: Any = None, timeout: float | None = None) -> Any:
            if self.asked:
                return super().communicate(input, timeout)
            self.asked, before = True, epochs()
            while epochs() < before + 2 and self.poll() is None:  # the line comes before the checkpoint
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(self.args, timeout or 0)

    def epochs() -> int:
        history = out / "history.jsonl"
        return len(history.read_text().splitlines()) if history.exists() else 0

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    options = ["--preset", "i-darts-small", "--hidden-size", "8", "--epochs", "100000", "--text", "demo",
               "--min-steps", "0"]  # fmt: skip
    first, second = (gpu_cases.command(["search"], options, out, torch.device("cpu"), 100) for _ in range(2))
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
    for given.call in ("1", "1", "2"):
        on_gpu.measure(given)
    assert asked == ["fail", "work", "fail"]  # once a call; for "c" there is no time
    lines = [json.loads(line) for line in (tmp_path / on_gpu.FILE).read_text().splitlines()]
    assert [line["case"] for line in lines] == ["a", "b", "a"] and lines[0]["error"] == "RuntimeError: out of memory"
    assert not (tmp_path / on_gpu.BEGUN).exists()


def test_a_case_that_takes_its_process_with_it_or_hangs_does_not_take_the_others(tmp_path: Path) -> None:
    script = tmp_path / "some_cases.py"
    script.write_text(
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(Path(SCRIPT).parent)!r})\n"
        "import on_gpu\n"
        "from on_gpu import Case\n"
        "def fail(left):\n"
        "    raise RuntimeError('CUDA error: an illegal memory access')\n"
        "on_gpu.is_sticky = lambda error: True\n"
        "on_gpu.cases_of = lambda arguments: [\n"
        "    Case('layers', 'dies', 0, lambda left: os.abort()),\n"
        "    Case('layers', 'hangs', 0, lambda left: time.sleep(600), limit=1),\n"
        "    Case('layers', 'breaks CUDA', 0, fail),\n"
        "    Case('layers', 'works', 0, lambda left: {'pid': os.getpid()}),\n"
        "    Case('layers', 'works, too', 0, lambda left: {'pid': os.getpid()}),\n"
        "]\n"
        "sys.exit(on_gpu.main())\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, str(script), "--minutes", "1", "--out", str(out), "--device", "cpu"]
    subprocess.run(command, check=True, capture_output=True)
    first = on_gpu.lines_of(out)
    assert [line["case"] for line in first] == ["dies", "hangs", "breaks CUDA", "works", "works, too"]
    assert "status -6" in first[0]["error"] and "status -14" in first[1]["error"] and "illegal" in first[2]["error"]
    assert first[3]["pid"] == first[4]["pid"]  # a new process only where it must be


def test_commands_run_on_the_engine_that_is_right_and_fastest() -> None:
    def checked(engine: str, ok: bool = True, **more: Any) -> dict[str, Any]:
        return {"part": "correct", "case": engine, "engine": engine, "ok": ok} | more

    times = {"part": "layers", "ms": {"plain": 9.0, "columns": 3.0, "graphs": 1.0, "lstm": 0.5}}
    lines = [checked("plain"), checked("columns"), checked("graphs"), times]
    assert gpu_cases.fastest(lines, "layers") == "graphs" and gpu_cases.fastest(lines, "supernet") is None
    assert gpu_cases.fastest([*lines, checked("graphs", ok=False)], "layers") == "columns"
    crashed = {"part": "correct", "case": "graphs", "engine": "graphs", "error": "RuntimeError: illegal"}
    for other in (checked("graphs", no_graph=["no memory"]), crashed):
        assert gpu_cases.fastest([*lines, other], "layers") == "columns"
    assert gpu_cases.fastest([*lines[:-1], times | {"no_graph": ["no memory"]}], "layers") == "columns"


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ({"ms": {}}, True),
        ({"ok": True}, True),
        ({"ok": False}, False),
        ({"error": "RuntimeError: none"}, False),
        ({"ms": {}, "no_graph": ["no memory"]}, False),
        ({"rc": 0}, True),
        ({"rc": 130}, False),
    ],
)
def test_what_has_its_figures_is_done(line: dict[str, Any], done: bool) -> None:
    assert on_gpu.is_done(line) is done


def test_tables_of_what_went_wrong() -> None:
    stopped = {"part": "retrain", "case": "darts-v2", "rc": 130, "kernels": None, "seconds": 60.0}
    lines: list[dict[str, Any]] = [
        {"part": "correct", "case": "darts-v2, graphs", "worst": 0.5, "of": "input", "ok": False, "no_graph": ["why"]},
        {"part": "correct", "case": "darts-v2, triton", "error": "RuntimeError: none"},
        {
            "part": "layers",
            "case": "training",
            "ms": {"plain": 8.0, "graphs": 2.0, "lstm": 1.0},
            "mb": {"graphs": 1500.0},
        },
        stopped | {"history": [{"valid_perplexity": 500.0}]},
        stopped | {"history": [{"valid_perplexity": 500.0}, {"valid_perplexity": 400.25}]},
    ]
    said = gpu_tables.tables(lines)
    assert "| darts-v2, graphs | 5.0e-01 | input | **wrong** (no graph: ['why']) |" in said
    assert "| darts-v2, triton | - | - | RuntimeError: none |" in said
    assert "| training | 8 | 2 | 1 | 2.00 | 4.00 | graphs 1,500 |" in said
    assert "| retrain, darts-v2 | auto | 120 | stopped (130) | 2 | - |" in said
    assert "| retrain, darts-v2 | 2 | 400.25 |" in said


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    command = [sys.executable, SCRIPT, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no GPU here; --device cpu --toy" in done.stderr
