"""The engine of CUDA graphs, with a stand-in for the graphs themselves: it has their fixed shapes and fixed memory.

What PyTorch captures and launches on a GPU, `tests/test_on_gpu.py` and `benchmarks/on_gpu.py` check where there is one.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_language_model_training import write_text_folder
from torch import Tensor, nn

from flair_nas import SearchedRNN, random_genotype
from flair_nas.cli import main
from flair_nas.kernels import columns, elementwise, graphs, padding
from flair_nas.recurrence import ENGINES
from flair_nas.supernet import CellSupernet

LAYERS = ["darts-v2", "i-darts-ptb", "ess-ptb", random_genotype(seed=3, nodes=4, edges_per_node=2, history=2)]


class Captured:
    """As what `torch.cuda.make_graphed_callables` gives: each call writes into the memory of the one before.

    What a gradient is computed from is gone once it is there: the graph's memory is used again.
    """

    def __init__(self, work: Callable[..., Tensor], samples: tuple[Tensor, ...]) -> None:
        self.work, self.inputs = work, samples
        self.learned = [tensor for tensor in samples if tensor.requires_grad]
        self.output = work(*samples).detach()
        self.gradients = [torch.zeros_like(tensor) for tensor in self.learned]
        self.launches = 0

    def __call__(self, *tensors: Tensor) -> Tensor:
        output: Tensor = _Launch.apply(self, *tensors)
        return output


class _Launch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, captured: Captured, *tensors: Tensor) -> Tensor:
        ctx.captured = captured
        captured.launches += 1
        for own, given in zip(captured.inputs, tensors):
            assert own.shape == given.shape and own.dtype == given.dtype
            own.data.copy_(given)
        with torch.enable_grad():
            captured.live = captured.work(*captured.inputs)
        captured.output.copy_(captured.live.detach())
        return captured.output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        captured = ctx.captured
        found = torch.autograd.grad(captured.live, captured.learned, gradients[0], allow_unused=True)
        of_learned = iter(captured.gradients)
        for own, gradient in zip(captured.gradients, found):
            own.zero_() if gradient is None else own.copy_(gradient)
        return (None, *(next(of_learned).detach() if t.requires_grad else None for t in captured.inputs))


def forget() -> None:
    """All that the engine keeps."""
    for kept in (graphs._graphs, graphs._failed, graphs._broken, graphs.fallbacks):
        kept.clear()


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Captured]]:
    """What is captured, in place of CUDA graphs; recurrences run on it."""
    made: list[Captured] = []

    def capture(work: Callable[..., Tensor], samples: tuple[Tensor, ...], allow_unused_input: bool) -> Captured:
        made.append(Captured(work, samples))
        return made[-1]

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # a CPU build does not know
    monkeypatch.setattr(graphs, "_elementwise", lambda: elementwise)  # Triton is not for a CPU
    monkeypatch.setitem(ENGINES, "columns", (graphs.run, elementwise))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    forget()
    yield made
    forget()


def outcome(module: nn.Module, data: Any, kernels: str, patch: pytest.MonkeyPatch, seed: int = 5) -> list[Tensor]:
    """Output, state and all gradients of a pass."""
    patch.setenv("FLAIR_NAS_KERNELS", kernels)
    torch.manual_seed(seed)  # of dropout
    module.zero_grad()
    output, state = module(data)
    output = output if isinstance(output, Tensor) else output.data
    source = data if isinstance(data, Tensor) else data.data
    source.grad = None
    direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * direction).sum().backward()
    states = state if isinstance(state, tuple) else (state,)
    gradients = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    return [output.detach(), *(s.detach() for s in states if isinstance(s, Tensor)), source.grad.clone(), *gradients]


def packed(lengths: list[int], width: int = 7) -> Any:
    torch.manual_seed(len(lengths))
    sequences = [torch.randn(length, width, dtype=torch.float64) for length in lengths]
    found = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    found.data.requires_grad_()
    return found


def dense(steps: int, batch: int, width: int = 7) -> Tensor:
    torch.manual_seed(steps)
    return torch.randn(steps, batch, width, dtype=torch.float64).requires_grad_()


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS, ids=str)
@pytest.mark.parametrize(
    "given", [dense(10, 8), dense(9, 3), dense(5, 1), packed([9, 2, 7, 1, 2]), packed([71, 3])], ids=range(5)
)
def test_it_agrees_with_the_equations_whatever_is_padded(
    name: Any, given: Any, captured: list[Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"num_layers": 2, "bidirectional": True, "recurrent_dropout": 0.3, "input_dropout": 0.2}
    torch.manual_seed(0)
    layer = SearchedRNN(7, 5, name, **options).double()
    for _ in range(2):  # the second time, all graphs are there
        found = outcome(layer, given, "columns", monkeypatch)
        assert_same(found, outcome(layer, given, "plain", monkeypatch))
    # both directions of a layer hold their memory until the gradient is there; layers differ in the width of inputs
    assert sum(c.launches for c in captured) == 8 and 2 <= len(captured) <= 4


@pytest.mark.parametrize("history", [0, 2])
def test_a_supernet_agrees_and_its_running_statistics_too(
    history: int, captured: list[Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    nets = [CellSupernet(7, 5, 3, "i-darts", history=history).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for steps in (6, 9, 6):
        found, wanted = (
            outcome(net, dense(steps, 4), kernels, monkeypatch) for net, kernels in zip(nets, ("columns", "plain"))
        )
        assert_same(found, wanted)
    assert_same(list(nets[0].buffers()), list(nets[1].buffers()))
    assert len(captured) == 2  # of two lengths
    for net in nets:
        net.eval()
    assert_same(*(outcome(net, dense(6, 4), k, monkeypatch) for net, k in zip(nets, ("columns", "plain"))))


def test_inference_mode_has_graphs_of_its_own(captured: list[Captured], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tensors may neither be written to outside of it nor have gradients."""
    layer, data = SearchedRNN(7, 5, "i-darts-ptb").double(), dense(8, 8)
    wanted = outcome(layer, data, "plain", monkeypatch)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
            torch.testing.assert_close(layer(data)[0].clone(), wanted[0])
        assert_same(outcome(layer, data, "columns", monkeypatch), wanted)
    assert len(captured) == 3


