"""Genotypes: discrete recurrent architectures, as data.

A genotype says which edges of a cell are kept and with which operations, which nodes the cell's output averages, and,
for ESS, the two inter-cell gates. It has three written forms: JSON (whole), one line (structure alone) and the named
tuple that the DARTS code prints. This module imports neither torch nor Flair.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flair_nas.drawing.graph import Graph, Vertex
from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.paths import meant, read_file

OPERATIONS = ("drop", "tanh", "relu", "sigmoid", "identity")
"""Names of the operations, in the order of the columns of architecture weights."""

FORMAT = "flair-nas/genotype"
VERSION = 2
"""Of the JSON form. In version 1 there was no option `carry`, and cells with a state gate carried the gated state."""

OPTION_NAMES = ("highway", "combine", "gate", "carry")
"""Fields of a genotype that change its function without being part of its structure."""

GATE_FORMS = ("product", "residual")
"""Names of the forms of inter-cell gates."""

CARRIES = ("ungated", "gated")
"""What a cell with a state gate carries on past its first gate: h_{t-1}, or ĥ_{t-1} as in version 1."""

_COMBINE = ("sum", "mean")
DEFAULT_COMBINE = "mean"
DEFAULT_GATE = "residual"
DEFAULT_CARRY = "ungated"

MOST_NODES = 1000
"""Nodes that a cell or a gate has at most; published ones have up to 12."""

_MOST_BYTES = 10_000_000  # of a file; it may be a whole log
_LONGEST = 100 * MOST_NODES  # characters of a printed genotype, as Python's parser needs much memory for each


class GenotypeError(FlairNasError):
    """A genotype that cannot be used. The message names the file, the place in it, what was found and expected.

    Args:
        expected: what would have been right.
        found: what is there instead, if anything is; shown by its repr.
        place: where in the genotype, for example ``cell.nodes[2][0].tail``.
        source: the file, or whatever else the genotype was read from.
    """

    def __init__(self, expected: str, *, found: object = ..., place: str = "", source: str = "") -> None:
        self.expected, self.found, self.place, self.source = expected, found, place, source
        shown = "" if found is ... else f"found {brief(found)}; "
        super().__init__(": ".join(part for part in (source, place, f"{shown}expected {expected}") if part))

    def located(self, source: str) -> GenotypeError:
        """Returns the same error with the source that it came from."""
        return GenotypeError(self.expected, found=self.found, place=self.place, source=source)


@dataclass(frozen=True)
class Edge:
    """An edge into a node: it reads node `tail` and applies operation `op`.

    Args:
        op: ``identity``, ``sigmoid``, ``tanh`` or ``relu``.
        tail: the node that is read; 0 is the cell's s_0.
    """

    op: str
    tail: int


@dataclass(frozen=True)
class GateNode:
    """A node of an inter-cell gate.

    Args:
        entry: the operation on the entry vector v_i of this node.
        edges: edges from earlier nodes of the gate; may be empty.
    """

    entry: str
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if not _is_list(self.edges):
            raise GenotypeError("a sequence of edges", found=self.edges, place="edges of a gate's node")
        object.__setattr__(self, "edges", _in_order(self.edges))


@dataclass(frozen=True)
class Gate:
    """An inter-cell gate of ESS; its number of nodes is the history length m.

    Args:
        nodes: nodes 1..m.
    """

    nodes: tuple[GateNode, ...]

    def __post_init__(self) -> None:
        _check_size(self.nodes, "nodes of a gate")
        if not _is_list(self.nodes) or not all(isinstance(node, GateNode) for node in self.nodes):
            raise GenotypeError("a sequence of GateNode", found=self.nodes, place="nodes of a gate")
        object.__setattr__(self, "nodes", tuple(self.nodes))

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)


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
        _check_size(self.nodes, "cell.nodes")
        if not _is_list(self.nodes) or not all(_is_list(edges) for edges in self.nodes):
            raise GenotypeError("for each node a sequence of edges", found=self.nodes, place="cell.nodes")
        if not _is_list(self.output):
            raise GenotypeError("a sequence of node numbers", found=self.output, place="cell.output")
        nodes = tuple(_in_order(edges) for edges in self.nodes)
        if not nodes:
            raise GenotypeError("at least one node", found=[], place="cell.nodes")
        for number, edges in enumerate(nodes, start=1):
            place = f"cell.nodes[{number - 1}]"
            if not edges:
                raise GenotypeError(f"at least one edge into node {number}", found=[], place=place)
            _check_edges(edges, range(number), number, place)
        output = tuple(self.output) if len(self.output) else tuple(range(1, len(nodes) + 1))
        _check_output(output, len(nodes))
        for name in ("state_gate", "input_gate"):
            gate = getattr(self, name)
            if gate is not None:
                _check_gate(gate, name)
        if not isinstance(self.highway, bool):
            raise GenotypeError("true or false", found=self.highway, place="options.highway")
        for name, allowed in (("combine", _COMBINE), ("gate", GATE_FORMS), ("carry", CARRIES)):
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
        _check_size(recurrent, "recurrent")
        nodes = []
        for index, entry in enumerate(recurrent):
            place = f"recurrent[{index}]"
            if not isinstance(entry, Sequence) or isinstance(entry, str):
                raise GenotypeError("an (operation, tail) pair", found=entry, place=place)
            pairs = [entry] if len(entry) == 2 and isinstance(entry[0], str) else list(entry)
            for pair in pairs:
                if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                    raise GenotypeError("an (operation, tail) pair", found=pair, place=place)
            nodes.append(tuple(Edge(_plain(op), _plain(tail)) for op, tail in pairs))
        try:
            # one more than there can be is enough to see that there are too many
            output = tuple(map(_plain, itertools.islice(concat, len(nodes) + 1))) if concat is not None else ()
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
            return _parse_printed(stripped)
        return _parse_one_line(stripped)

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
        top = _expect_object(data, "", ("format", "version", "cell"), ("state_gate", "input_gate", "options", "origin"))
        if top["format"] != FORMAT:
            raise GenotypeError(f"{FORMAT!r}", found=top["format"], place="format")
        version = top["version"]
        if type(version) is not int or not 1 <= version <= VERSION:
            expected = f"version 1 to {VERSION}, which this flair-nas reads"
            if type(version) is int and version > VERSION:
                expected += "; a newer one wrote this, and can read it"
            raise GenotypeError(expected, found=version, place="version")
        cell = _expect_object(top["cell"], "cell", ("nodes", "output"), ())
        nodes = []
        _check_size(cell["nodes"], "cell.nodes")
        for index, edges in enumerate(_expect_list(cell["nodes"], "cell.nodes")):
            nodes.append(_edges_from(edges, f"cell.nodes[{index}]"))
        output = tuple(_expect_list(cell["output"], "cell.output"))
        if not output:
            raise GenotypeError("at least one output node", found=[], place="cell.output")
        names = OPTION_NAMES if version > 1 else tuple(name for name in OPTION_NAMES if name != "carry")
        options = _expect_object(top.get("options", {}), "options", (), names)
        state_gate, input_gate = (_gate_from(top.get(name), name) for name in ("state_gate", "input_gate"))
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
            data = json.loads(text, object_pairs_hook=_object)
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
        from flair_nas.files import write_text

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


def random_genotype(
    seed: int, nodes: int = 8, edges_per_node: int = 1, history: int = 0, gate_links: bool = True
) -> Genotype:
    """Draws a genotype uniformly: for each node, distinct (tail, operation) pairs.

    Args:
        seed: the same seed gives the same genotype on every machine.
        nodes: number of nodes N of the cell.
        edges_per_node: edges into each node; node 1 has only s_0 to read, so at most 4.
        history: history length m of both inter-cell gates; 0 for none. An edge between two nodes of a gate is kept
            with the probability that a uniformly drawn operation is not ``drop``, 4/5.
        gate_links: there are such edges.

    Raises:
        ValueError: a number that is out of range.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise ValueError(f"a cell needs at least one node, and at most {MOST_NODES:,}, got nodes={nodes}")
    if not 1 <= edges_per_node <= len(OPERATIONS) - 1:
        raise ValueError(f"edges_per_node must be 1 to {len(OPERATIONS) - 1}, got {edges_per_node}")
    if not 0 <= history <= MOST_NODES:
        raise ValueError(f"history must not be negative, and at most {MOST_NODES:,}, got {history}")
    draw = random.Random(seed)
    kept = OPERATIONS[1:]
    cell = []
    for number in range(1, nodes + 1):
        pairs = [(tail, op) for tail in range(number) for op in kept]
        cell.append(tuple(Edge(op, tail) for tail, op in sorted(draw.sample(pairs, edges_per_node))))

    def gate() -> Gate | None:
        if not history:
            return None
        gate_nodes = []
        for number in range(1, history + 1):
            entry = draw.choice(kept)
            ops = [(draw.choice(OPERATIONS), tail) for tail in range(1, number) if gate_links]
            gate_nodes.append(GateNode(entry, tuple(Edge(op, tail) for op, tail in ops if op != "drop")))
        return Gate(tuple(gate_nodes))

    origin = {"method": "random", "seed": seed}
    return Genotype(nodes=tuple(cell), state_gate=gate(), input_gate=gate(), origin=origin)


