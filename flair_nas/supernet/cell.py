"""Supernets of one direction: a relaxed cell, and relaxed gates around a fixed cell."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from flair_nas.genotype import (
    CARRIES,
    DEFAULT_CARRY,
    DEFAULT_GATE,
    DEFAULT_RECURRENCE,
    GATE_FORMS,
    OPERATIONS,
    RECURRENCES,
    Genotype,
)
from flair_nas.nn.cell import CellBase, Edges, SearchedCell, edge
from flair_nas.nn.init import check_arguments, papers_range
from flair_nas.nn.kernels.engine import CellProgram, Normalisation
from flair_nas.nn.kernels.plan import relaxed_cell_plan
from flair_nas.nn.matrix_product import masked, product
from flair_nas.nn.packing import Packing
from flair_nas.nn.recurrence import run_cell
from flair_nas.nn.state import RecurrentState, State, initial_state
from flair_nas.supernet.base import Relaxed, SupernetBase
from flair_nas.supernet.derive import derive
from flair_nas.supernet.gates import relax_gates, relaxed_gates, relaxed_matrices
from flair_nas.supernet.relaxation import Sampler


class CellSupernet(CellBase, SupernetBase):
    """Recurrent layer with the relaxed cell, and with `history` the relaxed inter-cell gates.

    Args:
        input_size: D.
        hidden_size: H.
        nodes: N.
        relaxation: ``darts`` or ``i-darts``.
        history: history length m of both relaxed gates; 0 for none.
        gate: form of the gates, one of `GATE_FORMS`.
        carry: the carry of s_0 if there is a state gate, one of `CARRIES`.
        gate_links: the nodes of a gate read one another.
        fixed_gates: a genotype; its gates, form and carry replace the relaxed gates.
        recurrence: ``full``, or ``elementwise``, without gates.
        batch_norm: normalise the nodes' states: over the sequences of a step, or of an elementwise recurrence over
            all tokens. The state that it carries, s_0, is not normalised.
        input_dropout: variational dropout of the input, one mask per sequence.
        recurrent_dropout: variational dropout of the states where they enter a product.
        init_range: initialisation bound of the weights. Architecture weights start at 1e-3 N(0, 1).
        range_of: makes the bound from a width if `init_range` is None: H, of gates the rows of each matrix.

    Attributes:
        sampler: makes mixing weights of architecture weights in training.

    Shape of the parameters:
        weight_input [D, 2H], weight_hidden [H, 2H] or [H], weight_nodes [N, H, 2H], as in a layer of `SearchedRNN`;
        arch [N (N + 1) / 2, 5], rows by head, then tail, columns as `OPERATIONS`; those of `GateSupernet` as
        state_gate (E = D, G = H) and input_gate (E = H, G = D).

    Raises:
        ValueError: arguments out of range.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        nodes: int = 8,
        relaxation: str = "darts",
        *,
        history: int = 0,
        gate: str = DEFAULT_GATE,
        carry: str = DEFAULT_CARRY,
        gate_links: bool = True,
        fixed_gates: Genotype | None = None,
        recurrence: str = DEFAULT_RECURRENCE,
        batch_norm: bool = True,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        init_range: float | None = None,
        range_of: Callable[[int], float] = papers_range,
    ) -> None:
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "nodes": nodes, "history": history}
        dropouts = {"input_dropout": input_dropout, "recurrent_dropout": recurrent_dropout}
        check_arguments(init_range, **sizes, **dropouts)
        choices = {"gate": (gate, GATE_FORMS), "carry": (carry, CARRIES), "recurrence": (recurrence, RECURRENCES)}
        for name, (value, known) in choices.items():
            if value not in known:
                raise ValueError(f"{name} must be {' or '.join(known)}, got {value!r}")
        if recurrence == "elementwise" and (history or fixed_gates is not None):
            raise ValueError("an elementwise recurrence has no gates: history must be 0 and fixed_gates None")
        super().__init__(input_size, hidden_size, 2 * hidden_size, recurrence)
        self.add_weights(nodes)
        self.nodes, self.relaxation, self.init_range, self.range_of = nodes, relaxation, init_range, range_of
        self.input_dropout, self.recurrent_dropout = input_dropout, recurrent_dropout
        self.arch = nn.Parameter(torch.empty(nodes * (nodes + 1) // 2, len(OPERATIONS)))
        self.norm = nn.BatchNorm1d(hidden_size, affine=False) if batch_norm else None
        self.sampler = Sampler()
        if fixed_gates is not None:
            self.set_gates(fixed_gates)
        elif history:
            relax_gates(self, history, gate, relaxation, self.sampler, gate_links)
        self.fixed_gates = fixed_gates
        self.carry = carry if fixed_gates is None else fixed_gates.carry
        self._chosen: SearchedCell | None = None
        self._use_batch = False
        self.reset_parameters()

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:
        """Run the supernet over whole sequences.

        Args:
            input: [T, B, D].
            hx: the initial state: the final one of an earlier call, or a tensor [1, B, H]; zeros when None.

        Returns:
            The output, [T, B, H], and the final state: [1, B, H], or a `RecurrentState` when there are gates.

        Raises:
            ValueError: tensors that do not match; in training with batch normalisation, a batch of one.
        """
        if self._chosen is not None:
            return run_supernet(self._chosen, self, input, hx)
        if (self.training or self._use_batch) and self.norm is not None and input.shape[1:2] == (1,):
            raise ValueError("batch normalisation by the batch needs at least 2 sequences in it; got a batch of 1")
        self.sampler.begin(self.training)
        return run_supernet(self, self, input, hx)

    def choose(self, genotype: Genotype | None) -> None:
        """Run one genotype of this space from now on, without normalisation; None for the supernet.

        Raises:
            ValueError: a genotype outside this space.
        """
        if genotype is None:
            self._chosen = None
            return
        gates = (self.state_gate, self.input_gate), (genotype.state_gate, genotype.input_gate)
        own, other = ([gate.history if gate else 0 for gate in pair] for pair in gates)
        same_nodes = genotype.highway and len(genotype.nodes) == self.nodes
        if not same_nodes or genotype.recurrence != self.recurrence or other != own:
            raise ValueError(
                f"the supernet has {self.nodes} highway nodes, recurrence={self.recurrence} and histories {own} of its "
                f"gates, which the genotype {genotype} has not"
            )
        with torch.device("meta"):  # its own parameters are never needed
            cell = SearchedCell(self.input_size, self.hidden_size, genotype, self.init_range)
        shared = dict(self.named_parameters())
        for name, _ in list(cell.named_parameters()):
            *path, last = name.split(".")
            setattr(cell.get_submodule(".".join(path)), last, shared[name])
        object.__setattr__(self, "_chosen", cell)  # no submodule: its parameters are this module's

    @contextlib.contextmanager
    def batch_statistics(self) -> Iterator[None]:
        """Normalise by the statistics of the batch within the block, in evaluation too.

        The running statistics, which stay, are shared by all nodes and fit none of them well: states could grow without
        bound.
        """
        self._use_batch = True
        try:
            yield
        finally:
            self._use_batch = False

    def genotype(
        self, edges_per_node: int = 1, avoid_first: bool = False, most_identity: int | None = None
    ) -> Genotype:
        """Derive the genotype from the present architecture weights; `derive` describes the arguments."""
        nodes = derive(self.arch, self.relaxation, edges_per_node, avoid_first, most_identity)
        options: dict[str, Any] = {"recurrence": self.recurrence}
        if (fixed := self.fixed_gates) is not None:
            options |= {"state_gate": fixed.state_gate, "input_gate": fixed.input_gate}
            options |= {"gate": fixed.gate, "carry": fixed.carry}
        for name, gate in relaxed_gates(self).items():
            options |= {name: gate.derive(edges_per_node), "gate": gate.form, "carry": self.carry}
        return Genotype(nodes, **options)

    def relaxed(self) -> list[Relaxed]:
        """Return the architecture weights: ``cell``, and those of relaxed gates."""
        return [Relaxed("cell", "cell", self.arch, self.relaxation), *relaxed_matrices(self)]

    def form(self) -> tuple[bool, str]:
        """Return the options `highway` and `carry`."""
        return True, self.carry

    def run_nodes(self, state: Tensor, mask: Tensor | None = None, edge: Edges = edge) -> Tensor:
        """Compute h_t from s_0 (DARTS; I-DARTS eq. 4); see `CellBase.run_nodes`.

        s_i = Σ_{j<i} Σ_k p_k^{ij} (s_j + σ(c) (op_k(z) - s_j)) with [c | z] = s_j W_i, where drop adds nothing; s_0 and
        every s_i pass one shared batch normalisation without affine parameters, over the batch. h_t is the mean of
        s_1..s_N.
        """
        normalise = self._normalisation() or (lambda state: state)
        mixing = iter(self.mixing_weights())
        states = [normalise(state)]
        for weight in self.weight_nodes:
            terms = [edge(next(mixing), product(masked(state, mask), weight), state) for state in states]  # [B, H] each
            states.append(normalise(reduce(torch.add, terms)))
        return reduce(torch.add, states[1:]) / self.nodes

    def program(self) -> CellProgram:
        """Return everything that engines need besides the weights."""
        return CellProgram(relaxed_cell_plan(self.nodes, self.carry), self.mixing_weights(), self._normalisation())

    def mixing_weights(self) -> Tensor:
        """Return the mixing weights p of this pass, [N (N + 1) / 2, 5], by head, then tail."""
        return self.sampler.sample(self.arch, self.relaxation)

    def _normalisation(self) -> Normalisation | None:
        norm = self.norm
        if norm is None:
            return None
        assert norm.running_mean is not None and norm.running_var is not None
        if self._use_batch and not self.training:
            return Normalisation(True, None, 0.0, norm.eps)
        return Normalisation(self.training, (norm.running_mean, norm.running_var), 0.1, norm.eps)

    def extra_repr(self) -> str:
        """Return sizes and relaxation, for printing."""
        sizes = f"{self.input_size}, {self.hidden_size}, nodes={self.nodes}"
        return f"{sizes}, relaxation={self.relaxation}, recurrence={self.recurrence}"


class InterCellSupernet(nn.Module, SupernetBase):
    """Recurrent layer with a genotype's cell and relaxed gates in place of its own; its states are not normalised.

    Args:
        input_size: D.
        hidden_size: H.
        cell: the genotype.
        history: history length m of both gates, at least 1.
        relaxation: grouping of the edges between the nodes of a gate, ``darts`` or ``i-darts``.
        init_range: initialisation bound of the weights, that of a layer if None.

    Other arguments are those of `CellSupernet`.

    Attributes:
        sampler: makes mixing weights of architecture weights in training.
        cell: a `SearchedCell` with relaxed gates.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: Genotype,
        history: int,
        relaxation: str = "darts",
        *,
        gate: str = DEFAULT_GATE,
        carry: str = DEFAULT_CARRY,
        gate_links: bool = True,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        init_range: float | None = None,
    ) -> None:
        super().__init__()
        bare = dataclasses.replace(cell, state_gate=None, input_gate=None, gate=gate, carry=carry, origin={})
        self.input_size, self.hidden_size = input_size, hidden_size
        self.input_dropout, self.recurrent_dropout = input_dropout, recurrent_dropout
        self.cell = SearchedCell(input_size, hidden_size, bare, init_range)
        self.sampler = Sampler()
        relax_gates(self.cell, history, gate, relaxation, self.sampler, gate_links)
        self.cell.reset_parameters()

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:
        """Run the supernet over whole sequences; see `CellSupernet.forward` for arguments and returns."""
        self.sampler.begin(self.training)
        return run_supernet(self.cell, self, input, hx)

    def genotype(
        self, edges_per_node: int = 1, avoid_first: bool = False, most_identity: int | None = None
    ) -> Genotype:
        """Derive the genotype: the fixed cell, which the last two arguments do not change, with the derived gates."""
        gates: dict[str, Any] = {name: gate.derive(edges_per_node) for name, gate in relaxed_gates(self.cell).items()}
        return dataclasses.replace(self.cell.genotype, **gates)

    def relaxed(self) -> list[Relaxed]:
        """Return the architecture weights of both gates."""
        return relaxed_matrices(self.cell)


OneDirection = CellSupernet | InterCellSupernet


def cell_of(supernet: OneDirection) -> CellBase:
    """Return the cell with the gates: the supernet of the cell itself, or the fixed cell inside."""
    return supernet.cell if isinstance(supernet, InterCellSupernet) else supernet


def run_supernet(cell: CellBase, layer: OneDirection, input: Tensor, hx: State | None) -> tuple[Tensor, State]:
    """Run a cell over sequences of one length in the mode and with the dropouts of a layer; see its `forward`."""
    if input.dim() != 3 or input.shape[-1] != layer.input_size or 0 in input.shape:
        raise ValueError(
            f"a supernet takes [T, B, D] with D = input_size = {layer.input_size}, at least one step and one sequence; "
            f"got {list(input.shape)}"
        )
    steps, batch = input.shape[:2]
    packing = Packing([batch] * steps, input.device)
    state = initial_state([cell], hx, batch)
    start = (state.hidden[0], state.inputs[0], state.states[0])
    dropouts = (layer.input_dropout, layer.recurrent_dropout) if layer.training else (0.0, 0.0)
    output, (hidden, inputs, states) = run_cell(cell, dropouts, input.reshape(steps * batch, -1), packing, start)
    final = RecurrentState(hidden[None], (inputs,), (states,)) if cell.has_gates else hidden[None]  # [1, B, H]
    return output.view(steps, batch, -1), final
