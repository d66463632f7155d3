"""The supernets against an independent oracle in float64, against the cells derived from them and each other."""

import statistics
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from reference import assert_same, gradients, tensors_of
from reference_supernet import OPS, BatchNorm, State, as_sets, derive_nodes, edges_of_rows, leave, run_sequence
from reference_supernet import derive_gate as gate_by_brute_force
from torch import Tensor, nn

from flair_nas.genotype import Edge, Gate, GateNode, Genotype, random_genotype
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.nn.state import RecurrentState
from flair_nas.supernet import CellSupernet, InterCellSupernet, derive

pytestmark = pytest.mark.usefixtures("kernels")  # all of it on every engine

D, H, N, B, T = 3, 4, 3, 5, 4  # all different, so that a mix-up cannot pass
LARGE = 1e4  # a logit whose softmax is 1, exactly
relaxations = pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
CELL = random_genotype(7, nodes=3, edges_per_node=2)
STATE_GATE = Gate((GateNode("tanh"), GateNode("relu", (Edge("sigmoid", 1),)), GateNode("identity", (Edge("tanh", 2),))))
# a sigmoid as first entry: without one, the product form closes, and batch norm makes signals of rounding errors
INPUT_GATE = Gate((GateNode("sigmoid"), GateNode("tanh", (Edge("relu", 1), Edge("identity", 1)))))


class Case:
    """A supernet in float64 together with what the oracle has to know of it."""

    def __init__(self, relaxation: str = "darts", training: bool = True, **options: Any) -> None:
        self.relaxation, self.cell = relaxation, options.pop("cell", None)
        self.gate, self.gates = options.get("gate", "residual"), options.get("fixed_gates")
        self.carry = self.gates.carry if self.gates else options.get("carry", "ungated")
        history = options.get("history", 0)
        self.lags = (history, history)  # how many past inputs and past states are read
        if self.gates is not None:
            self.lags = tuple(len(g.nodes) if g else 0 for g in (self.gates.state_gate, self.gates.input_gate))
        self.batch_norm = options.get("batch_norm", self.cell is None)
        torch.manual_seed(1)
        if self.cell is None:
            options = {"nodes": N, "relaxation": relaxation, **options}
            self.net: Any = CellSupernet(options.pop("input_size", D), options.pop("hidden_size", H), **options)
        else:
            options.pop("history")
            self.net = InterCellSupernet(D, H, self.cell, history, relaxation, **options)
        self.net = self.net.double().train(training)
        with torch.no_grad():  # large enough for every gradient to be felt
            for name, parameter in self.net.named_parameters():
                parameter.normal_() if "arch" in name else parameter.uniform_(-0.7, 0.7)
            for name, buffer in self.net.named_buffers():
                if "running" in name:
                    buffer.uniform_(0.3, 1.5)

    def parameters(self) -> dict[str, Tensor]:
        """The parameters by the names that they have in a layer; a fixed cell keeps them one module deeper."""
        return {name.removeprefix("cell."): parameter for name, parameter in self.net.named_parameters()}

    def run(self, xs: Tensor, hx: Any = None) -> list[Tensor]:
        output, state = self.net(xs, hx)
        return [output, *tensors_of(state)]

    def oracle(self, xs: Tensor, hx: Any = None, **masks: Tensor) -> tuple[list[Tensor], Any]:
        """Return output, final state and the oracle's batch norm after the run."""
        norm: Any = leave
        if self.batch_norm:
            norm, own = BatchNorm(H, self.net.training), self.net.norm
            norm.running_mean, norm.running_var = own.running_mean.clone(), own.running_var.clone()
        start = None
        m_inputs, m_states = self.lags
        if isinstance(hx, RecurrentState):
            start = State(hx.hidden[0], list(hx.inputs[0]), list(hx.states[0]))
        elif hx is not None:
            start = State(hx[0], [torch.zeros_like(xs[0])] * m_inputs, [torch.zeros_like(hx[0])] * max(m_states - 1, 0))
        output, state = run_sequence(
            self.parameters(), self.relaxation, xs, start,
            history=m_inputs, gate=self.gate, carry=self.carry, cell=self.cell, gates=self.gates, norm=norm, **masks,
        )  # fmt: skip
        results = [output, state.hidden.unsqueeze(0)]
        if any(self.lags):
            for vectors, width in ((state.inputs, D), (state.states, H)):
                results.append(torch.stack(vectors) if vectors else output.new_zeros(0, xs.shape[1], width))
        return results, norm

    def state(self, batch: int = B) -> Any:
        """A random state to go on from."""
        generator = torch.Generator().manual_seed(3)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        (m_inputs, m_states), hidden = self.lags, draw(1, batch, H)
        if not any(self.lags):
            return hidden
        inputs, states = draw(m_inputs, batch, D), draw(max(m_states - 1, 0), batch, H)
        return RecurrentState(hidden=hidden, inputs=(inputs,), states=(states,))