def test_shapes_are_few_and_not_much_larger(captured: list[Captured], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = SearchedRNN(7, 5, "tanh0").double()
    with torch.no_grad():
        for steps in range(1, 41):
            for batch in (1, 7, 8):
                layer(dense(steps, batch))
    assert len(captured) == 4 * 8  # T = 5, 10, ... 40; one sequence or 8, whole and with something that is padded
    assert [padding.steps_of(steps) for steps in (1, 35, 64, 70, 71, 140, 141)] == [5, 35, 65, 70, 80, 140, 160]


def test_sequences_whose_gradients_are_wanted_have_memory_of_their_own(
    captured: list[Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = SearchedRNN(7, 5, "i-darts-ptb").double()
    data = [dense(8, 8), dense(8, 8).detach().mul(-2).requires_grad_()]
    wanted = [outcome(layer, one, "plain", monkeypatch) for one in data]
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    outputs = [layer(one)[0] for one in data]  # two are under way
    assert len(captured) == 2
    direction = torch.linspace(-1, 1, outputs[0].numel(), dtype=torch.float64).view_as(outputs[0])
    layer.zero_grad()
    for output, one in zip(outputs, data):  # and their gradients are summed
        one.grad = None
        (output * direction).sum().backward()
    for one, of_one in zip(data, wanted):
        torch.testing.assert_close(one.grad, of_one[2])
    for place, parameter in enumerate(layer.parameters()):
        torch.testing.assert_close(parameter.grad, wanted[0][3 + place] + wanted[1][3 + place])
    outcome(layer, data[0], "columns", monkeypatch)
    assert len(captured) == 2  # they are free again
    dropped = layer(data[0])[0]
    del dropped
    gc.collect()  # nobody can ask for that one's gradient
    layer(data[0])[0].sum().backward()
    assert len(captured) == 2


def test_what_is_given_stays_as_it_is(captured: list[Captured]) -> None:
    layer = SearchedRNN(7, 5, "tanh0-relu1").double()
    with torch.no_grad():
        first = layer(dense(8, 8))[0]
        copy = first.clone()
        layer(dense(8, 8) * 3)
        assert torch.equal(first, copy) and len(captured) == 1
    layer(dense(8, 8))[0].sum().backward()
    kept, copies = [p.grad for p in layer.parameters()], [p.grad.clone() for p in layer.parameters()]  # type: ignore[union-attr]
    layer.zero_grad()
    layer(dense(8, 8) * 3)[0].sum().backward()
    assert all(torch.equal(one, copy) for one, copy in zip(kept, copies))  # type: ignore[arg-type]


def test_a_second_gradient_is_refused(captured: list[Captured]) -> None:
    layer, data = SearchedRNN(7, 5, "tanh0").double(), dense(8, 8)
    loss = layer(data)[0].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="add the losses and go back once, or set .*FLAIR_NAS_KERNELS=columns"):
        loss.backward()
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(layer(data)[0].sum(), data, create_graph=True)


def test_the_most_recent_graphs_are_kept(captured: list[Captured], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_MOST", 2)
    layer = SearchedRNN(7, 5, "tanh0").double()
    waiting = layer(dense(4, 8))[0].sum()
    with torch.no_grad():
        for steps in (8, 12, 8, 16, 8):
            layer(dense(steps, 8))
    assert len(graphs._graphs) == 2 and len(captured) == 4  # 8 was always among the last two
    monkeypatch.setattr(graphs, "_memory", lambda device: 100.0)
    for kept in graphs._graphs.values():
        kept.bytes = 51
    with torch.no_grad():
        layer(dense(20, 8))
    assert len(graphs._graphs) == 2  # the oldest had to go
    monkeypatch.setattr(graphs, "_memory", lambda device: -1.0)
    with torch.no_grad():
        for _ in range(2):
            layer(dense(20, 8))
    assert len(graphs._graphs) == 1 and len(captured) == 5  # the one in use stays, however large it is
    waiting.backward()  # though its graph is not kept any more
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_where_there_can_be_no_graph_it_says_so_once(
    captured: list[Captured], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    layer, data = SearchedRNN(7, 5, "i-darts-ptb").double(), packed([5, 3])
    wanted = outcome(layer, data, "plain", monkeypatch)

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with caplog.at_level(logging.WARNING, "flair_nas"):
        with torch.autograd.graph.save_on_cpu():
            assert_same(outcome(layer, data, "columns", monkeypatch), wanted)
        assert captured == [] and "hooks on saved tensors" in caplog.text
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
        for _ in range(2):
            assert_same(outcome(layer, data, "columns", monkeypatch), wanted)
    assert caplog.text.count("not permitted when stream is capturing") == 1


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (torch.cuda.OutOfMemoryError("out of memory"), 4),  # twice of each length
        (RuntimeError("CUDA error: out of memory"), 4),  # as launching one says it
        (RuntimeError("illegal"), 1),  # the state of CUDA is not known any more
        (ValueError("of Triton's compiler"), 1),
    ],
)
def test_what_could_not_be_captured_is_not_tried_again(
    error: Exception,
    times: int,
    captured: list[Captured],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = []

    def fail(work: Any, samples: Any, allow_unused_input: bool) -> None:
        tried.append(samples[0].shape)
        raise error

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    layer = SearchedRNN(7, 5, "tanh0").double()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "flair_nas"):
        for steps in (8, 8, 12, 8):
            layer(dense(steps, 8))
    assert len(tried) == times and caplog.text.count(str(error)) == 1


def test_one_error_after_another(
    captured: list[Captured], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [torch.cuda.OutOfMemoryError("out of memory"), RuntimeError("illegal")]

    def fail(work: Any, samples: Any, allow_unused_input: bool) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    layer, data = SearchedRNN(7, 5, "tanh0").double(), dense(8, 8)
    wanted = outcome(layer, data, "plain", monkeypatch)
    with caplog.at_level(logging.WARNING, "flair_nas"):
        for _ in range(2):
            assert_same(outcome(layer, data, "columns", monkeypatch), wanted)
    assert errors == [] and caplog.text.count("illegal") == 1 and sum(graphs.fallbacks.values()) == 2


def test_the_first_of_two_errors_is_the_one_that_is_told(
    captured: list[Captured], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(work: Any, samples: Any, allow_unused_input: bool) -> None:
        try:
            raise RuntimeError("a synchronisation")
        finally:
            raise RuntimeError("the capture is invalid")  # what leaving it says

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    with caplog.at_level(logging.WARNING, "flair_nas"):
        SearchedRNN(7, 5, "tanh0").double()(dense(8, 8))
    assert "a synchronisation" in caplog.text and "invalid" not in caplog.text


def test_memory_of_graphs_that_are_kept_is_given_to_a_new_one(
    captured: list[Captured], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    layer, capture = SearchedRNN(7, 5, "tanh0").double(), torch.cuda.make_graphed_callables

    def fail_while_another_is_kept(*given: Any, **options: Any) -> Any:
        if graphs._graphs:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return capture(*given, **options)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail_while_another_is_kept)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "flair_nas"):
        for steps in (8, 12, 12):
            layer(dense(steps, 8))
    assert len(captured) == 2 and len(graphs._graphs) == 1 and not caplog.text


@pytest.mark.parametrize(
    "command",
    [
        "lm train --rnn ess-ptb --epochs 2 --batch-size 4",
        "search --preset darts-ptb-second --epochs 1 --batch-size 4 --nodes 3",
        "search --preset ess-small --min-steps 0 --epochs 1 --batch-size 4 --nodes 3",
        "search --objective tagging --corpus demo --embeddings one-hot --epochs 1 --nodes 2",
        "tag train --corpus demo --embeddings one-hot --rnn i-darts-ptb --epochs 1",
    ],
)
def test_commands_come_to_the_same(
    command: str, captured: list[Captured], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("flair_nas.search.trainer.failure", lambda *_: "")  # one epoch may learn nothing
    text = [] if "--corpus" in command else ["--text", write_text_folder(tmp_path / "text")]
    histories = []
    for engine in (graphs.run, columns.run):
        monkeypatch.setitem(ENGINES, "columns", (engine, elementwise))
        out = tmp_path / engine.__module__
        assert (
            main([*command.split(), *text, "--hidden-size", "6", "--quiet", "--device", "cpu", "--out", str(out)]) == 0
        )
        (history,) = out.glob("**/history.jsonl")
        histories.append([json.loads(line) for line in history.read_text().splitlines()])
    for epochs in zip(*histories):
        losses = [[value for key, value in epoch.items() if key.endswith("_loss") or key == "loss"] for epoch in epochs]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3) and losses[0]
    assert captured and not graphs.fallbacks and len(captured) < 60
