"""SearchedRNN against the reference in float64, against itself, and against the manners of nn.GRU."""

import copy
import dataclasses
import io
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from drawn_genotypes import genotypes
from hypothesis import assume, given, settings
from reference import State, assert_same, gradients, run_layers, run_sequence, tensors_of
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

from flair_nas.genotype import Edge, Gate, GateNode, Genotype, random_genotype
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.nn.state import RecurrentState

pytestmark = pytest.mark.usefixtures("kernels")  # all of it on every engine

D, H = 3, 4  # different, so that a mix-up of the two widths cannot pass
LENGTHS = (4, 2, 5)  # ragged and unsorted
GATED = random_genotype(5, nodes=3, edges_per_node=2, history=3)
UNGATED = random_genotype(6, nodes=3, edges_per_node=2)


def make_rnn(genotype: Genotype, input_size: int = D, hidden_size: int = H, **options: Any) -> SearchedRNN:
    """Return a layer in float64 whose weights, uniform in ±0.5, are large enough for every gradient to be felt."""
    torch.manual_seed(1)
    rnn = SearchedRNN(input_size, hidden_size, genotype, **{"init_range": 0.5, **options}).double()
    with torch.no_grad():
        for weight in rnn.parameters():  # gates may have an initialisation of their own
            weight.uniform_(-0.5, 0.5)
    return rnn


def make_sequences(lengths: tuple[int, ...] = LENGTHS, width: int = D, seed: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, width, generator=generator, dtype=torch.float64) for length in lengths]


def history_sizes(genotype: Genotype) -> tuple[int, int]:
    """Return how many past inputs and how many states before the last one cross a segment border."""
    inputs = len(genotype.state_gate.nodes) if genotype.state_gate else 0
    return inputs, max(len(genotype.input_gate.nodes) - 1, 0) if genotype.input_gate else 0


def layer_width(rnn: SearchedRNN, k: int) -> int:
    """Return the width of what layer-direction k reads."""
    directions = 2 if rnn.bidirectional else 1
    return rnn.input_size if k < directions else rnn.hidden_size * directions


def make_state(rnn: SearchedRNN, batch: int, fill: Callable[..., Tensor] = torch.randn) -> Tensor | RecurrentState:
    """Return a random state of the layer, of the shapes that the contract names."""
    torch.manual_seed(3)
    count = rnn.num_layers * (2 if rnn.bidirectional else 1)
    hidden = torch.randn(count, batch, rnn.hidden_size, dtype=torch.float64)
    if not (rnn.genotype.state_gate or rnn.genotype.input_gate):
        return hidden
    m_x, m_h = history_sizes(rnn.genotype)
    inputs = tuple(fill(m_x, batch, layer_width(rnn, k), dtype=torch.float64) for k in range(count))
    states = tuple(fill(m_h, batch, rnn.hidden_size, dtype=torch.float64) for _ in range(count))
    return RecurrentState(hidden=hidden, inputs=inputs, states=states)


def reference_states(state: Tensor | RecurrentState, batch: int) -> list[list[State]]:
    """Take a state of the layer apart into those of the reference, by sequence and layer-direction."""
    if isinstance(state, Tensor):
        return [[State(h, [], []) for h in state[:, b]] for b in range(batch)]
    count = len(state.hidden)
    return [
        [State(state.hidden[k, b], list(state.inputs[k][:, b]), list(state.states[k][:, b])) for k in range(count)]
        for b in range(batch)
    ]


def reference_tensors(rnn: SearchedRNN, finals: list[list[State]]) -> list[Tensor]:
    """Put final states of the reference together in the shapes and the order of `tensors_of`."""
    batch, count = len(finals), len(finals[0])
    hidden = torch.stack([torch.stack([finals[b][k].hidden for b in range(batch)]) for k in range(count)])
    if not (rnn.genotype.state_gate or rnn.genotype.input_gate):
        return [hidden]

    def stack(vectors: list[list[Tensor]], width: int) -> Tensor:
        """Stack [batch][m] vectors to [m, batch, width], also for m = 0."""
        rows = [torch.stack(row) if row else hidden.new_zeros(0, width) for row in vectors]
        return torch.stack(rows, dim=1)

    inputs = [stack([finals[b][k].inputs for b in range(batch)], layer_width(rnn, k)) for k in range(count)]
    states = [stack([finals[b][k].states for b in range(batch)], rnn.hidden_size) for k in range(count)]
    return [hidden, *inputs, *states]


def run_packed(rnn: SearchedRNN, sequences: list[Tensor], hx: Any = None) -> tuple[list[Tensor], Any]:
    """Run ragged sequences as an unsorted PackedSequence; return one output per sequence, and the state."""
    output, state = rnn(pack_sequence(sequences, enforce_sorted=False), hx)
    padded, lengths = pad_packed_sequence(output)
    return [padded[:length, b] for b, length in enumerate(lengths.tolist())], state


