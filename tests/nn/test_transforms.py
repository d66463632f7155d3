"""Traces, transforms, modes and default devices of PyTorch see the equations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import pack_sequence

from flair_nas import Genotype, LanguageModel, SearchedRNN, load_genotype
from flair_nas.language_model.variational import VariationalGRU, VariationalLSTM
from flair_nas.supernet import CellSupernet

D, H = 3, 4
GATED = Genotype.parse("tanh0-relu1+tanh1/state=tanh-relu+tanh1/input=tanh-relu+tanh1")
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gates": lambda: SearchedRNN(D, H, GATED),
    "supernet": lambda: CellSupernet(D, H, 2, init_range=0.5),
    "elementwise": lambda: SearchedRNN(D, H, dataclasses.replace(load_genotype("tanh0"), recurrence="elementwise")),
    "LSTM": lambda: VariationalLSTM(D, H, recurrent_dropout=0.5).eval(),
    "GRU": lambda: VariationalGRU(D, H, recurrent_dropout=0.5).eval(),
}


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    return LAYERS[name]().double(), *torch.randn(2, 3, 2, D, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grad", [True, False])
def test_a_graph_of_operators_can_be_run_on_another_input(name: str, grad: bool) -> None:
    layer, first, second = made(name)
    with torch.set_grad_enabled(grad):
        graph = make_fx(lambda input: layer(input)[0])(first)
        torch.testing.assert_close(graph(second), layer(second)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_traces_and_exports_hold_for_the_sizes_of_their_example_and_raise_for_others() -> None:
    """The docstring of `SearchedRNN` promises it; a wrong result would be worse."""
    layer = SearchedRNN(D, H, GATED, bidirectional=True).eval()
    example, input = torch.randn(2, 3, 2, D)
    traced = torch.jit.trace(layer, (example,), check_trace=False)
    exported = torch.export.export(layer, (example,), strict=False).module()
    for graph in (traced, exported):
        torch.testing.assert_close(graph(input)[0], layer(input)[0])
        for steps, batch in ((5, 2), (2, 2), (3, 1), (3, 4), (2, 3), (6, 1), (3, 0)):
            with pytest.raises((RuntimeError, AssertionError)):
                graph(torch.randn(steps, batch, D))


@pytest.mark.parametrize("name", LAYERS)
def test_forward_mode_derivatives_are_those_of_backward_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, input, direction = made(name)
    layer.requires_grad_(False)  # an engine would then take part in no derivative at all
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(input, direction))[0]
        found = forward_ad.unpack_dual(dual).tangent
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")  # which can be differentiated twice, as jvp does
    expected = torch.autograd.functional.jvp(lambda input: layer(input)[0], input, direction)[1]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rnn", ["cell", "LSTM"])
def test_a_language_models_loss_is_differentiated_by_torch_func(rnn: str) -> None:
    torch.manual_seed(1)
    layer = (
        SearchedRNN(D, D, Genotype.parse("tanh0")) if rnn == "cell" else VariationalLSTM(D, D, recurrent_dropout=0.5)
    )
    model = LanguageModel(7, D, D, layer).double().eval()
    tokens = torch.arange(12).view(6, 2) % 7
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(_Loss(model), {f"model.{name}": value for name, value in parameters.items()}, (tokens,))

    found = torch.func.grad(loss)(parameters)
    model.loss(tokens[:-1], tokens[1:]).total.backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-10, atol=1e-12)


class _Loss(nn.Module):
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.loss(tokens[:-1], tokens[1:]).total


@pytest.mark.parametrize("name", ["gates", "supernet"])
def test_fake_tensors_have_the_shapes_of_real_ones(name: str) -> None:
    with FakeTensorMode():
        assert LAYERS[name]()(torch.randn(3, 2, D))[0].shape == (3, 2, H)


@pytest.mark.parametrize("name", ["gates", "supernet"])
def test_another_default_device_is_none_of_a_layers_business(name: str) -> None:
    layer, input, _ = made(name)
    packed = pack_sequence([input[:, 0], input[:2, 1]])
    expected = layer(input)[0]
    with torch.device("meta"):
        torch.testing.assert_close(layer(input)[0], expected)
        if name == "gates":
            assert layer(packed)[0].data.device.type == "cpu"
