"""Gradients are right or refused: under torch.compile, and for second derivatives."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable

import pytest
import torch
from portable import NO_COMPILER
from torch import Tensor, nn

from flair_nas import Genotype, SearchedRNN
from flair_nas.language_model.cross_entropy import mean_cross_entropy
from flair_nas.language_model.variational import VariationalGRU, VariationalLSTM
from flair_nas.nn.kernels import gate
from flair_nas.supernet import CellSupernet

pytestmark = pytest.mark.slow

D, H, T, B = 3, 4, 3, 3  # as many steps as the gates look back on, and one
CELL = Genotype.parse("tanh0-relu1+tanh1-sigmoid0")
ELEMENTWISE = dataclasses.replace(CELL, recurrence="elementwise")
GATED = Genotype.parse("tanh0-relu1+tanh1-sigmoid0/state=tanh-sigmoid+relu1/input=tanh-relu+tanh1")
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "cell": lambda: SearchedRNN(D, H, CELL, recurrent_dropout=0.5),
    "without highway": lambda: SearchedRNN(D, H, dataclasses.replace(CELL, highway=False)),
    "elementwise": lambda: SearchedRNN(D, H, ELEMENTWISE, recurrent_dropout=0.5),
    "state gate": lambda: SearchedRNN(D, H, dataclasses.replace(GATED, input_gate=None)),
    "gates": lambda: SearchedRNN(D, H, GATED),
    "two layers, both directions": lambda: SearchedRNN(D, H, GATED, num_layers=2, bidirectional=True),
    "supernet": lambda: CellSupernet(D, H, 2, history=2, init_range=0.5),
}
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
COMPILED = [
    ("native", "cell", "aot_eager"),
    ("native", "supernet", "aot_eager"),
    ("native", "elementwise", "aot_eager"),
    ("columns", "elementwise", "aot_eager"),
    ("native", "gates", "cudagraphs"),
    ("columns", "supernet", "aot_eager"),
    ("plain", "cell", "aot_eager"),
]  # each takes seconds: engines are compiled alike, whatever they run


def data() -> Tensor:
    return torch.randn(T, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[name]().double()


def gradients(run: Callable[[Tensor], tuple[Tensor, object]], layer: nn.Module) -> dict[str, Tensor]:
    layer.zero_grad()
    torch.manual_seed(2)  # of dropout's masks
    run(data())[0].square().sum().backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.grad is not None}
    assert all(gradient.abs().max() > 1e-6 for gradient in found.values())
    return {name: gradient.clone() for name, gradient in found.items()}


@pytest.mark.parametrize(("kernels", "name", "backend"), COMPILED, indirect=["kernels"])
def test_compiled_gradients_are_those_of_the_layer(name: str, backend: str, kernels: str) -> None:
    if backend == "cudagraphs" and TORCH < (2, 7):
        pytest.skip("this PyTorch's cudagraphs are for GPUs alone")
    assert_right_when_compiled(name, backend)


def test_compiled_gradients_are_those_of_the_layer_with_the_backend_that_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or os.environ.get("CXX") == NO_COMPILER:
        pytest.skip("inductor needs a C++ compiler")
    from torch._inductor import config

    monkeypatch.delenv("FLAIR_NAS_KERNELS", raising=False)
    with config.patch({"cpp.cxx": (None, compiler)}):  # without flags
        assert_right_when_compiled("gates", "inductor")


def assert_right_when_compiled(name: str, backend: str) -> None:
    layer = made(name)
    expected = gradients(layer, layer)
    torch._dynamo.reset()
    found = gradients(torch.compile(layer, backend=backend), layer)
    assert found.keys() == expected.keys()
    for parameter, gradient in expected.items():
        assert torch.allclose(found[parameter], gradient, rtol=1e-12, atol=1e-12), parameter


@pytest.mark.parametrize("kind", [VariationalLSTM, VariationalGRU])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_gradients_of_an_lstm_and_of_the_loss(
    kind: type[VariationalLSTM | VariationalGRU], backend: str
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = kind(D, H, recurrent_dropout=0.5), nn.Linear(H, 7)

        def forward(self, input: Tensor) -> tuple[Tensor, object]:
            output, state = self.rnn(input)
            rows, targets = output.flatten(0, 1), torch.arange(T * B) % 7
            return mean_cross_entropy(rows, self.out.weight, self.out.bias, targets), state

    torch.manual_seed(0)
    model = Model().double()
    expected = gradients(model, model)
    torch._dynamo.reset()
    found = gradients(torch.compile(model, backend=backend), model)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_are_right_where_the_equations_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    layer = made(name).eval() if name != "supernet" else made(name)  # no masks; batch statistics
    input = data().requires_grad_()

    def output(input: Tensor, *parameters: Tensor) -> Tensor:
        names = [key for key, _ in layer.named_parameters()]
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (input,))[0]

    assert torch.autograd.gradgradcheck(output, (input, *layer.parameters()), atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("setting", ["auto", "columns"])
def test_other_engines_refuse_second_derivatives(name: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    layer = made(name)
    loss = layer(data())[0].square().sum()
    with pytest.raises(RuntimeError, match="create_graph=True is refused.*FLAIR_NAS_KERNELS=plain"):
        torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)


def test_the_lstm_the_gru_and_the_loss_refuse_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "auto")
    for kind in (VariationalLSTM, VariationalGRU):
        rnn = kind(D, H, recurrent_dropout=0.5).double()
        with pytest.raises(RuntimeError, match="create_graph=True is refused"):
            torch.autograd.grad(rnn(data())[0].sum(), rnn.layers[0].weight_hh_l0, create_graph=True)
    weight = torch.randn(7, H, requires_grad=True)
    loss = mean_cross_entropy(torch.randn(6, H), weight, torch.zeros(7), torch.arange(6))
    with pytest.raises(RuntimeError, match="create_graph=True is refused"):
        torch.autograd.grad(loss, weight, create_graph=True)


@pytest.mark.parametrize("setting", ["auto", "columns"])
def test_what_was_evaluated_in_inference_mode_first_is_trained(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines cache no tensor of inference mode, because gradients cannot depend on it."""
    monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    gate._order_by_tail.cache_clear()
    net = CellSupernet(D, H, 3, history=2)
    with torch.inference_mode():
        net.eval()(torch.randn(T, B, D))
    net.train()(torch.randn(T, B, D))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
