"""`benchmarks/speed/on_gpu.py` at toy size on the CPU."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.speed import on_gpu

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "auto")  # the benchmark sets it


def test_a_case_is_checked_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_gpu, "COMPILED", {})  # compiling takes a minute
    found = on_gpu.measure("elementwise, training, 2x3x8, float32, eager", CPU, 0.1)
    assert found["right"] == {"fast": True, "columns": True, "lstm": True} and max(found["errors"].values()) < 1e-5
    assert min(found["ms"].values()) > 0 and "failed" not in found
    monkeypatch.setattr(on_gpu, "run", lambda *_, **__: 1 / 0)
    assert set(on_gpu.measure("supernet, training, 2x3x8, float32, eager", CPU, 0.1)["failed"]) == {"fast"}


def test_what_has_its_line_is_not_done_again_and_what_failed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(command: list[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[command.index("--case") + 1])
        if asked.count(asked[-1]) == 1 and len(asked) < 3:
            raise subprocess.TimeoutExpired(command, timeout) if len(asked) == 1 else OSError
        return subprocess.CompletedProcess(command, 0, '{"ms": {"fast": 1.5}}', "")

    monkeypatch.setattr(on_gpu.subprocess, "run", run)
    monkeypatch.setattr(on_gpu, "machine", lambda device: {})
    monkeypatch.setattr(on_gpu, "cases_of", lambda toy: ["a", "b"])
    arguments = argparse.Namespace(out=tmp_path / "out.jsonl", minutes=8, toy=True, device=CPU)
    with pytest.raises(OSError):
        on_gpu.measure_all(arguments)
    on_gpu.measure_all(arguments)
    on_gpu.measure_all(arguments)
    assert asked == ["a", "b", "a", "b"]
    lines = on_gpu.lines_in(arguments.out)
    assert "took longer than 240 s" in lines[0]["error"]
    assert on_gpu.table(lines).splitlines()[2:] == [f"| {case} | 1.5 |{' - |' * 13}" for case in "ab"]


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    command = [sys.executable, "-m", "benchmarks.speed.on_gpu", "--out", str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no GPU here; --device cpu --toy" in done.stderr