def run_reference(
    rnn: SearchedRNN, sequences: list[Tensor], hx: Tensor | RecurrentState | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the results of the reference, final states last, and its gradients: sequences, parameters, hx."""
    starts = None if hx is None else reference_states(hx, len(sequences))
    outputs, finals = run_layers(rnn, sequences, starts)
    results = outputs + reference_tensors(rnn, finals)
    return results, gradients(results, [*sequences, *rnn.parameters(), *(tensors_of(hx) if hx is not None else [])])


def start_states(rnn: SearchedRNN, batch: int) -> tuple[None, Tensor | RecurrentState]:
    """Return zeros, as None, and a state with a history that wants gradients."""
    hx = make_state(rnn, batch)
    for tensor in tensors_of(hx):
        tensor.requires_grad_()
    return None, hx


def check_against_reference(rnn: SearchedRNN, lengths: tuple[int, ...] = LENGTHS, seed: int = 2) -> None:
    """Compare outputs, final state and every gradient, from zeros and from a state with a history."""
    sequences = [s.requires_grad_() for s in make_sequences(lengths, rnn.input_size, seed)]
    for hx in start_states(rnn, len(lengths)):
        given_tensors = tensors_of(hx) if hx is not None else []
        names = ["input"] * len(sequences) + [name for name, _ in rnn.named_parameters()] + ["hx"] * len(given_tensors)
        expected, wanted = run_reference(rnn, sequences, hx)
        outputs, state = run_packed(rnn, sequences, hx)
        actual = outputs + tensors_of(state)
        assert_same(actual, expected, what="result")
        found = gradients(actual, [*sequences, *rnn.parameters(), *given_tensors])
        for name, a, e in zip(names, found, wanted, strict=True):
            assert_same([a], [e], what=f"gradient of {name}")


def amplifies_rounding(rnn: SearchedRNN, lengths: tuple[int, ...], seed: int) -> bool:
    """Return True if the reference moves by a tenth of the tolerance when the inputs move by a rounding each."""
    sequences = [s.requires_grad_() for s in make_sequences(lengths, rnn.input_size, seed)]
    rounded = [torch.nextafter(s.detach(), torch.zeros_like(s)).requires_grad_() for s in sequences]
    for hx in start_states(rnn, len(lengths)):
        (results, found), (others, moved) = run_reference(rnn, sequences, hx), run_reference(rnn, rounded, hx)
        try:
            assert_same(others + moved, results + found, 1e-13)
        except AssertionError:
            return True
    return False


# --- the mathematics


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_names())
def test_bundled_genotypes_equal_the_reference(name: str) -> None:
    check_against_reference(make_rnn(load_genotype(name)))


@pytest.mark.slow
@settings(max_examples=50, derandomize=True, database=None)
@given(
    genotype=genotypes(),
    num_layers=st.integers(1, 2),
    bidirectional=st.booleans(),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, 99),
)
def test_any_genotype_equals_the_reference(
    genotype: Genotype, num_layers: int, bidirectional: bool, lengths: tuple[int, ...], seed: int
) -> None:
    rnn = make_rnn(genotype, num_layers=num_layers, bidirectional=bidirectional)
    assume(not amplifies_rounding(rnn, lengths, seed))  # about one in a thousand: no two engines agree on them
    check_against_reference(rnn, lengths, seed)


def cell(*nodes: tuple[Edge, ...], output: tuple[int, ...] | None = None, **options: Any) -> Genotype:
    """Return a genotype without gates; its last node is the output unless said."""
    defaults = {"state_gate": None, "input_gate": None, "highway": True, "combine": "sum", "gate": "product"}
    return Genotype(nodes=nodes, output=output or (len(nodes),), **{**defaults, **options}, origin={})


def test_parameters_have_the_names_shapes_and_range_of_the_contract() -> None:
    rnn = SearchedRNN(300, 200, random_genotype(0, nodes=5, history=3), num_layers=2, bidirectional=True)
    assert len(rnn.cells) == 4
    for k, searched_cell in enumerate(rnn.cells):
        width = 300 if k < 2 else 400
        assert {name: tuple(weight.shape) for name, weight in searched_cell.named_parameters()} == {
            "weight_input": (width, 400),
            "weight_hidden": (200, 400),
            "weight_nodes": (5, 200, 400),
            "state_gate.weight_entry": (3, width, 200),
            "state_gate.weight_nodes": (3, 200, 200),
            "input_gate.weight_entry": (3, 200, width),
            "input_gate.weight_nodes": (3, width, width),
        }
        for weight in (searched_cell.weight_input, searched_cell.weight_hidden, searched_cell.weight_nodes):
            assert weight.abs().max() <= 1.5 / 200**0.5  # 1.5 / √H by default
            assert weight.std().item() == pytest.approx(1.5 / 200**0.5 / 3**0.5, rel=0.02)
        for gate in (searched_cell.state_gate, searched_cell.input_gate):  # each matrix by its own rows
            for weight in gate.parameters():
                most = 1.5 / weight.shape[1] ** 0.5
                assert weight.abs().max() <= most
                assert weight.std().item() == pytest.approx(most / 3**0.5, rel=0.05)
    plain = SearchedRNN(D, H, cell((Edge("relu", 0),), highway=False), init_range=0.5)
    shapes = {name: tuple(weight.shape) for name, weight in plain.cells[0].named_parameters()}
    assert shapes == {"weight_input": (D, H), "weight_hidden": (H, H), "weight_nodes": (1, H, H)}
    assert 0.04 < plain.cells[0].weight_nodes.abs().max() <= 0.5


# --- batches, directions, segments


@pytest.mark.slow
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_every_way_to_hand_in_a_batch_gives_the_same(genotype: Genotype) -> None:
    rnn = make_rnn(genotype, num_layers=2, bidirectional=True)
    first = make_rnn(genotype, num_layers=2, bidirectional=True, batch_first=True)
    sequences = make_sequences()
    hx = make_state(rnn, len(sequences))

    def part(b: int) -> Tensor | RecurrentState:
        """Return the state of sequence b alone, still with a batch dimension."""
        if isinstance(hx, Tensor):
            return hx[:, b : b + 1]
        pick = [[t[:, b : b + 1] for t in ts] for ts in (hx.inputs, hx.states)]
        return RecurrentState(hidden=hx.hidden[:, b : b + 1], inputs=tuple(pick[0]), states=tuple(pick[1]))

    # One by one without padding is the standard.
    alone = [rnn(s[:, None], part(b)) for b, s in enumerate(sequences)]
    expected = [output[:, 0] for output, _ in alone]
    expected += [torch.cat(parts, dim=1) for parts in zip(*(tensors_of(state) for _, state in alone), strict=True)]
    outputs, state = run_packed(rnn, sequences, hx)
    assert_same(outputs + tensors_of(state), expected)

    # Padded, with garbage where the padding is; sorted by hand, and batch first.
    padded = pad_sequence(sequences, batch_first=True, padding_value=float("nan"))
    packed = pack_padded_sequence(padded, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    output, state = first(packed, hx)
    assert isinstance(output, PackedSequence)
    assert torch.equal(output.unsorted_indices, packed.unsorted_indices)
    values = pad_packed_sequence(output, batch_first=True)[0]
    assert_same([values[b, :n] for b, n in enumerate(LENGTHS)] + tensors_of(state), expected)
    order = sorted(range(len(LENGTHS)), key=lambda b: -LENGTHS[b])
    in_order = pack_sequence([sequences[b] for b in order])
    output, state = rnn(in_order)
    assert output.sorted_indices is None
    zero_start = run_packed(rnn, sequences)
    values = pad_packed_sequence(output)[0]
    assert_same([values[: LENGTHS[b], i] for i, b in enumerate(order)], [zero_start[0][b] for b in order])
    assert_same([t[:, order] for t in tensors_of(zero_start[1])], tensors_of(state))

    # A full batch, both ways round.
    full = torch.stack(make_sequences((5, 5, 5)))
    expected_output, expected_state = rnn(full.transpose(0, 1), hx)
    output, state = first(full, hx)
    assert_same([output.transpose(0, 1), *tensors_of(state)], [expected_output, *tensors_of(expected_state)])


@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_one_sequence_without_a_batch_dimension_loses_it_in_output_and_state(genotype: Genotype) -> None:
    rnn = make_rnn(genotype, num_layers=2, bidirectional=True)
    first = make_rnn(genotype, num_layers=2, bidirectional=True, batch_first=True)
    (x,) = make_sequences((5,))
    output, state = rnn(x)
    batched_output, batched_state = rnn(x[:, None])
    assert_same([output], [batched_output[:, 0]])
    assert_same([first(x)[0]], [output])  # batch_first does not concern it
    continued = rnn(x[:, None], batched_state)[0][:, 0]
    assert_same([rnn(x, state)[0]], [continued])
    assert_same(tensors_of(state), [t.squeeze(1) for t in tensors_of(batched_state)], what="state")


@pytest.mark.slow
@pytest.mark.parametrize("history", range(4))
def test_a_sequence_cut_anywhere_continues_as_if_it_had_not_been(history: int) -> None:
    rnn = make_rnn(random_genotype(7, nodes=3, edges_per_node=2, history=history), num_layers=2)
    x = torch.stack(make_sequences((5, 5)), dim=1)
    hx = make_state(rnn, 2)
    output, state = rnn(x, hx)
    expected = [output, *tensors_of(state)]
    pieces = [(cut, 5 - cut) for cut in range(1, 5)] + [(1, 1, 1, 1, 1), (2, 1, 2)]  # also shorter than the history
    for sizes in pieces:
        outputs, state = [], hx
        for piece in x.split(sizes):
            output, state = rnn(piece, state)
            outputs.append(output)
        assert_same([torch.cat(outputs), *tensors_of(state)], expected)

    # Ragged: every sequence goes on from its own end.
    sequences = make_sequences((5, 3, 4))
    whole, final = run_packed(rnn, sequences)
    left, state = run_packed(rnn, [s[:n] for s, n in zip(sequences, (1, 2, 3), strict=True)])
    right, state = run_packed(rnn, [s[n:] for s, n in zip(sequences, (1, 2, 3), strict=True)], state)
    joined = [torch.cat(parts) for parts in zip(left, right, strict=True)]
    assert_same(joined + tensors_of(state), whole + tensors_of(final))


def test_a_plain_tensor_starts_a_gated_layer_with_an_empty_history() -> None:
    rnn = make_rnn(GATED, num_layers=2)
    x = torch.stack(make_sequences((4, 4)), dim=1)
    hx = make_state(rnn, 2, torch.zeros)
    with_history, with_tensor, with_none = rnn(x, hx), rnn(x, hx.hidden), rnn(x)
    assert isinstance(with_tensor[1], RecurrentState)
    assert_same([with_tensor[0], *tensors_of(with_tensor[1])], [with_history[0], *tensors_of(with_history[1])])
    zeros = rnn(x, torch.zeros_like(hx.hidden))
    assert_same([with_none[0], *tensors_of(with_none[1])], [zeros[0], *tensors_of(zeros[1])])


@pytest.mark.slow
def test_very_short_and_very_long_sequences() -> None:
    check_against_reference(make_rnn(GATED), (1, 1))
    # A long one must not blow up the stack in the backward pass, whatever the graph looks like.
    rnn = make_rnn(random_genotype(8, nodes=1, history=1))
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.mul_(0.2)
    output, state = rnn(torch.randn(5000, 1, D, dtype=torch.float64))
    assert output.shape == (5000, 1, H)
    assert output.isfinite().all()
    assert_same([state.hidden], [output[-1:]])
    assert all(g.isfinite().all() for g in gradients([output], list(rnn.parameters())))


def test_dead_nodes_have_parameters_but_no_influence_and_no_gradient() -> None:
    live = (Edge("tanh", 0),), (Edge("relu", 1), Edge("sigmoid", 0))
    rnn = make_rnn(cell(*live, (Edge("sigmoid", 1),), (Edge("identity", 3),), output=(2,)))
    small = make_rnn(cell(*live))
    x = torch.stack(make_sequences((4, 4)), dim=1)
    weights = rnn.cells[0].weight_nodes
    assert weights.shape == (4, H, 2 * H)
    before = rnn(x)[0]
    before.sum().backward()
    assert weights.grad[:2].abs().min() > 0
    assert not weights.grad[2:].any()
    with torch.no_grad():
        weights[2:] = 1e3
        for name, weight in small.cells[0].named_parameters():
            source = rnn.cells[0].get_parameter(name)
            weight.copy_(source[:2] if name == "weight_nodes" else source)
    assert torch.equal(rnn(x)[0], before)
    assert_same([small(x)[0]], [before])


# --- dropout


def test_variational_dropout_equals_the_reference_with_the_masks_it_drew() -> None:
    """First weights whose output shows the masks; then, from the same seed, ordinary weights with those masks."""
    size, batch, p = 32, len(LENGTHS), 0.5
    genotype = cell((Edge("tanh", 0),), (Edge("relu", 1),), (Edge("identity", 1),), output=(2, 3))
    rnn = make_rnn(genotype, size, size, input_dropout=p, recurrent_dropout=p)
    weights = dict(rnn.cells[0].named_parameters())
    ordinary = {name: weight.detach().clone() for name, weight in weights.items()}
    eye = torch.eye(size, dtype=torch.float64)

    def show_mask(source: str, x: float, h: float) -> Tensor:
        """Zero weights make every gate a half, so a node halves s; the candidates of `source` pass what is masked."""
        with torch.no_grad():
            for weight in weights.values():
                weight.zero_()
            weights[source][:, size:] = eye
            torch.manual_seed(11)
            sequences = [torch.full((length, size), x).double() for length in LENGTHS]
            outputs, _ = run_packed(rnn, sequences, torch.full((1, batch, size), h).double())
        s0 = 4 * torch.stack([output[0] for output in outputs])  # after the first step; [batch, size]
        return torch.atanh(2 * s0 - h)  # s_0 = h / 2 + tanh(z) / 2

    x_mask, h_mask = show_mask("weight_input", 1.0, 0.0), show_mask("weight_hidden", 0.0, 1.0)
    for mask in (x_mask, h_mask):
        rounded = mask.round()
        assert_same([mask], [rounded], 1e-9)
        assert set(rounded.unique().tolist()) == {0.0, 1 / (1 - p)}
        assert len(rounded.unique(dim=0)) == batch, "the sequences of a batch draw their own masks"
        mask.copy_(rounded)
    assert not torch.equal(x_mask, h_mask)

    sequences = make_sequences(LENGTHS, size)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(ordinary[name] / 3)
        torch.manual_seed(11)
        outputs, _ = run_packed(rnn, sequences)
        expected = [run_sequence(genotype, weights, sequences[b], None, x_mask[b], h_mask[b])[0] for b in range(batch)]
    assert_same(outputs, expected)


def test_variational_dropout_of_an_elementwise_recurrence_equals_the_reference_with_the_masks_it_drew() -> None:
    size, batch, p = 32, len(LENGTHS), 0.5
    genotype = cell((Edge("relu", 0),), (Edge("tanh", 1), Edge("relu", 0)), output=(1, 2), recurrence="elementwise")
    rnn = make_rnn(genotype, size, size, input_dropout=p, recurrent_dropout=p)
    bare = make_rnn(replace(genotype, nodes=(), output=()), size, size, input_dropout=p, recurrent_dropout=p)
    weights = dict(bare.cells[0].named_parameters())

    def show(x: float, h: float) -> Tensor:
        """Return s_0 after one step, [batch, size], for z = the masked x, and a gate of σ(the masked h)."""
        with torch.no_grad():
            weights["weight_input"].copy_(torch.cat([torch.zeros(size, size), torch.eye(size)], dim=1))
            weights["weight_hidden"].fill_(1)
            torch.manual_seed(11)
            inputs = [torch.full((length, size), x).double() for length in LENGTHS]
            outputs, _ = run_packed(bare, inputs, torch.full((1, batch, size), h).double())
        return torch.stack([output[0] for output in outputs])

    x_mask, h_mask = torch.atanh(2 * show(1.0, 0.0)), torch.logit(1 - show(0.0, 1.0))
    for mask in (x_mask, h_mask):
        rounded = mask.round()
        assert_same([mask], [rounded], 1e-9)
        assert set(rounded.unique().tolist()) == {0.0, 1 / (1 - p)}
        mask.copy_(rounded)

    sequences, weights = make_sequences(LENGTHS, size), dict(rnn.cells[0].named_parameters())
    state = make_state(rnn, batch)
    leaves = [state.requires_grad_(), *weights.values()]
    torch.manual_seed(11)
    outputs, _ = run_packed(rnn, sequences, state)
    starts = [State(h, [], []) for h in state[0]]
    expected = [run_sequence(genotype, weights, *case)[0] for case in zip(sequences, starts, x_mask, h_mask)]
    assert_same(outputs, expected)
    assert_same(gradients(outputs, leaves), gradients(expected, leaves))


def test_the_loop_of_an_elementwise_recurrence_passes_gradcheck() -> None:
    rnn = make_rnn(cell((Edge("tanh", 0),), (Edge("sigmoid", 1),), recurrence="elementwise"))
    inputs = [tensor.requires_grad_() for tensor in (*make_sequences(), make_state(rnn, len(LENGTHS)))]
    names = [name for name, _ in rnn.named_parameters()]

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        *sequences, state = tensors[: len(inputs)]
        packed = pack_sequence(sequences, enforce_sorted=False)
        output, final = torch.func.functional_call(rnn, dict(zip(names, tensors[len(inputs) :])), (packed, state))
        return output.data, final

    assert torch.autograd.gradcheck(run, [*inputs, *rnn.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_dropout_is_drawn_from_the_seed_and_sleeps_in_evaluation(genotype: Genotype) -> None:
    rates = {"dropout": 0.5, "input_dropout": 0.5, "recurrent_dropout": 0.5}
    sequences = make_sequences((6, 4, 5), 8)
    plain = make_rnn(genotype, 8, 8, num_layers=2)
    for name, rate in rates.items():
        rnn = make_rnn(genotype, 8, 8, num_layers=2, **{name: rate})

        def run(seed: int, rnn: SearchedRNN = rnn) -> list[Tensor]:
            torch.manual_seed(seed)
            outputs, state = run_packed(rnn, sequences)
            return outputs + tensors_of(state)

        once, again, other = run(1), run(1), run(2)
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True)), name
        assert not torch.equal(once[0], other[0]), name
        rnn.eval()
        standard, state = run_packed(plain, sequences)
        assert_same(run(1), standard + tensors_of(state))
        if name == "dropout":  # between the layers: the first one's state does not feel it, the second one's does
            hidden = once[len(sequences)]
            assert_same([hidden[0]], [tensors_of(state)[0][0]])
            assert not torch.equal(hidden[1], tensors_of(state)[0][1])
        if isinstance(state, RecurrentState):  # a history holds what was given: the next segment masks it itself
            assert_same([once[len(sequences) + 1]], [state.inputs[0]])


# --- a good citizen of PyTorch


@pytest.mark.slow
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_copies_pickles_and_state_dicts_are_the_same_layer(genotype: Genotype) -> None:
    rnn = make_rnn(genotype, num_layers=2, bidirectional=True)
    sequences = make_sequences()
    outputs, state = run_packed(rnn, sequences)  # run before it is copied: nothing cached may stand in the way
    fresh = SearchedRNN(D, H, genotype, num_layers=2, bidirectional=True).double()
    assert not torch.equal(run_packed(fresh, sequences)[0][0], outputs[0])
    fresh.load_state_dict(rnn.state_dict())
    assert set(rnn.state_dict()) == {name for name, _ in rnn.named_parameters()}
    copied = copy.deepcopy(rnn)
    for twin in (fresh, copied, pickle.loads(pickle.dumps(rnn))):
        assert twin.genotype == genotype
        again, again_state = run_packed(twin, sequences)
        assert all(torch.equal(a, b) for a, b in zip(again, outputs, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(again_state), tensors_of(state), strict=True))
    with torch.no_grad():
        copied.cells[0].weight_hidden.zero_()
    assert torch.equal(run_packed(rnn, sequences)[0][0], outputs[0])  # a copy shares no weight
    assert tensors_of(pickle.loads(pickle.dumps(state)))[0].equal(tensors_of(state)[0])


@pytest.mark.slow
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_other_dtypes_and_autocast_stay_close(genotype: Genotype) -> None:
    rnn = make_rnn(genotype, 8, 8, num_layers=2, bidirectional=True).float()
    x = torch.stack(make_sequences((6, 6), 8), dim=1).float()
    expected, expected_state = rnn(x)
    expected.square().mean().backward()
    wanted = [p.grad.clone() for p in rnn.parameters()]
    for dtype, tolerance in ((torch.float64, 1e-5), (torch.float16, 0.01), (torch.bfloat16, 0.06)):
        moved = copy.deepcopy(rnn).to(dtype)
        output, state = moved(x.to(dtype))
        assert output.dtype == dtype
        assert all(t.dtype == dtype for t in tensors_of(state))
        assert_same([output.float()], [expected.float()], tolerance)
    rnn.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = rnn(x)
        rnn(x, state)  # whatever dtype autocast left the state in
        packed, _ = rnn(pack_padded_sequence(x, torch.tensor([6, 3])), expected_state)
        assert packed.data.isfinite().all()
    assert_same([output.float()], [expected], 0.06)
    output.float().square().mean().backward()
    for parameter, gradient in zip(rnn.parameters(), wanted, strict=True):
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - gradient).norm() <= 0.1 * gradient.norm() + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_attributes_and_shapes_are_those_of_gru(num_layers: int, bidirectional: bool, batch_first: bool) -> None:
    options = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first}
    gru = nn.GRU(D, H, dropout=0.25 if num_layers > 1 else 0.0, **options)
    rnn = SearchedRNN(D, H, UNGATED, dropout=gru.dropout, **options)
    for name in ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first", "dropout"):
        assert getattr(rnn, name) == getattr(gru, name), name
    for shape in ((5, 2, D), (5, D), (0, 5, D) if batch_first else (5, 0, D)):
        x = torch.randn(shape)
        (output, state), (gru_output, gru_state) = rnn(x), gru(x)
        assert (output.shape, state.shape) == (gru_output.shape, gru_state.shape)
        assert rnn(x, torch.zeros_like(gru_state))[0].shape == gru_output.shape
    packed = pack_sequence([torch.randn(n, D) for n in LENGTHS], enforce_sorted=False)
    (output, state), (gru_output, gru_state) = rnn(packed), gru(packed)
    assert (output.data.shape, state.shape) == (gru_output.data.shape, gru_state.shape)
    for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        assert torch.equal(getattr(output, name), getattr(gru_output, name)), name


@pytest.mark.slow
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_an_empty_batch_gives_an_empty_batch_and_gradients_of_zero(genotype: Genotype) -> None:
    """As `nn.LSTM` and `nn.GRU` do, with dropouts too, and in the middle of a loop over batches."""
    options = {"num_layers": 2, "bidirectional": True, "dropout": 0.5, "input_dropout": 0.5, "recurrent_dropout": 0.5}
    rnn = make_rnn(genotype, **options)
    x = torch.randn(5, 0, D, dtype=torch.float64, requires_grad=True)
    output, state = rnn(x)
    again, _ = rnn(x, state)
    assert output.shape == again.shape == (5, 0, 2 * H)
    assert [tensor.shape for tensor in tensors_of(state)] == [tensor.shape for tensor in tensors_of(make_state(rnn, 0))]
    (output.sum() + again.sum()).backward()
    assert x.grad is not None and x.grad.shape == x.shape
    assert all(p.grad is None or not p.grad.any() for p in rnn.parameters())
    assert any(p.grad is not None for p in rnn.parameters())


@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_device_and_dtype_are_taken_as_by_modules_of_torch(genotype: Genotype) -> None:
    rnn = SearchedRNN(D, H, genotype, 2, bidirectional=True, device="cpu", dtype=torch.float64)
    assert {parameter.dtype for parameter in rnn.parameters()} == {torch.float64}
    assert rnn(torch.randn(5, 2, D, dtype=torch.float64))[0].dtype == torch.float64
    sketch = SearchedRNN(D, H, genotype, 2, bidirectional=True, device="meta")
    assert {parameter.device.type for parameter in sketch.parameters()} == {"meta"}
    sketch.load_state_dict(rnn.float().state_dict(), assign=True)
    x = torch.randn(5, 2, D)
    assert torch.equal(sketch(x)[0], rnn(x)[0])
    skipped = nn.utils.skip_init(SearchedRNN, D, H, genotype, device="cpu")  # takes modules with `device` alone
    assert {parameter.device.type for parameter in skipped.parameters()} == {"cpu"}


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((0, H), {}, ["input_size", "0"]),
        ((D, 0), {}, ["hidden_size", "0"]),
        ((D, -1), {}, ["hidden_size", "-1"]),
        ((D, H), {"num_layers": 0}, ["num_layers", "0"]),
        ((D, H), {"dropout": 1.5}, ["dropout", "1.5"]),
        ((D, H), {"input_dropout": -0.5}, ["input_dropout", "-0.5"]),
        ((D, H), {"recurrent_dropout": 2.0}, ["recurrent_dropout", "2.0"]),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: tuple, options: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(said[0])}.*{re.escape(said[1])}"):
        SearchedRNN(*arguments, UNGATED, **options)


def gated_state(hidden: tuple[int, ...], inputs: tuple[int, ...], states: tuple[int, ...]) -> RecurrentState:
    return RecurrentState(torch.zeros(hidden), (torch.zeros(inputs),), (torch.zeros(states),))


GOOD = ((1, 2, H), (3, 2, D), (2, 2, H))  # hidden, inputs and states of one GATED layer


X = torch.zeros(5, 2, D)

BAD_INPUT = {  # genotype, input, hx, and what the message has to say: what was given, what was expected
    "features": (UNGATED, torch.zeros(5, 2, 7), None, ["7", "3"]),
    "packed features": (UNGATED, pack_sequence([torch.zeros(5, 7)]), None, ["7", "3"]),
    "float64": (UNGATED, X.double(), None, ["float64", "float32"]),
    "int64": (UNGATED, X.long(), None, ["int64", "float32"]),
    "bool": (UNGATED, X.bool(), None, ["bool", "float32"]),
    "1 dimension": (UNGATED, torch.zeros(D), None, ["(3", "T, B, D"]),
    "4 dimensions": (UNGATED, torch.zeros(1, 5, 2, D), None, ["(1, 5, 2, 3)", "T, B, D"]),
    "hx batch": (UNGATED, X, torch.zeros(1, 3, H), ["(1, 3, 4)", "(1, 2, 4)"]),
    "hx dimensions": (UNGATED, X, torch.zeros(2, H), ["(2, 4)", "(1, 2, 4)"]),
    "hx batch, packed": (UNGATED, pack_sequence([X[:, 0]]), torch.zeros(1, 2, H), ["(1, 2, 4)", "(1, 1, 4)"]),
    "hx float64": (UNGATED, X, torch.zeros(1, 2, H).double(), ["float64", "float32"]),
    "hx (h, c) of an LSTM": (UNGATED, X, (torch.zeros(1, 2, H), torch.zeros(1, 2, H)), ["tuple"]),
    "hx with a history, no gates": (UNGATED, X, gated_state(*GOOD), ["hx"]),
    "gated hx batch": (GATED, X, torch.zeros(1, 3, H), ["(1, 3, 4)", "(1, 2, 4)"]),
    "gated hidden": (GATED, X, gated_state((1, 3, H), *GOOD[1:]), ["(1, 3, 4)", "(1, 2, 4)"]),
    "gated inputs": (GATED, X, gated_state(GOOD[0], (2, 2, D), GOOD[2]), ["(2, 2, 3)", "(3, 2, 3)"]),
    "gated states": (GATED, X, gated_state(*GOOD[:2], (3, 2, H)), ["(3, 2, 4)", "(2, 2, 4)"]),
    "gated without histories": (GATED, X, RecurrentState(torch.zeros(GOOD[0]), (), ()), ["1", "0"]),
}


@pytest.mark.parametrize(("genotype", "x", "hx", "said"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused_with_what_was_given_and_expected(
    genotype: Genotype, x: Any, hx: Any, said: list[str]
) -> None:
    with pytest.raises((ValueError, RuntimeError)) as caught:
        SearchedRNN(D, H, genotype)(x, hx)
    text = str(caught.value).replace("[", "(").replace("]", ")")  # shapes in either bracket
    assert all(word in text for word in said), text
    assert "must match the size" not in text, "an accident of the arithmetic, not a check"
    assert "cannot be multiplied" not in text, "an accident of the arithmetic, not a check"


@pytest.mark.parametrize("shape", [(0, 2, D), (0, 0, D), (0, D)], ids=["padded", "empty batch", "unbatched"])
@pytest.mark.parametrize("genotype", [UNGATED, GATED], ids=["ungated", "gated"])
def test_an_empty_sequence_is_named_as_such(genotype: Genotype, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"(?i)empty|length|step"):
        SearchedRNN(D, H, genotype)(torch.zeros(shape))


def test_a_silent_genotype_gives_zeros_for_any_weights_and_warns() -> None:
    silent = replace(Genotype.parse("tanh0-relu1/input=tanh-relu+tanh1"), gate="product")
    with pytest.warns(UserWarning, match="nothing is learned"):
        rnn = SearchedRNN(3, 4, silent, init_range=1.0)
    assert not rnn(torch.randn(5, 2, 3))[0].any()
    assert rnn(torch.randn(5, 2, 3), torch.ones(1, 2, 4))[0].abs().min() > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainable = SearchedRNN(3, 4, replace(silent, gate="residual"))
    assert trainable(torch.randn(5, 2, 3))[0].any()


def test_backward_frees_the_graph_unless_it_is_retained() -> None:
    rnn, data = SearchedRNN(3, 4, load_genotype("ess-ptb")), torch.randn(5, 2, 3)
    total = rnn(data)[0].sum()
    total.backward(retain_graph=True)
    once = rnn.cells[0].weight_nodes.grad.clone()
    total.backward()
    assert torch.allclose(rnn.cells[0].weight_nodes.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


@pytest.mark.parametrize("sizes", [[5, -5], [3, 3, 3], [1, 2, 2], [300] * 3, [5, 0], [0, 5], [4]])
def test_sizes_that_pytorch_does_not_make_are_refused(sizes: list[int]) -> None:
    """Native kernels read beyond the data with some, and ended the process with others."""
    rnn = SearchedRNN(3, 4, load_genotype("darts-v2"))
    packed = PackedSequence(torch.randn(5, 3), torch.tensor(sizes))
    with pytest.raises(
        ValueError, match="batch_sizes of a PackedSequence must be positive, never grow, and be 5 in all"
    ):
        rnn(packed)


@pytest.mark.parametrize("init_range", [0.0, -1.0, float("inf"), float("nan"), 1e39])
def test_a_start_of_weights_that_no_weights_can_have_is_refused(init_range: float) -> None:
    with pytest.raises(ValueError, match="init_range must be positive and at most 1e6"):
        SearchedRNN(3, 4, load_genotype("darts-v2"), init_range=init_range)


@pytest.mark.slow
@settings(max_examples=2, derandomize=True, database=None)
@given(genotype=genotypes(version=2), spread=st.sampled_from([0.3, 2.0, 20.0]), seed=st.integers(0, 99))
def test_a_cell_of_bounded_operations_stays_bounded_whatever_its_gates(
    genotype: Genotype, spread: float, seed: int
) -> None:
    """Every state is then a convex combination of values in [-1, 1]; over 2,000 steps."""
    bounded = tuple(tuple({Edge(op, e.tail) for e in edges for op in ("tanh", "sigmoid")}) for edges in genotype.nodes)
    gate = Gate((GateNode("identity"), GateNode("relu", (Edge("identity", 1),))))  # which nothing bounds
    gates = {"state_gate": gate, "input_gate": gate, "highway": True, "combine": "mean", "carry": "ungated"}
    rnn = make_rnn(replace(genotype, nodes=bounded, **gates))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.normal_(0, spread, generator=generator)
        x = torch.randn(2000, 1, D, generator=generator, dtype=torch.float64) * spread
        largest = rnn(x)[0].abs().max().item()
    assert 0.01 < largest <= 1 + 1e-12


def test_a_name_in_place_of_a_genotype_is_refused() -> None:
    with pytest.raises(TypeError, match="genotype must be a flair_nas.Genotype, as load_genotype makes it, got 'dar"):
        SearchedRNN(3, 4, "darts-v2")  # type: ignore[arg-type]


def test_a_layer_that_was_pickled_before_there_were_other_recurrences_runs() -> None:
    rnn = make_rnn(UNGATED)
    for pickled in rnn.cells:
        del pickled.__dict__["recurrence"]
    data = torch.randn(3, 2, D, dtype=torch.float64)
    assert torch.equal(pickle.loads(pickle.dumps(rnn))(data)[0], make_rnn(UNGATED)(data)[0])


@pytest.mark.parametrize("sizes", [{"bidirectional": True}, {"num_layers": 2}])
def test_a_state_of_two_is_not_split_as_that_of_an_lstm(sizes: dict[str, Any]) -> None:
    layer = SearchedRNN(3, 4, load_genotype("small-relu-tanh"), **sizes)
    for data in (torch.randn(5, 2, 3), torch.randn(5, 3), pack_sequence([torch.randn(5, 3), torch.randn(4, 3)])):
        with pytest.raises(TypeError, match=r"one tensor of two layers or directions.* `output, state = rnn\(x\)`"):
            _, (_, _) = layer(data)
        _, state = layer(data)
        assert torch.equal(torch.stack(state.unbind()), state) and torch.equal(state[-1], state[1:][0])
        assert type(state[0]) is type(state * 2) is type(state.detach()) is torch.Tensor
        layer(data, state)[1].sum().backward()
    with torch.no_grad():
        _, state = layer(torch.randn(5, 2, 3))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for copied in (torch.load(file, weights_only=True), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert type(copied) is torch.Tensor and torch.equal(copied, state)


def test_weights_of_another_genotype_are_refused_and_both_are_named() -> None:
    tanh, relu = (SearchedRNN(3, 4, load_genotype(name), bidirectional=True) for name in ("small-tanh", "small-relu"))
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(tanh).state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert list(saved) == list(torch.nn.Sequential(relu).state_dict())  # no key beside the weights
    for strict in (True, False):
        with pytest.raises(RuntimeError, match="the weights are of tanh0, and this layer is relu0"):
            torch.nn.Sequential(relu).load_state_dict(saved, strict=strict)
    again = SearchedRNN(3, 4, dataclasses.replace(load_genotype("small-tanh"), origin={}), bidirectional=True)
    torch.nn.Sequential(again).load_state_dict(saved)
    relu.load_state_dict(dict(tanh.state_dict()))  # as files have it that are older, or of safetensors
    assert torch.equal(relu.cells[0].weight_input, again.cells[0].weight_input)