def inputs(steps: int = T, batch: int = B, width: int = D, seed: int = 2) -> Tensor:
    return torch.randn(steps, batch, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_against_oracle(case: Case, xs: Tensor, hx: Any = None, tolerance: float = 1e-11, **masks: Tensor) -> None:
    """Compare output, final state, every gradient and the running statistics."""
    xs = xs.clone().requires_grad_()
    states = [] if hx is None else [tensor.requires_grad_() for tensor in tensors_of(hx)]
    leaves = [xs, *states, *case.net.parameters()]
    names = ["input"] + ["hx"] * len(states) + list(case.parameters())
    expected, norm = case.oracle(xs, hx, **masks)
    actual = case.run(xs, hx)
    assert_same(actual, expected, tolerance, "result")
    for name, a, e in zip(names, gradients(actual, leaves), gradients(expected, leaves), strict=True):
        assert_same([a], [e], tolerance, f"gradient of {name}")
    if case.batch_norm:
        statistics = [case.net.norm.running_mean, case.net.norm.running_var]
        assert_same(statistics, [norm.running_mean, norm.running_var], tolerance, "running statistics")
        steps = 1 if case.net.recurrence == "elementwise" else len(xs)
        assert norm.calls == (steps * (case.net.nodes + 1) if case.net.training else 0)


# --- forward and backward


@pytest.mark.slow
@relaxations
@pytest.mark.parametrize(
    "history, gate, carry", [(1, "residual", "ungated"), (2, "product", "ungated"), (3, "residual", "gated")]
)
@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_inter_cell_supernet_equals_the_oracle(
    combine: str, history: int, gate: str, carry: str, relaxation: str
) -> None:
    cell = replace(CELL, combine=combine, output=(1, 3))
    for carried in (False, True):
        case = Case(relaxation, cell=cell, history=history, gate=gate, carry=carry)
        check_against_oracle(case, inputs(), case.state() if carried else None)


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["product", "residual"])
@pytest.mark.parametrize("carry", ["ungated", "gated"])
@pytest.mark.parametrize("kept", ["state_gate", "input_gate", "both"])
def test_cell_supernet_with_fixed_gates_equals_the_oracle(kept: str, carry: str, gate: str) -> None:
    """As in joint learning, where the gates stay while the cell learns."""
    gates = replace(
        CELL,
        gate=gate,
        carry=carry,
        state_gate=None if kept == "input_gate" else STATE_GATE,
        input_gate=None if kept == "state_gate" else INPUT_GATE,
    )
    for carried in (False, True):
        case = Case("i-darts", fixed_gates=gates, gate=gate)
        check_against_oracle(case, inputs(), case.state() if carried else None)
    genotype = case.net.genotype()
    assert (genotype.state_gate, genotype.input_gate) == (gates.state_gate, gates.input_gate)
    assert genotype.options == gates.options


