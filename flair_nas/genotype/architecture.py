"""Genotypes: discrete recurrent architectures, as data.

A genotype says which edges of a cell are kept and with which operations, which nodes the cell's output averages, and,
for ESS, the two inter-cell gates. It has three written forms: JSON (whole), one line (structure alone) and the named
tuple that the DARTS code prints. This module imports neither torch nor Flair.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flair_nas.drawing.graph import Graph, Vertex
from flair_nas.errors import shown
from flair_nas.genotype.parts import Edge, Gate, check_edges, check_gate, check_output, check_size, in_order, is_list
from flair_nas.genotype.text_forms import (
    as_python,
    edges_from,
    expect_list,
    expect_object,
    gate_from,
    parse_one_line,
    parse_printed,
    unique_keys,
)
from flair_nas.genotype.vocabulary import (
    CARRIES,
    COMBINATIONS,
    DEFAULT_CARRY,
    DEFAULT_COMBINE,
    DEFAULT_GATE,
    FORMAT,
    GATE_FORMS,
    OPTION_NAMES,
    VERSION,
    GenotypeError,
)
from flair_nas.storage.paths import meant, read_file

_MOST_BYTES = 10_000_000  # of a file; it may be a whole log


@dataclass(frozen=True)
class Genotype:
    """A discrete recurrent architecture.

    Two genotypes are equal when their structure is: all that the one-line form names, nodes, output and gates. The
    options (`OPTION_NAMES`) and `origin` do not count; compare `options` too where the function counts.

    Args:
        nodes: for each node 1..N of the cell, its kept edges.
        output: the nodes that h_t is the mean of; all of them when empty.
        state_gate: ESS's f', over the last inputs, or None.
        input_gate: ESS's g', over the last states, or None.
        highway: gated edges (as both reference implementations have), or the plain form of the papers' equations.
        combine: ``sum`` or ``mean`` of the edges of a node; the same when each node has one.
        gate: ``product`` (v * gate, the paper) or ``residual`` (v * (1 + gate)).
        carry: with a state gate, s_0 keeps a part of h_{t-1} (``ungated``) or of ĥ_{t-1} (``gated``; the state can then
            grow from step to step without bound).
        origin: where it comes from: method, corpus, paper or command, date, figures.

    Raises:
        GenotypeError: an architecture that cannot be built, with the place of the fault.
    """

    __module__ = "flair_nas"

    nodes: tuple[tuple[Edge, ...], ...]
    output: tuple[int, ...] = ()
    state_gate: Gate | None = None
    input_gate: Gate | None = None
    highway: bool = field(default=True, compare=False)
    combine: str = field(default=DEFAULT_COMBINE, compare=False)
    gate: str = field(default=DEFAULT_GATE, compare=False)
    carry: str = field(default=DEFAULT_CARRY, compare=False)
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_size(self.nodes, "cell.nodes")
        if not is_list(self.nodes) or not all(is_list(edges) for edges in self.nodes):
            raise GenotypeError("for each node a sequence of edges", found=self.nodes, place="cell.nodes")
        if not is_list(self.output):
            raise GenotypeError("a sequence of node numbers", found=self.output, place="cell.output")
        nodes = tuple(in_order(edges) for edges in self.nodes)
        if not nodes:
            raise GenotypeError("at least one node", found=[], place="cell.nodes")
        for number, edges in enumerate(nodes, start=1):
            place = f"cell.nodes[{number - 1}]"
            if not edges:
                raise GenotypeError(f"at least one edge into node {number}", found=[], place=place)
            check_edges(edges, range(number), number, place)
        output = tuple(self.output) if len(self.output) else tuple(range(1, len(nodes) + 1))
        check_output(output, len(nodes))
        for name in ("state_gate", "input_gate"):
            gate = getattr(self, name)
            if gate is not None:
                check_gate(gate, name)
        if not isinstance(self.highway, bool):
            raise GenotypeError("true or false", found=self.highway, place="options.highway")
        for name, allowed in (("combine", COMBINATIONS), ("gate", GATE_FORMS), ("carry", CARRIES)):
            if getattr(self, name) not in allowed:
                raise GenotypeError(" or ".join(allowed), found=getattr(self, name), place=f"options.{name}")
        if not isinstance(self.origin, Mapping) or not all(isinstance(key, str) for key in self.origin):
            raise GenotypeError("an object with text keys", found=self.origin, place="origin")
        try:
            json.dumps(dict(self.origin), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:  # ValueError: also halves of characters
            raise GenotypeError(f"values that JSON can hold in UTF-8 ({shown(error)})", place="origin") from None
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "output", tuple(sorted(output)))
        object.__setattr__(self, "origin", dict(self.origin))

    @property
    def options(self) -> dict[str, Any]:
        """The options that change the function without being part of the structure."""
        return {name: getattr(self, name) for name in OPTION_NAMES}

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
        """Whether the output and all gradients are exactly 0, whatever the weights, when the state begins with zeros.

        So it is with an input gate in the product form where no sigmoid takes part, as every other operation maps 0
        to 0: h = 0 gives g' = 0, hence x̂ = x * g' = 0, hence h = 0 at the next step.
        """
        if self.input_gate is None or self.gate != "product":
            return False
        of_cell = [edge.op for number in self.live_nodes for edge in self.nodes[number - 1]]
        of_gate = [op for node in self.input_gate.nodes for op in (node.entry, *(edge.op for edge in node.edges))]
        return "sigmoid" not in of_cell + of_gate

    @property
    def carries_gated(self) -> bool:
        """Whether s_0 keeps a part of the gated h, which can grow without bound; files of version 1 with gates do."""
        return self.highway and self.state_gate is not None and self.carry == "gated"

    def graphs(self) -> list[Graph]:
        """Return the genotype as graphs to be drawn: its cell, then its gates."""
        live = self.live_nodes
        nodes = tuple(
            Vertex(f"s{n}", f"s{n}", tuple((e.op, f"s{e.tail}") for e in edges), n in self.output, n not in live)
            for n, edges in enumerate(self.nodes, start=1)
        )
        plain = "" if self.highway else ", without highway"
        cell = Graph(
            f"cell{plain}",
            f"s0 of x[t] and h[t-1], h[t] = mean of {_listed(self.output)}",
            (Vertex("s0", "s0"), *nodes),
        )
        product = "1 + " if self.gate == "residual" else ""
        graphs = [cell]
        for gate, title, past, letter, what in (
            (self.state_gate, "state gate", "x", "f", "h[t-1]"),
            (self.input_gate, "input gate", "h", "g", "x[t]"),
        ):
            if gate is not None:
                factor = f"({product}mean of {letter}1 to {letter}{gate.history})"
                graphs.append(Graph(title, f"{what} * {factor}", _gate_vertices(gate, past, letter)))
        return graphs

    # --- the field's named tuple ---

    @classmethod
    def from_darts(cls, recurrent: Sequence[Any], concat: Iterable[int] | None = None, **options: Any) -> Genotype:
        """Takes the named tuple of the DARTS code: ``Genotype.from_darts(*DARTS_V2)``.

        Args:
            recurrent: per node an ``(op, tail)`` pair, or a sequence of such pairs for several edges into a node.
            concat: the output nodes, counted from 1; None for all.
            **options: further fields, such as `highway` or `origin`.

        Raises:
            GenotypeError: the tuple is not a recurrent genotype.
        """
        if not isinstance(recurrent, Sequence) or isinstance(recurrent, str):
            raise GenotypeError("a list of (operation, tail) pairs", found=recurrent, place="recurrent")
        check_size(recurrent, "recurrent")
        nodes = []
        for index, entry in enumerate(recurrent):
            place = f"recurrent[{index}]"
            if not isinstance(entry, Sequence) or isinstance(entry, str):
                raise GenotypeError("an (operation, tail) pair", found=entry, place=place)
            pairs = [entry] if len(entry) == 2 and isinstance(entry[0], str) else list(entry)
            for pair in pairs:
                if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                    raise GenotypeError("an (operation, tail) pair", found=pair, place=place)
            nodes.append(tuple(Edge(as_python(op), as_python(tail)) for op, tail in pairs))
        try:
            # one more than there can be is enough to see that there are too many
            output = tuple(map(as_python, itertools.islice(concat, len(nodes) + 1))) if concat is not None else ()
        except TypeError:
            raise GenotypeError("node numbers", found=concat, place="concat") from None
        if concat is not None and not output:
            raise GenotypeError("at least one output node", found=[], place="concat")
        return cls(nodes=tuple(nodes), output=output, **options)

    # --- one line ---

    def one_line(self) -> str:
        """The structure (no options, no origin) on one line, safe in a shell.

        Nodes are joined by ``-``, edges of a node by ``+``; an edge is the operation and the node that it reads. Output
        nodes follow ``:`` when they are not all nodes; the gates follow as ``/state=`` and ``/input=``, each node of a
        gate beginning with its entry operation. Example: ``tanh0-relu1+tanh0:2/state=tanh-relu+sigmoid1``.
        """
        text = "-".join("+".join(f"{edge.op}{edge.tail}" for edge in edges) for edges in self.nodes)
        if self.output != tuple(range(1, len(self.nodes) + 1)):
            text += ":" + ".".join(map(str, self.output))
        for name, gate in (("state", self.state_gate), ("input", self.input_gate)):
            if gate is not None:
                nodes = ("+".join([n.entry, *(f"{e.op}{e.tail}" for e in n.edges)]) for n in gate.nodes)
                text += f"/{name}=" + "-".join(nodes)
        return text

    def __str__(self) -> str:
        return self.one_line()

    def __repr__(self) -> str:
        return self.one_line()

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        from flair_nas.drawing.cell import to_svg

        return to_svg(self)

    @classmethod
    def parse(cls, text: str) -> Genotype:
        """Reads any written form: one line, JSON, or ``Genotype(recurrent=[...], concat=range(1, 9))`` as in logs.

        Nothing in the text is evaluated as code.

        Raises:
            GenotypeError: the text is none of these, or the genotype in it is faulty.
        """
        if not isinstance(text, str):
            raise GenotypeError("text", found=text)
        stripped = text.strip()
        if stripped.startswith("{"):
            return cls.from_json(text)
        if "Genotype(" in stripped:
            return cls.from_darts(*parse_printed(stripped))
        return cls(**parse_one_line(stripped))

    # --- JSON ---

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as Python data."""

        def edges_of(edges: tuple[Edge, ...]) -> list[dict[str, Any]]:
            return [{"op": edge.op, "tail": edge.tail} for edge in edges]

        def gate_of(gate: Gate | None) -> dict[str, Any] | None:
            if gate is None:
                return None
            return {"nodes": [{"entry": node.entry, "edges": edges_of(node.edges)} for node in gate.nodes]}

        return {
            "format": FORMAT,
            "version": VERSION,
            "cell": {"nodes": [edges_of(edges) for edges in self.nodes], "output": list(self.output)},
            "state_gate": gate_of(self.state_gate),
            "input_gate": gate_of(self.input_gate),
            "options": self.options,
            "origin": dict(self.origin),
        }

    def to_json(self) -> str:
        """The whole genotype as indented JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, data: object) -> Genotype:
        """Reads the JSON form from Python data.

        Raises:
            GenotypeError: with the place of the first thing that is wrong.
        """
        top = expect_object(data, "", ("format", "version", "cell"), ("state_gate", "input_gate", "options", "origin"))
        if top["format"] != FORMAT:
            raise GenotypeError(f"{FORMAT!r}", found=top["format"], place="format")
        version = top["version"]
        if type(version) is not int or not 1 <= version <= VERSION:
            expected = f"version 1 to {VERSION}, which this flair-nas reads"
            if type(version) is int and version > VERSION:
                expected += "; a newer one wrote this, and can read it"
            raise GenotypeError(expected, found=version, place="version")
        cell = expect_object(top["cell"], "cell", ("nodes", "output"), ())
        nodes = []
        check_size(cell["nodes"], "cell.nodes")
        for index, edges in enumerate(expect_list(cell["nodes"], "cell.nodes")):
            nodes.append(edges_from(edges, f"cell.nodes[{index}]"))
        output = tuple(expect_list(cell["output"], "cell.output"))
        if not output:
            raise GenotypeError("at least one output node", found=[], place="cell.output")
        names = OPTION_NAMES if version > 1 else tuple(name for name in OPTION_NAMES if name != "carry")
        options = expect_object(top.get("options", {}), "options", (), names)
        state_gate, input_gate = (gate_from(top.get(name), name) for name in ("state_gate", "input_gate"))
        if version == 1 and state_gate is not None:
            options = {**options, "carry": "gated"}
        return cls(tuple(nodes), output, state_gate, input_gate, **options, origin=top.get("origin", {}))

    @classmethod
    def from_json(cls, text: str) -> Genotype:
        """Reads the JSON form.

        Raises:
            GenotypeError: the text is no JSON (with line and column) or no genotype.
        """
        try:
            data = json.loads(text, object_pairs_hook=unique_keys)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            cut = (
                " (the file looks cut short)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
            )
            raise GenotypeError(f"valid JSON: {error.msg}{cut}", place=where) from None
        except GenotypeError:
            raise
        except (RecursionError, ValueError) as error:  # ValueError: a number of some thousand digits
            raise GenotypeError(f"valid JSON of a genotype's size ({shown(error)})") from None
        return cls.from_dict(data)

    @classmethod
    def load(cls, path: str | Path) -> Genotype:
        """Reads a genotype file of any written form.

        Raises:
            GenotypeError: the file cannot be read or holds no genotype; the message names it.
        """
        try:
            text = read_file(path, _MOST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise GenotypeError("a genotype in UTF-8 text; this is a binary file", source=str(path)) from None
        except (OSError, ValueError) as error:  # ValueError: a path that holds a null byte
            reason = f"a readable genotype file ({getattr(error, 'strerror', None) or error})"
            question = meant(Path(path)).strip() if isinstance(error, FileNotFoundError) else ""
            raise GenotypeError(f"{reason}; {question}" if question else reason, source=str(path)) from None
        if not text.strip():
            raise GenotypeError("a genotype; the file is empty", source=str(path))
        try:
            return cls.parse(text)
        except GenotypeError as error:
            raise error.located(str(path)) from None

    def save(self, path: str | Path) -> None:
        """Writes the JSON form, whole or not at all."""
        from flair_nas.storage.files import write_text

        write_text(path, self.to_json())


def _gate_vertices(gate: Gate, past: str, letter: str) -> tuple[Vertex, ...]:
    entries = [Vertex(f"v{n}", f"{past}[t-{n}]") for n in range(1, gate.history + 1)]
    nodes = [
        Vertex(
            f"{letter}{n}",
            f"{letter}{n}",
            ((node.entry, f"v{n}"), *((edge.op, f"{letter}{edge.tail}") for edge in node.edges)),
            output=True,
        )
        for n, node in enumerate(gate.nodes, start=1)
    ]
    return (*entries, *nodes)


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"s{numbers[0]} to s{numbers[-1]}"
    return ", ".join(f"s{number}" for number in numbers)


# --- validation ---


# --- reading ---
