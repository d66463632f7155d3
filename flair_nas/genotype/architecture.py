"""A genotype: the kept edges of a cell with their operations, the output nodes, and ESS's two inter-cell gates.

It has three written forms: JSON (whole), one line (structure alone) and the named tuple that the DARTS code prints.
This module imports neither torch nor Flair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flair_nas.errors import shown
from flair_nas.genotype import text_forms, vocabulary
from flair_nas.genotype.graph import Graph, Vertex
from flair_nas.genotype.operations import GATE_FORM_TABLE, OPERATION_TABLE
from flair_nas.genotype.parts import Edge, Gate, check_gate, check_nodes, check_output
from flair_nas.genotype.picture import to_svg
from flair_nas.genotype.vocabulary import DEFAULT_RECURRENCE, OPTION_NAMES, GenotypeError, Json
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import read_file

_MAX_BYTES = 10_000_000  # of a file, which may be a whole log


@dataclass(frozen=True)
class Genotype:
    """A discrete recurrent architecture.

    Two genotypes are equal if they have the same one-line form: nodes, output and gates. The options (`OPTION_NAMES`)
    and `origin` do not count; compare `options` too if the function matters.

    Args:
        nodes: for each node 1..N of the cell, its kept edges; without nodes, h_t is s_0.
        output: the nodes that h_t is the mean of; all of them when empty.
        state_gate: ESS's f', over the last inputs, or None.
        input_gate: ESS's g', over the last states, or None.
        highway: gated edges (as both reference implementations have), or the plain form of the papers' equations.
        combine: ``sum`` or ``mean`` of the edges of a node; the same when each node has one.
        gate: ``product`` (v * gate, the paper) or ``residual`` (v * (1 + gate)).
        carry: with a state gate, s_0 keeps a part of h_{t-1} (``ungated``) or of ĥ_{t-1} (``gated``; the state can then
            grow from step to step without bound).
        recurrence: s_0 depends on h_{t-1} through a matrix (``full``), or on s_0 of the step before through a vector
            (``elementwise``; no matrix product then depends on the step before). The latter needs the highway form and
            has no gates.
        origin: the provenance: method, corpus, paper or command, date, figures.

    Raises:
        GenotypeError: an architecture that cannot be built, with the place of the fault.

    Example:
        >>> from flair_nas import Edge, Genotype
        >>> genotype = Genotype(((Edge("relu", 0),), (Edge("tanh", 1),)))
        >>> genotype.one_line()
        'relu0-tanh1'
        >>> Genotype.parse("relu0-tanh1") == genotype
        True
    """

    __module__ = "flair_nas"

    nodes: tuple[tuple[Edge, ...], ...]
    output: tuple[int, ...] = ()
    state_gate: Gate | None = None
    input_gate: Gate | None = None
    highway: bool = field(default=True, compare=False)
    combine: str = field(default="mean", compare=False)
    gate: str = field(default=vocabulary.DEFAULT_GATE, compare=False)
    carry: str = field(default=vocabulary.DEFAULT_CARRY, compare=False)
    recurrence: str = field(default=DEFAULT_RECURRENCE, compare=False)
    origin: Mapping[str, Json] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", check_nodes(self.nodes))
        object.__setattr__(self, "output", check_output(self.output, len(self.nodes)))
        for name, gate in (("state_gate", self.state_gate), ("input_gate", self.input_gate)):
            if gate is not None:
                check_gate(gate, name)
        if not isinstance(self.highway, bool):
            raise GenotypeError("true or false", actual=self.highway, place="options.highway")
        for name, allowed in vocabulary.CHOICES.items():
            if getattr(self, name) not in allowed:
                raise GenotypeError(" or ".join(allowed), actual=getattr(self, name), place=f"options.{name}")
        if self.recurrence == "elementwise":
            gates = {"a state gate": self.state_gate, "an input gate": self.input_gate}
            faults = [name for name, gate in gates.items() if gate is not None]
            if faults or not self.highway:
                fault = "highway=true and no gates; this genotype has " + (faults or ["highway=false"])[0]
                expected = f"full: an elementwise recurrence needs {fault}"
                raise GenotypeError(expected, actual=self.recurrence, place="options.recurrence")
        if not isinstance(self.origin, Mapping) or not all(isinstance(key, str) for key in self.origin):
            raise GenotypeError("an object with text keys", actual=self.origin, place="origin")
        try:
            json.dumps(dict(self.origin), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:  # ValueError: also a lone surrogate
            raise GenotypeError(f"values that JSON can hold in UTF-8 ({shown(error)})", place="origin") from None
        object.__setattr__(self, "origin", dict(self.origin))

    @property
    def options(self) -> dict[str, bool | str]:
        """The options that change the function without being part of the structure.

        `recurrence` is left out if it is ``full``, as in files of version 2.
        """
        options = {name: getattr(self, name) for name in OPTION_NAMES}
        if self.recurrence == DEFAULT_RECURRENCE:
            del options["recurrence"]
        return options

    @property
    def live_nodes(self) -> tuple[int, ...]:
        """The nodes that an output node can be reached from, in order; the others are dead and cost no time."""
        live = set(self.output)
        for number in range(len(self.nodes), 0, -1):
            if number in live:
                live.update(edge.tail for edge in self.nodes[number - 1])
        return tuple(sorted(live - {0}))

    @property
    def silent(self) -> bool:
        """True if output and all gradients are exactly 0 for any weights when the state starts at zero.

        The input gate's form and all operations map 0 to 0. Then h = 0 gives g' = 0, hence x̂ = x * g' = 0, hence h = 0
        at the next step.
        """
        if self.input_gate is None or not GATE_FORM_TABLE[self.gate].keeps_zero:
            return False
        cell_ops = [edge.op for number in self.live_nodes for edge in self.nodes[number - 1]]
        gate_ops = [op for node in self.input_gate.nodes for op in (node.entry, *(edge.op for edge in node.edges))]
        return all(OPERATION_TABLE[op].keeps_zero for op in cell_ops + gate_ops)

    def graphs(self) -> list[Graph]:
        """Return the graphs to draw: the cell, then its gates."""
        live = self.live_nodes
        nodes = tuple(
            Vertex(f"s{n}", f"s{n}", tuple((e.op, f"s{e.tail}") for e in edges), n in self.output, n not in live)
            for n, edges in enumerate(self.nodes, start=1)
        )
        title = "cell" if self.highway else "cell, without highway"
        past = "h[t-1]"
        if self.recurrence == "elementwise":
            title, past = "cell, elementwise recurrence", "s0[t-1]"
        mean = f"mean of {_node_names(self.output)}" if self.nodes else "s0"
        result = f"s0 of x[t] and {past}, h[t] = {mean}"
        graphs = [Graph(title, result, (Vertex("s0", "s0", output=not self.nodes), *nodes))]
        for gate, title, past, letter, gated in (
            (self.state_gate, "state gate", "x", "f", "h[t-1]"),
            (self.input_gate, "input gate", "h", "g", "x[t]"),
        ):
            if gate is not None:
                scale = GATE_FORM_TABLE[self.gate].text.format(f"mean of {letter}1 to {letter}{gate.history}")
                graphs.append(Graph(title, f"{gated} * {scale}", _gate_vertices(gate, past, letter)))
        return graphs

    # --- written forms ---

    @classmethod
    def from_darts(cls, recurrent: Sequence[object], concat: Iterable[int] | None = None, **options: Json) -> Genotype:
        """Return the genotype of the DARTS code's named tuple: ``Genotype.from_darts(*DARTS_V2)``.

        Args:
            recurrent: per node an ``(op, tail)`` pair, or a sequence of such pairs for several edges into a node.
            concat: the output nodes, counted from 1; None for all.
            **options: further fields, such as `highway` or `origin`.

        Raises:
            GenotypeError: the tuple is not a recurrent genotype.
        """
        return cls(**text_forms.fields_from_darts(recurrent, concat), **options)

    def one_line(self) -> str:
        """Return the structure (no options, no origin) on one line that needs no quotes in a shell.

        ``-`` joins nodes, ``+`` the edges of a node; an edge is the operation and the node that it reads. Output nodes
        follow ``:`` unless all nodes are. The gates follow as ``/state=`` and ``/input=``; each node of a gate begins
        with its entry operation. Example: ``tanh0-relu1+tanh0:2/state=tanh-relu+sigmoid1``. A cell without nodes is
        ``s0``.
        """
        cell = ["+".join(f"{edge.op}{edge.tail}" for edge in edges) for edges in self.nodes]
        text = "-".join(cell) or vocabulary.NO_NODES
        if len(self.output) < len(self.nodes):
            text += ":" + ".".join(map(str, self.output))
        for name, gate in (("state", self.state_gate), ("input", self.input_gate)):
            if gate is not None:
                nodes = ("+".join([n.entry, *(f"{e.op}{e.tail}" for e in n.edges)]) for n in gate.nodes)
                text += f"/{name}=" + "-".join(nodes)
        return text

    def spec(self) -> str:
        """Return the layer spec: the one-line form, then the options that are not the default, after commas."""
        defaults = {name: getattr(type(self), name) for name in OPTION_NAMES}
        changed = (f"{name}={value}" for name, value in self.options.items() if value != defaults[name])
        return ",".join([self.one_line(), *changed])

    def __repr__(self) -> str:
        return self.one_line()

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        return to_svg(self)

    @classmethod
    def parse(cls, text: str) -> Genotype:
        """Read any written form: one line, JSON, or ``Genotype(recurrent=[...], concat=range(1, 9))`` as in logs.

        Nothing in the text is evaluated as code.

        Raises:
            GenotypeError: the text is none of these, or the genotype in it is faulty.
        """
        if not isinstance(text, str):
            raise GenotypeError("text", actual=text)
        stripped = text.strip()
        if stripped.startswith("{"):
            return cls.from_json(text)
        if "Genotype(" in stripped:
            return cls.from_darts(*text_forms.parse_printed(stripped))
        return cls(**text_forms.fields_from_line(stripped))

    def to_dict(self) -> dict[str, Json]:
        """Return the JSON form as Python data."""

        def gate_data(gate: Gate | None) -> Json:
            return gate and {"nodes": [{"entry": n.entry, "edges": [*map(asdict, n.edges)]} for n in gate.nodes]}

        return {
            "format": vocabulary.FORMAT,
            "version": vocabulary.VERSION if not self.nodes or self.recurrence != DEFAULT_RECURRENCE else 2,
            "cell": {"nodes": [[*map(asdict, edges)] for edges in self.nodes], "output": list(self.output)},
            "state_gate": gate_data(self.state_gate),
            "input_gate": gate_data(self.input_gate),
            "options": self.options,
            "origin": dict(self.origin),
        }

    def to_json(self) -> str:
        """Return the whole genotype as indented JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, data: object) -> Genotype:
        """Read the JSON form from Python data.

        Raises:
            GenotypeError: with the place of the first fault.
        """
        return cls(**text_forms.fields_from_data(data))

    @classmethod
    def from_json(cls, text: str) -> Genotype:
        """Read the JSON form.

        Raises:
            GenotypeError: the text is no JSON (with line and column) or no genotype.
        """
        return cls.from_dict(text_forms.parse_json(text))

    @classmethod
    def load(cls, path: str | Path) -> Genotype:
        """Read a genotype file of any written form.

        Raises:
            GenotypeError: the file cannot be read or holds no genotype; the message names it.
        """
        try:
            text = read_file(path, _MAX_BYTES).decode("utf-8-sig")
            if not text.strip():
                raise GenotypeError("a genotype; the file is empty")
            return cls.parse(text)
        except GenotypeError as error:
            raise error.located(str(path)) from None
        except UnicodeDecodeError:
            raise GenotypeError("a genotype in UTF-8 text; this is a binary file", source=str(path)) from None
        except (OSError, ValueError) as error:  # ValueError: a path with a null byte
            reason = getattr(error, "strerror", None) or error
            raise GenotypeError(f"a readable genotype file ({reason})", source=str(path)) from None

    def save(self, path: str | Path) -> None:
        """Write the JSON form, whole or not at all."""
        write_text(path, self.to_json())


def _gate_vertices(gate: Gate, past: str, letter: str) -> tuple[Vertex, ...]:
    """Return the vertices of a gate: its entry vectors, then its nodes."""
    vertices = [Vertex(f"v{n}", f"{past}[t-{n}]") for n in range(1, gate.history + 1)]
    for n, node in enumerate(gate.nodes, start=1):
        reads = [(node.entry, f"v{n}"), *((edge.op, f"{letter}{edge.tail}") for edge in node.edges)]
        vertices.append(Vertex(f"{letter}{n}", f"{letter}{n}", tuple(reads), output=True))
    return tuple(vertices)


def _node_names(numbers: Sequence[int]) -> str:
    """Return the names of nodes; a run of more than two is written from first to last."""
    if 2 < len(numbers) == numbers[-1] - numbers[0] + 1:
        return f"s{numbers[0]} to s{numbers[-1]}"
    return ", ".join(f"s{number}" for number in numbers)