@pytest.mark.slow
@settings(max_examples=25, derandomize=True, database=None)
@given(
    nodes=st.integers(1, 4),
    history=st.integers(0, 4),
    relaxation=st.sampled_from(["darts", "i-darts"]),
    gate=st.sampled_from(["product", "residual"]),
    carry=st.sampled_from(["ungated", "gated"]),
    gate_links=st.booleans(),
    recurrence=st.sampled_from(["full", "full", "elementwise"]),
    batch_norm=st.booleans(),
    training=st.booleans(),
    steps=st.integers(1, 4),
    batch=st.integers(3, 6),
    carried=st.booleans(),
)
def test_any_supernet_equals_the_oracle(steps: int, batch: int, carried: bool, **options: Any) -> None:
    if options["recurrence"] == "elementwise":
        options["history"] = 0
    case = Case(**options)
    check_against_oracle(case, inputs(steps, batch), case.state(batch) if carried else None, 1e-10)


@pytest.mark.slow
@relaxations
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("history, recurrence", [(0, "full"), (3, "full"), (0, "elementwise")])
def test_every_engine_equals_the_equations(
    history: int, recurrence: str, training: bool, relaxation: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"history": history, "recurrence": recurrence, "input_dropout": 0.3, "recurrent_dropout": 0.3}
    collected = []
    for engine in (kernels, "plain"):
        monkeypatch.setenv("FLAIR_NAS_KERNELS", engine)
        case = Case(relaxation, training, **options)
        xs = inputs().requires_grad_()
        leaves = [xs, *case.net.parameters()]
        torch.manual_seed(5)  # the same masks
        results = case.run(xs, case.state())
        collected.append([*results, *gradients(results, leaves), *case.net.buffers()])
    assert_same(*collected, 1e-12)