# --- validation ---


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _check_size(nodes: object, place: str) -> None:
    try:
        count = f"{len(nodes):,}" if isinstance(nodes, Sized) and len(nodes) > MOST_NODES else ""
    except OverflowError:  # a range
        count = "more than can be counted"
    if count:
        raise GenotypeError(f"at most {MOST_NODES:,} nodes, not {count}", place=place)


def _in_order(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Edges by tail, then operation: their order has no meaning, so it should make no difference."""
    edges = tuple(edges)
    try:
        return tuple(sorted(edges, key=lambda edge: (edge.tail, OPERATIONS.index(edge.op))))
    except (TypeError, ValueError, AttributeError):  # the checks will say what is wrong
        return edges


def _check_op(op: object, place: str) -> None:
    if op in ("drop", "none", "zero"):
        raise GenotypeError("an operation that keeps the edge; leave a dropped edge out", found=op, place=place)
    if not isinstance(op, str) or op not in OPERATIONS:
        raise GenotypeError(f"one of {', '.join(OPERATIONS[1:])}", found=op, place=place)


def _check_edges(edges: tuple[Edge, ...], tails: range, number: int, place: str) -> None:
    for index, edge in enumerate(edges):
        if not isinstance(edge, Edge):
            raise GenotypeError("an Edge", found=edge, place=f"{place}[{index}]")
        _check_op(edge.op, f"{place}[{index}].op")
        if not isinstance(edge.tail, int) or isinstance(edge.tail, bool) or edge.tail not in tails:
            expected = f"an earlier node, {tails[0]} to {tails[-1]}" if len(tails) else "no edge: no node is earlier"
            raise GenotypeError(f"{expected}, as tail of an edge into node {number}", found=edge.tail,
                                place=f"{place}[{index}].tail")  # fmt: skip
    if len(set(edges)) < len(edges):
        raise GenotypeError("each (operation, tail) once per node", found=edges, place=place)


def _check_output(output: tuple[int, ...], nodes: int) -> None:
    for index, number in enumerate(output):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= nodes:
            raise GenotypeError(f"a node, 1 to {nodes}", found=number, place=f"cell.output[{index}]")
    if len(set(output)) < len(output):
        raise GenotypeError("each output node once", found=output, place="cell.output")


def _check_gate(gate: object, name: str) -> None:
    if not isinstance(gate, Gate) or not gate.nodes:
        raise GenotypeError("a gate with at least one node, or none at all", found=gate, place=name)
    for number, node in enumerate(gate.nodes, start=1):
        place = f"{name}.nodes[{number - 1}]"
        _check_op(node.entry, f"{place}.entry")
        _check_edges(node.edges, range(1, number), number, f"{place}.edges")


# --- reading ---


def _expect_object(value: object, place: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise GenotypeError("an object", found=value, place=place)
    missing = [key for key in required if key not in value]
    if missing:
        wanted = f"the key{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        raise GenotypeError(wanted, found=sorted(map(str, value)), place=place)
    for key in value:
        if key not in required + optional:
            raise GenotypeError(f"no key but {', '.join(required + optional)}", found=key, place=place)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose keys must differ: of equal ones, JSON's reader keeps the last and says nothing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise GenotypeError("each key once in an object", found=repeated)
    return found


def _expect_list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise GenotypeError("a list", found=value, place=place)
    return value


def _edges_from(value: object, place: str) -> tuple[Edge, ...]:
    edges = []
    for index, entry in enumerate(_expect_list(value, place)):
        edge = _expect_object(entry, f"{place}[{index}]", ("op", "tail"), ())
        edges.append(Edge(edge["op"], edge["tail"]))
    return tuple(edges)


def _gate_from(value: object, place: str) -> Gate | None:
    if value is None:
        return None
    gate = _expect_object(value, place, ("nodes",), ())
    nodes = []
    for index, entry in enumerate(_expect_list(gate["nodes"], f"{place}.nodes")):
        node_place = f"{place}.nodes[{index}]"
        node = _expect_object(entry, node_place, ("entry",), ("edges",))
        nodes.append(GateNode(node["entry"], _edges_from(node.get("edges", []), f"{node_place}.edges")))
    return Gate(tuple(nodes))


_EDGE = re.compile(r"([a-z]+)([0-9]{1,9})")


def _parse_edge(text: str, place: str) -> Edge:
    match = _EDGE.fullmatch(text)
    if match is None:
        raise GenotypeError("an operation and the node it reads, such as tanh0", found=text, place=place)
    return Edge(match[1], int(match[2]))


def _parse_one_line(text: str) -> Genotype:
    if not text or any(character.isspace() for character in text):
        raise GenotypeError("a genotype: one line, JSON, or the printed named tuple", found=text)
    cell, *gates = text.split("/")
    cell, colon, outputs = cell.partition(":")
    written = cell.split("-")
    _check_size(written, "cell.nodes")
    nodes = []
    for index, node in enumerate(written):
        nodes.append(tuple(_parse_edge(edge, f"cell.nodes[{index}]") for edge in node.split("+")))
    output: tuple[int, ...] = ()
    if colon:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", outputs):
            raise GenotypeError("output nodes joined by dots, such as :2.5", found=outputs, place="cell.output")
        output = tuple(int(number) for number in outputs.split("."))
    parsed: dict[str, Gate] = {}
    for gate in gates:
        name, equals, body = gate.partition("=")
        key = f"{name}_gate"
        if key not in ("state_gate", "input_gate") or not equals or key in parsed:
            raise GenotypeError("one /state= and one /input= at most", found=f"/{gate}")
        gate_nodes = []
        for index, node in enumerate(body.split("-")):
            entry, *edges = node.split("+")
            place = f"{key}.nodes[{index}]"
            gate_nodes.append(GateNode(entry, tuple(_parse_edge(edge, place) for edge in edges)))
        parsed[key] = Gate(tuple(gate_nodes))
    state_gate, input_gate = parsed.get("state_gate"), parsed.get("input_gate")
    return Genotype(tuple(nodes), output, state_gate=state_gate, input_gate=input_gate)


def _parse_printed(text: str) -> Genotype:
    """Reads the last ``Genotype(recurrent=..., concat=...)`` in a text, as a Python literal."""
    start = text.rindex("Genotype(")
    depth = 0
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0 and text[end] == ")":
            break
    else:
        raise GenotypeError("a closing bracket; the text is cut short", found=text[start:])
    if end - start > _LONGEST:
        raise GenotypeError(f"a printed genotype of at most {_LONGEST:,} characters", found=text[start:])
    try:
        call = _NumPyScalars().visit(ast.parse(text[start : end + 1], mode="eval")).body
        assert isinstance(call, ast.Call)
        values = [_literal(argument) for argument in call.args]
        named = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError, RecursionError, MemoryError):
        expected = "Genotype(recurrent=[(op, tail), ...], concat=range(1, N + 1))"
        raise GenotypeError(expected, found=text[start : end + 1]) from None
    named.update(zip(("recurrent", "concat"), values))
    if "recurrent" not in named or len(values) > 2 or set(named) - {"recurrent", "concat"}:
        expected = "the fields recurrent and concat (a convolutional genotype is no recurrent one)"
        raise GenotypeError(expected, found=sorted(map(str, named)))
    return Genotype.from_darts(named["recurrent"], named.get("concat"))


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as Python's own, and anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        return range(*(ast.literal_eval(argument) for argument in node.args))
    return ast.literal_eval(node)


class _NumPyScalars(ast.NodeTransformer):
    """A reader of scalars as NumPy 2 prints them: the value takes the place of ``np.int64(1)``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match self.generic_visit(node):
            case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), kind), [ast.Constant() as value], []) if (
                kind == "str_" or kind.strip("u0123456789") == "int"
            ):
                return value
        return node
