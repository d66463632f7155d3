"""A precision that the processor cannot run is refused in plain words, before any work."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flair_nas.device import check_precision
from flair_nas.library import resource_path

OF_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}  # what most laptops have
COMMANDS = {
    "lm": "lm train --text demo --rnn lstm --hidden-size 4",
    "search": "search --text demo --preset i-darts-small",
    "estimate": "search --text demo --preset i-darts-small --estimate",
    "tag": f"tag train --corpus {resource_path('demo')} --embeddings one-hot",
}


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