@pytest.mark.parametrize("wanted", ["arch", "weight", "state_gate", "nothing but the input"])
def test_frozen_parameters_change_nothing_for_the_others(wanted: str) -> None:
    """As in joint learning, where one part of the architecture is fixed while the other learns."""
    case = Case(history=2)
    xs = inputs().requires_grad_()
    parameters = dict(case.net.named_parameters())
    results = case.run(xs)
    expected = dict(zip(["input", *parameters], gradients(results, [xs, *parameters.values()]), strict=True))
    for name, parameter in parameters.items():
        parameter.requires_grad_(wanted in name)
    leaves = {"input": xs, **{name: p for name, p in parameters.items() if p.requires_grad}}
    frozen = case.run(xs)
    assert_same(frozen, results, 1e-12)
    for name, gradient in zip(leaves, gradients(frozen, list(leaves.values())), strict=True):
        assert_same([gradient], [expected[name]], 1e-12, name)
    with torch.no_grad():
        assert_same(case.run(xs), results, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("history, recurrence", [(0, "full"), (2, "full"), (0, "elementwise")])
def test_mixed_precision_stays_close(history: int, recurrence: str) -> None:
    """Under autocast the products are bfloat16: three digits, and gradients for every parameter in its own dtype."""
    case = Case(history=history, recurrence=recurrence, training=False)  # nothing is amplified
    case.net.float()
    leaves, errors = list(case.net.parameters()), []
    for seed in range(9):  # of many inputs, as one whose states lie at the kink of relu may be far off, rightly
        xs = inputs(seed=seed).float()
        expected = case.run(xs)
        expected += gradients(expected, leaves)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actual = case.run(xs)
        assert actual[1].dtype == torch.float32
        actual = [result.float() for result in actual]
        actual += gradients(actual, leaves)
        assert [a.dtype for a in actual] == [e.dtype for e in expected]
        pairs = [(a.detach(), e.detach()) for a, e in zip(actual, expected, strict=True)]
        errors.append([float((a - e).norm() / (e.norm() + 1e-6)) for a, e in pairs])
    assert max(map(statistics.median, zip(*errors, strict=True))) <= 0.05
    case.net.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [result.float() for result in case.run(xs)]
    assert all(tensor.isfinite().all() for tensor in results + gradients(results, leaves))


# --- variational dropout


@pytest.mark.slow
@relaxations
@pytest.mark.parametrize("history", [0, 2])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_variational_dropout_equals_the_oracle_with_the_masks_it_drew(
    batch_norm: bool, history: int, relaxation: str
) -> None:
    """First weights whose output shows the masks; then, from the same seed, ordinary weights with those masks."""
    rates = {"input_dropout": 0.5, "recurrent_dropout": 0.75}
    options = {"history": history, **rates}

    def show_mask(source: str, x: float, h: float) -> Tensor:
        """Zero weights make every c and z zero, so a node halves s_0; `source` lets through what is masked."""
        case = Case(relaxation, nodes=1, batch_norm=False, **options)
        with torch.no_grad():
            for name, parameter in case.net.named_parameters():
                parameter.zero_()
                if "arch" in name:  # tanh everywhere: no gate, and a node that halves
                    parameter[:, OPS.index("tanh")] = LARGE
            weight = dict(case.net.named_parameters())[source]
            weight[:, H:] = torch.eye(len(weight), H, dtype=torch.float64)
            torch.manual_seed(11)
            output, _ = case.net(torch.full((1, B, D), x).double(), torch.full((1, B, H), h).double())
        s0 = 2 * output[0]  # [B, H]; the only node is s_0 / 2
        return torch.atanh(2 * s0 - h)  # s_0 = h / 2 + tanh(z) / 2

    x_mask, h_mask = show_mask("weight_input", 1.0, 0.0)[:, :D], show_mask("weight_hidden", 0.0, 1.0)
    for mask, p in ((x_mask, 0.5), (h_mask, 0.75)):
        rounded = mask.round()
        assert_same([mask], [rounded], 1e-9)
        assert set(rounded.unique().tolist()) == {0.0, 1 / (1 - p)}
        assert len(rounded.unique(dim=0)) > 1, "the sequences of a batch draw their own masks"
        mask.copy_(rounded)

    case = Case(relaxation, batch_norm=batch_norm, **options)
    expected, _ = case.oracle(inputs(), x_mask=x_mask, h_mask=h_mask)
    torch.manual_seed(11)
    assert_same(case.run(inputs()), expected, 1e-11)
    torch.manual_seed(11)
    check_against_oracle(case, inputs(), case.state(), x_mask=x_mask, h_mask=h_mask)


# --- one-hot: the derived cell


def pick_edges(seed: int, nodes: int, per_node: int = 1) -> list[list[tuple[int, int]]]:
    """Draw for each node `per_node` (tail, operation) with different tails as far as there are any, never `drop`."""
    generator = torch.Generator().manual_seed(seed)
    picked = []
    for head in range(1, nodes + 1):
        tails = torch.randperm(head, generator=generator)[:per_node].tolist()
        picked.append([(j, int(torch.randint(1, 5, (1,), generator=generator))) for j in sorted(tails)])
    return picked


def one_hot(picked: list[list[tuple[int, int]]], relaxation: str) -> Tensor:
    """Return architecture weights whose softmax is shared by the picked edges alone; pairs left out drop."""
    edges = edges_of_rows(sum(range(len(picked) + 1)))
    arch = torch.zeros(len(edges), 5, dtype=torch.float64)
    for row, (head, tail) in enumerate(edges):
        ops = [k for j, k in picked[head - 1] if j == tail]
        if ops or relaxation == "darts":
            arch[row, ops or [0]] = LARGE
    return arch


def cell_of(picked: list[list[tuple[int, int]]], **options: Any) -> Genotype:
    return Genotype(tuple(tuple(Edge(OPS[k], j) for j, k in node) for node in picked), **options)


def searched(genotype: Genotype, weights: dict[str, Tensor]) -> SearchedRNN:
    """Return the layer of a genotype with the supernet's weights, by name."""
    rnn = SearchedRNN(D, H, genotype).double()
    rnn.cells[0].load_state_dict({name: weights[name] for name, _ in rnn.cells[0].named_parameters()})
    return rnn


def assert_equals_layer(case: Case, genotype: Genotype) -> None:
    """Compare outputs, states and the gradients of the weights that the layer has."""
    own = case.parameters()
    rnn = searched(genotype, own)
    weights = dict(rnn.cells[0].named_parameters())
    for hx in (None, case.state()):
        xs = inputs().requires_grad_()
        output, state = rnn(xs, hx)
        expected, actual = [output, *tensors_of(state)], case.run(xs, hx)
        assert_same(actual, expected, 1e-12, "result")
        pairs = gradients(actual, [xs, *(own[name] for name in weights)]), gradients(expected, [xs, *weights.values()])
        for name, a, e in zip(["input", *weights], *pairs, strict=True):
            assert_same([a], [e], 1e-12, f"gradient of {name}")


@relaxations
@pytest.mark.parametrize("seed", [0, 1])
def test_one_hot_supernet_equals_the_derived_cell(seed: int, relaxation: str) -> None:
    picked = pick_edges(seed, 5)
    case = Case(relaxation, nodes=5, batch_norm=False)
    with torch.no_grad():
        case.net.arch.copy_(one_hot(picked, relaxation))
    genotype = case.net.genotype()
    assert genotype == cell_of(picked)
    assert_equals_layer(case, replace(genotype, combine="sum"))


@pytest.mark.parametrize("relaxation, combine", [("darts", "sum"), ("i-darts", "mean")])
def test_two_hot_supernet_equals_the_cell_with_two_edges(relaxation: str, combine: str) -> None:
    """Two pairs of one node each have a softmax of their own with DARTS, a half of one with I-DARTS."""
    picked = pick_edges(4, 5, per_node=2)
    case = Case(relaxation, nodes=5, batch_norm=False)
    with torch.no_grad():
        case.net.arch.copy_(one_hot(picked, relaxation))
    assert_equals_layer(case, cell_of(picked, combine=combine))


def pick_gate(seed: int, relaxation: str) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Draw the entries and edges of a gate of three nodes; some edges drop, and with I-DARTS each node has one at most.

    The edges are those of nodes 2 and 3, tails counted from 0, as the rows of architecture weights are.
    """
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randint(1, 5, (3,), generator=generator).tolist()
    edges = pick_edges(seed, 2, per_node=2 if relaxation == "darts" else 1)
    edges[1][-1] = (edges[1][-1][0], 0)  # an edge into node 3 drops
    return entries, edges


@pytest.mark.slow
@relaxations
@pytest.mark.parametrize("gate", ["product", "residual"])
@pytest.mark.parametrize("kind", ["fixed cell", "relaxed cell"])
@pytest.mark.filterwarnings("ignore:with gate='product' and no sigmoid")
def test_one_hot_gates_equal_the_derived_gates(kind: str, gate: str, relaxation: str) -> None:
    picked = pick_edges(2, 3)
    fixed = kind == "fixed cell"
    options: Any = {"cell": cell_of(picked)} if fixed else {"batch_norm": False}
    case = Case(relaxation, history=3, gate=gate, **options)
    parameters, gates = case.parameters(), {}
    with torch.no_grad():
        if not fixed:
            parameters["arch"].copy_(one_hot(picked, relaxation))
        for seed, name in enumerate(("state_gate", "input_gate")):
            entries, edges = pick_gate(seed, relaxation)
            parameters[f"{name}.arch_entry"].copy_(LARGE * nn.functional.one_hot(torch.tensor(entries), 5))
            parameters[f"{name}.arch"].copy_(one_hot(edges, relaxation))
            kept = [[], *[[Edge(OPS[k], j + 1) for j, k in node if k] for node in edges]]
            gates[name] = Gate(tuple(GateNode(OPS[k], tuple(node)) for k, node in zip(entries, kept, strict=True)))
    genotype = case.net.genotype()
    assert genotype == replace(cell_of(picked), **gates)
    assert genotype.gate == gate
    assert_equals_layer(case, replace(genotype, combine="sum"))


# --- deriving


@relaxations
def test_genotypes_of_supernets_are_what_their_matrices_derive_to(relaxation: str) -> None:
    for fixed in (False, True):
        case = Case(relaxation, history=3, gate="product", **({"cell": CELL} if fixed else {}))
        arch = {name: p.tolist() for name, p in case.parameters().items() if "arch" in name}
        for n, avoid_first in ((1, False), (2, True), (3, False)):
            genotype = case.net.genotype(edges_per_node=n, avoid_first=avoid_first)
            cell = as_sets(CELL.nodes) if fixed else derive_nodes(arch["arch"], relaxation, n, avoid_first)
            assert as_sets(genotype.nodes) == cell
            assert genotype.gate == "product"
            assert genotype.output == (CELL.output if fixed else tuple(range(1, N + 1)))
            for name in ("state_gate", "input_gate"):
                expected = gate_by_brute_force(arch[f"{name}.arch_entry"], arch[f"{name}.arch"], relaxation, n)
                gate = getattr(genotype, name)
                assert [(node.entry, {(edge.op, edge.tail) for edge in node.edges}) for node in gate.nodes] == expected


# --- parameters


def test_parameters_have_the_names_and_shapes_of_the_layer() -> None:
    m = 3
    net = CellSupernet(D, H, nodes=N, history=m)
    genotype = random_genotype(1, nodes=N, history=m)
    shared = {name: p.shape for name, p in SearchedRNN(D, H, genotype).cells[0].named_parameters()}
    own = {name: tuple(p.shape) for name, p in net.named_parameters()}
    assert {name: own[name] for name in shared} == shared
    assert {name: shape for name, shape in own.items() if name not in shared} == {
        "arch": (6, 5),
        "state_gate.arch": (3, 5),
        "state_gate.arch_entry": (m, 5),
        "input_gate.arch": (3, 5),
        "input_gate.arch_entry": (m, 5),
    }
    fixed = {name: tuple(p.shape) for name, p in Case(cell=CELL, history=m).parameters().items()}
    assert fixed == {name: shape for name, shape in own.items() if name != "arch"}
    assert set(dict(CellSupernet(D, H).named_parameters())) == {"weight_input", "weight_hidden", "weight_nodes", "arch"}
    assert CellSupernet(D, H).arch.shape == (36, 5)  # 8 nodes


def test_architecture_weights_are_listed_apart() -> None:
    net = CellSupernet(D, H, history=2)
    parts = net.architecture()
    assert [id(p) for p in parts["intra"]] == [id(net.arch)]
    gates = [net.state_gate.arch, net.state_gate.arch_entry, net.input_gate.arch, net.input_gate.arch_entry]
    assert {id(p) for p in parts["inter"]} == {id(p) for p in gates}
    assert len(parts["inter"]) == 4
    assert len(CellSupernet(D, H).architecture()["inter"]) == 0
    assert len(InterCellSupernet(D, H, CELL, 2, "darts").architecture()["intra"]) == 0


def test_weights_start_as_the_design_says() -> None:
    torch.manual_seed(0)
    net = CellSupernet(30, 40, history=4, init_range=0.2)
    weights = {name: p.detach() for name, p in net.named_parameters()}
    for name, weight in weights.items():
        if "arch" in name:
            assert weight.abs().max() < 6e-3
        else:
            assert weight.abs().max() <= 0.2
            assert weight.std().item() == pytest.approx(0.2 / 3**0.5, rel=0.05), name
    assert weights["arch"].std().item() == pytest.approx(1e-3, rel=0.2)
    torch.manual_seed(0)
    again = CellSupernet(30, 40, history=4, init_range=0.2)
    assert all(torch.equal(p, weights[name]) for name, p in again.named_parameters())


def test_gates_of_a_supernet_start_by_their_own_rows() -> None:
    torch.manual_seed(0)
    # around a cell that is fixed they start as those of a layer
    around = InterCellSupernet(30, 90, CELL, 3, "darts").cell
    for cell, scale in ((CellSupernet(30, 90, history=3), 1.17), (around, 1.5)):
        for gate in (cell.state_gate, cell.input_gate):
            for weight in (gate.weight_entry, gate.weight_nodes):
                most = scale / weight.shape[1] ** 0.5
                assert 0.95 * most < weight.abs().max() <= most


# --- errors


def test_an_unknown_relaxation_lists_those_that_exist() -> None:
    for attempt in (
        lambda: CellSupernet(D, H, relaxation="dart")(torch.zeros(T, B, D)),
        lambda: InterCellSupernet(D, H, CELL, 2, "dart")(torch.zeros(T, B, D)),
        lambda: derive(torch.zeros(3, 5), "dart"),
    ):
        with pytest.raises(ValueError, match=r"(?s)dart.*\bdarts\b.*i-darts"):
            attempt()


def test_batch_norm_wants_more_than_one_sequence_in_training() -> None:
    net = CellSupernet(D, H, nodes=2)
    before = [buffer.clone() for buffer in net.buffers()]
    with pytest.raises(ValueError, match=r"(?i)batch.*(1|one)"):
        net(torch.zeros(T, 1, D))
    assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
    assert net.eval()(torch.zeros(T, 1, D))[0].shape == (T, 1, H)
    alone = CellSupernet(D, H, nodes=2, batch_norm=False)
    assert alone(torch.zeros(T, 1, D))[0].shape == (T, 1, H)


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_size": 0},
        {"hidden_size": -1},
        {"hidden_size": 2.5},
        {"nodes": 0},
        {"history": -1},
        {"gate": "sum"},
        {"recurrence": "linear"},
        {"input_dropout": 1.0},
        {"recurrent_dropout": -0.1},
        {"init_range": 0.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        CellSupernet(**{"input_size": D, "hidden_size": H, **wrong})


@pytest.mark.parametrize("history", [0, 2])
@pytest.mark.parametrize("shape", [(T, B, D + 1), (B, D), (0, B, D), (T, 0, D)])
def test_inputs_of_another_shape_are_refused(shape: tuple[int, ...], history: int) -> None:
    net = CellSupernet(D, H, nodes=2, history=history)
    with pytest.raises(ValueError, match=r"D"):
        net(torch.zeros(shape))


def test_evaluation_by_the_statistics_of_the_batch_is_training_without_its_traces() -> None:
    net = CellSupernet(3, 4, 3, recurrent_dropout=0.5).double()
    xs = torch.randn(5, 6, 3, dtype=torch.float64)
    net.recurrent_dropout = 0.0
    expected = net.train()(xs)[0]  # moves the running statistics
    before = [buffer.clone() for buffer in net.buffers()]
    net.recurrent_dropout = 0.5  # does nothing in evaluation
    with net.eval().batch_statistics():
        output = net(xs)[0]
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    assert all(map(torch.equal, net.buffers(), before))
    assert not torch.allclose(net(xs)[0], expected)  # outside the block by the running statistics


@pytest.mark.parametrize(
    "chosen",
    ["tanh0-relu1", "tanh0-relu1-relu1/state=tanh/input=tanh", "tanh0-relu1-relu2", "elementwise"],
    ids=["nodes", "gates", "highway", "recurrence"],
)
def test_only_genotypes_of_the_space_can_be_chosen(chosen: str) -> None:
    net = CellSupernet(3, 4, 3)
    genotype = Genotype.parse("tanh0-relu1-relu2" if chosen == "elementwise" else chosen)
    if chosen == "elementwise":
        genotype = replace(genotype, recurrence="elementwise")
    if chosen.count("-") == 2 and "/" not in chosen:
        net.choose(genotype)
        genotype = replace(genotype, highway=False)
    with pytest.raises(ValueError, match="the supernet"):
        net.choose(genotype)
