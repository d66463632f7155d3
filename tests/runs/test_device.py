"""A precision that the processor cannot run is refused in plain words, before any work."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.runs.device import check_precision, choose_device, float32_products
from flair_nas.runs.memory import check_fits, is_out_of_memory
from flair_nas.storage.resources import resource_path

OF_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}  # what most laptops have
COMMANDS = {
    "lm": "lm train --text demo --rnn lstm --hidden-size 4",
    "search": "search --text demo --preset i-darts-small",
    "estimate": "search --text demo --preset i-darts-small --estimate",
    "tag": f"tag train --corpus {resource_path('demo')} --embeddings one-hot",
}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN hides AVX-512 on x86 alone")
@pytest.mark.parametrize("command", COMMANDS)
def test_bfloat16_without_its_instructions_is_refused_before_any_work(command: str, tmp_path: Path) -> None:
    out = [] if command == "estimate" else ["--out", "run"]
    arguments = [*COMMANDS[command].split(), "--precision", "bfloat16", "--device", "cpu", *out]
    environment = {**os.environ, **OF_AVX2, "FLAIR_NAS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "flair_nas", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "precision bfloat16: this processor" in done.stderr and "--precision float32" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []  # neither a run nor a text's cache


def test_looking_whether_it_runs_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    check_precision.cache_clear()
    try:
        check_precision("bfloat16", torch.device("cpu"))
    except Exception as error:
        assert "use --precision float32" in str(error)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_does_not_fit_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=8192))
    state = torch.get_rng_state()
    check_fits(lambda: torch.nn.Linear(32, 32, bias=False), torch.device("cpu"), "hidden_size 32")  # all 8,192 bytes
    with pytest.raises(FlairNasError, match="hidden_size 33: 1,089 weights and their gradients take .* smaller one"):
        check_fits(lambda: torch.nn.Linear(33, 33, bias=False), torch.device("cpu"), "hidden_size 33")
    assert torch.equal(torch.get_rng_state(), state)


LM, TAG = "lm train --text demo --rnn", "tag train --corpus demo --rnn"


@pytest.mark.parametrize("command", ["search --text demo", f"{LM} lstm", f"{LM} ess-ptb", f"{TAG} lstm", f"{TAG} nao"])
def test_a_hidden_size_beyond_memory_is_one_line_that_names_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*command.split(), "--hidden-size", "1000000", "--out", str(tmp_path / "run"), "-q"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "hidden_size 1000000" in line and "GB here; choose a smaller one" in line


def test_memory_that_runs_out_later_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        torch.empty(2**60)

    monkeypatch.setattr("flair_nas.language_model.training.train_language_model", run)
    assert main(["lm", "train", "--text", "demo", "--out", "x", "-q"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "flair-nas: not enough memory; a smaller --hidden-size, --batch-size or --bptt needs less"
    ]
    assert is_out_of_memory(MemoryError()) and not is_out_of_memory(RuntimeError("another"))


@pytest.mark.parametrize("name", ["cpu:3", "cuda:-1", "gpu", "mps", "", "\ud800", "x" * 10_000])
def test_a_device_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(FlairNasError, match="device"):
        choose_device(name)


PEAKS = """
from flair_nas.runs.memory import forget_peak_memory, peak_memory_mb
before = peak_memory_mb()
pieces = [bytearray(60_000) for _ in range(5_000)]  # 300 MB, small enough for the heap
pieces = pieces[::50]  # what stays in between keeps the heap from shrinking by itself
forget_peak_memory()
print(before, peak_memory_mb())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone it is known how")
def test_what_was_freed_does_not_count_as_the_memory_of_what_comes_next() -> None:
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < before + 100


@pytest.mark.parametrize(("name", "found"), [("highest", "ieee"), ("high", "tf32"), ("medium", "bf16")])
def test_how_float32_is_multiplied_by_the_older_setting(name: str, found: str) -> None:
    torch.set_float32_matmul_precision(name)
    try:
        assert float32_products(torch.device("cpu")) == found
        assert (float32_products(torch.device("cuda")) == "ieee") == (
            found == "ieee"
        )  # CUDA has but one that is coarser
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this PyTorch has the older setting alone")
def test_how_float32_is_multiplied_by_the_newer_setting() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with pytest.raises(RuntimeError):
            torch.get_float32_matmul_precision()
        assert float32_products(torch.device("cuda", 0)) == "tf32"
        assert float32_products(torch.device("cpu")) == "ieee"
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
