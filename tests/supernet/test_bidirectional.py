"""A supernet in both directions: packed sentences against each one alone, architecture weights of one or two sets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from flair_nas import Genotype, random_genotype
from flair_nas.supernet import BothDirections, CellSupernet, InterCellSupernet

LENGTHS = [4, 7, 1, 5]


def sentences(size: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, size, generator=generator, dtype=torch.float64) for length in LENGTHS]


def packed(data: list[Tensor]) -> Any:
    padded = torch.nn.utils.rnn.pad_sequence(data)  # [T, B, D]
    return pack_padded_sequence(padded, torch.tensor([len(one) for one in data]), enforce_sorted=False)


def both(shared: bool = True, **options: Any) -> BothDirections:
    torch.manual_seed(1)
    return BothDirections(CellSupernet(3, 5, 3, "i-darts", **options), shared).double()


@pytest.mark.parametrize(
    "options", [{}, {"history": 2}, {"fixed_gates": Genotype.parse("relu0/state=tanh-relu+tanh1/input=tanh")}]
)
def test_each_sentence_is_read_from_both_of_its_ends(options: dict[str, Any]) -> None:
    layer, data = both(batch_norm=False, **options).eval(), sentences(3)
    output, state = layer(packed(data))
    found, lengths = pad_packed_sequence(output)
    assert lengths.tolist() == LENGTHS and found.shape == (7, 4, 10) and state is None
    for number, sentence in enumerate(data):
        ahead, _ = layer.ahead(sentence[:, None])
        back, _ = layer.back(sentence.flip(0)[:, None])
        expected = torch.cat([ahead[:, 0], back[:, 0].flip(0)], dim=1)
        torch.testing.assert_close(found[: len(sentence), number], expected)


def test_states_are_normalised_over_the_whole_batch() -> None:
    layer, data = both().train(), sentences(3)
    found, _ = pad_packed_sequence(layer(packed(data))[0])
    steps, batch = 7, len(data)
    ahead_in, back_in = (torch.zeros(steps, batch, 3, dtype=torch.float64) for _ in range(2))
    for number, sentence in enumerate(data):
        ahead_in[: len(sentence), number] = sentence
        back_in[: len(sentence), number] = sentence.flip(0)
    other = both().train()  # its running statistics are as they were
    ahead, back = other.ahead(ahead_in)[0], other.back(back_in)[0]
    for number, sentence in enumerate(data):
        length = len(sentence)
        expected = torch.cat([ahead[:length, number], back[:length, number].flip(0)], dim=1)
        torch.testing.assert_close(found[:length, number], expected)
    assert torch.equal(layer.ahead.norm.running_mean, other.ahead.norm.running_mean)  # type: ignore[union-attr]


def test_weights_differ_and_shared_architecture_weights_learn_from_both_directions() -> None:
    layer, data = both(history=1), sentences(3)
    assert layer.ahead.arch is layer.back.arch and layer.ahead.sampler is layer.back.sampler
    assert not torch.equal(layer.ahead.weight_input, layer.back.weight_input)
    group = layer.architecture()
    assert len(group["intra"]) == 1 and len(group["inter"]) == len(layer.ahead.architecture()["inter"])
    (arch,) = group["intra"]
    found, _ = pad_packed_sequence(layer(packed(data))[0])
    of_ahead, of_back = (found[..., part].sum() for part in (slice(0, 5), slice(5, 10)))
    gradients = [torch.autograd.grad(loss, arch, retain_graph=True)[0] for loss in (of_ahead, of_back)]
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients)
    total = torch.autograd.grad(of_ahead + of_back, arch)[0]
    torch.testing.assert_close(total, sum(gradients))
    assert len(set(layer.state_dict())) == len(list(layer.state_dict()))


def test_own_architecture_weights_give_the_genotype_of_their_mean() -> None:
    layer = both(shared=False)
    assert layer.ahead.arch is not layer.back.arch and len(layer.architecture()["intra"]) == 2
    with torch.no_grad():
        for arch in layer.architecture()["intra"]:
            arch.zero_()
        layer.ahead.arch[0, 1] = 3.0  # node 1: tanh of node 0
        layer.back.arch[0, 3] = 4.0  # sigmoid
        for row, of in ((2, layer.ahead.arch), (5, layer.back.arch)):
            of[row, 2] = 2.0  # relu of the node before
    before = [arch.clone() for arch in layer.architecture()["intra"]]
    assert layer.genotype().one_line() == "sigmoid0-relu1-relu2"
    assert all(torch.equal(a, b) for a, b in zip(layer.architecture()["intra"], before))
    deviations = [one.mean_absolute_deviations()["intra"] for one in (layer.ahead, layer.back)]
    assert layer.mean_absolute_deviations()["intra"] == pytest.approx(sum(deviations) / 2)
    assert len(layer.margins()["intra"]) == 6


def test_one_genotype_runs_in_both_directions() -> None:
    layer, data = both().eval(), sentences(3)
    cell = random_genotype(1, nodes=3)
    layer.choose(cell)
    chosen = layer(packed(data))[0].data
    layer.choose(None)
    assert not torch.allclose(chosen, layer(packed(data))[0].data)


def test_gates_around_a_fixed_cell_have_no_architecture_weights_of_the_cell() -> None:
    torch.manual_seed(0)
    layer = BothDirections(InterCellSupernet(3, 5, Genotype.parse("relu0-tanh1"), 2)).double().eval()
    with layer.batch_statistics():
        output, _ = layer(packed(sentences(3)))
    assert output.data.shape == (sum(LENGTHS), 10) and layer.architecture()["intra"] == []
    assert layer.genotype().state_gate is not None and set(layer.margins()) == {"inter"}


@pytest.mark.parametrize("learned", ["cell and gates", "gates"])
@pytest.mark.parametrize("shared", [True, False])
def test_the_tables_of_mixing_weights_are_those_of_each_direction(shared: bool, learned: str) -> None:
    layer = both(shared, history=2)
    if learned == "gates":
        layer = BothDirections(InterCellSupernet(3, 5, Genotype.parse("relu0-tanh1"), 2), shared).double()
    gates = ["state_gate_entries", "state_gate", "input_gate_entries", "input_gate"]
    names = [*(["cell"] if learned != "gates" else []), *gates]
    tables = layer.mixing_tables()
    assert [*tables] == names + ([] if shared else [f"back_{name}" for name in names])
    if not shared:
        assert not torch.equal(tables["state_gate"], tables["back_state_gate"])
    assert all(table.shape[1] == 5 and not table.requires_grad for table in tables.values())
