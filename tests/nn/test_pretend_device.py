"""Layers, supernets, searches, language models and taggers on another device than the CPU, without one.

These tests find tensors on the wrong device; `tests/nn/test_on_gpu.py` needs a real device.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.utils.backend_registration
from gensim.models import KeyedVectors
from small_language_model import write_text_folder
from small_tagging import write_corpus
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from flair_nas import SearchedRNN, load_genotype
from flair_nas.cli import main
from flair_nas.supernet import CellSupernet

HERE = os.environ.get("FLAIR_NAS_TEST_PRETEND") == "1"
if HERE:
    import pretend_device

needed = pytest.mark.skipif(
    not hasattr(getattr(torch._C, "_acc", None), "create_empty_tensor")
    or not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no devices that are written in Python",
)


@pytest.mark.slow
@needed
def test_in_a_process_of_its_own() -> None:
    """All of the class below; a device of one's own is there for good."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::TestPretended"]
    environment = os.environ | {"FLAIR_NAS_TEST_PRETEND": "1", "FLAIR_NAS_KERNELS": "auto"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def outcome(module: nn.Module, given: Any) -> list[Tensor]:
    """Output, state and gradients of a pass, on the CPU."""
    output, state = module(given)
    output = output.data if isinstance(output, PackedSequence) else output
    output.square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    states = [state] if isinstance(state, Tensor) else [part for parts in state for part in parts]
    gradients = [parameter.grad for parameter in module.parameters()]
    return [tensor.detach().cpu() for tensor in (output, *states, *gradients)]


@pytest.fixture
def everything_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands and Flair choose the device; autocast, which it has not, is that of the CPU."""
    import accelerate
    import flair
    from flair.data import Token

    import flair_nas.language_model.training
    import flair_nas.tagging.quiet

    for module in (flair_nas.language_model.training, flair_nas.tagging.quiet):
        monkeypatch.setattr(module, "choose_device", lambda name: pretend_device.DEVICE)
    monkeypatch.setattr(accelerate.Accelerator, "device", pretend_device.DEVICE)
    monkeypatch.setattr(flair, "device", pretend_device.DEVICE)
    begin = torch.autocast.__init__

    def of_cpu(self: Any, device_type: str, *arguments: Any, **options: Any) -> None:
        begin(self, "cpu" if device_type == pretend_device.NAME else device_type, *arguments, **options)

    monkeypatch.setattr(torch.autocast, "__init__", of_cpu)
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # its tensors cannot be views of a device in Python

    def to_cpu(token: Token, device: Any, pin_memory: bool = False) -> None:
        token._embeddings = {name: vector.cpu() for name, vector in token._embeddings.items()}  # there is none to pin

    monkeypatch.setattr(Token, "to", to_cpu)


class TestPretended:
    __test__ = HERE

    def test_it_refuses_what_is_on_the_cpu(self) -> None:
        there = torch.ones(3, device=pretend_device.DEVICE)
        assert (there + 1).sum().item() == 6 and there.device == pretend_device.DEVICE
        for work in (lambda: there + torch.ones(3), lambda: torch.where(torch.ones(3) > 0, there, there)):
            with pytest.raises(RuntimeError, match=r"same device|on the cpu"):
                work()

    @pytest.mark.parametrize("ragged", [False, True])
    @pytest.mark.parametrize("name", ["darts-v2", "i-darts-ptb", "ess-ptb"])
    def test_layers(self, name: str, ragged: bool) -> None:
        torch.manual_seed(0)
        layer = SearchedRNN(7, 5, load_genotype(name), num_layers=2, bidirectional=True)
        data = torch.randn(9, 7) if ragged else torch.randn(6, 3, 7)
        sizes = torch.tensor([3, 3, 2, 1])
        wanted = outcome(copy.deepcopy(layer), PackedSequence(data, sizes) if ragged else data)
        data = data.to(pretend_device.DEVICE)
        found = outcome(layer.to(pretend_device.DEVICE), PackedSequence(data, sizes) if ragged else data)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)

    def test_dropout_and_a_state_that_goes_on(self) -> None:
        options: dict[str, Any] = {"recurrent_dropout": 0.3, "input_dropout": 0.2, "dropout": 0.1}
        layer = SearchedRNN(7, 5, load_genotype("ess-ptb"), num_layers=2, **options).to(pretend_device.DEVICE)
        data = torch.randn(4, 3, 7, device=pretend_device.DEVICE)
        _, state = layer(data)
        layer(data, state)[0].sum().backward()

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("history", [0, 2])
    def test_supernets(self, history: int, training: bool) -> None:
        torch.manual_seed(0)
        net = CellSupernet(7, 5, 4, "i-darts", history=history).train(training)
        data = torch.randn(6, 3, 7)
        wanted = outcome(copy.deepcopy(net), data)
        found = outcome(net.to(pretend_device.DEVICE), data.to(pretend_device.DEVICE))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)

    @pytest.mark.usefixtures("everything_there")
    @pytest.mark.parametrize(
        "command",
        [
            "lm train --text TEXT --rnn ess-ptb --epochs 2 --batch-size 4",
            "search --preset i-darts-small --min-steps 0 --text TEXT --epochs 1 --batch-size 4 --nodes 3 --order 2",
            "search --preset ess-small --min-steps 0 --text TEXT --epochs 1 --batch-size 4 --nodes 3",
            "search --objective tagging --corpus CORPUS --embeddings one-hot --epochs 1 --nodes 3 --batch-size 4",
            "tag train --corpus CORPUS --embeddings one-hot word:VECTORS --rnn ess-ptb --epochs 1",
        ],
    )
    def test_commands(self, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flair_nas.search.trainer.explain_failure", lambda *_: "")  # one epoch may learn nothing
        text, out = write_text_folder(tmp_path / "text"), tmp_path / "out"
        vectors = KeyedVectors(3)
        vectors.add_vectors(["the", "of"], numpy.ones((2, 3), numpy.float32))
        vectors.save(str(tmp_path / "vectors.gensim"))
        command = command.replace("TEXT", text).replace("VECTORS", f"{tmp_path}/vectors.gensim")
        given = command.replace("CORPUS", write_corpus(tmp_path / "corpus")).split()
        before = pretend_device.run["aten::mm"]
        assert main([*given, "--hidden-size", "6", "--quiet", "--out", str(out)]) == 0
        assert pretend_device.run["aten::mm"] > before + 100
