"""Written forms of a genotype: JSON, one line, and the named tuple that the DARTS code prints."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

from flair_nas.genotype.parts import Edge, Gate, GateNode, check_size
from flair_nas.genotype.vocabulary import MOST_NODES, GenotypeError

_LONGEST = 100 * MOST_NODES  # characters of a printed genotype, as Python's parser needs much memory for each


def expect_object(value: object, place: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    """Return a JSON object, if it has the keys that it must have and no unknown ones."""
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


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary; refuse repeated keys, of which JSON's reader keeps the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise GenotypeError("each key once in an object", found=repeated)
    return found


def expect_list(value: object, place: str) -> list[Any]:
    """Return a JSON list."""
    if not isinstance(value, list):
        raise GenotypeError("a list", found=value, place=place)
    return value


def edges_from(value: object, place: str) -> tuple[Edge, ...]:
    """Read the edges into a node from a JSON list."""
    edges = []
    for index, entry in enumerate(expect_list(value, place)):
        edge = expect_object(entry, f"{place}[{index}]", ("op", "tail"), ())
        edges.append(Edge(edge["op"], edge["tail"]))
    return tuple(edges)


def gate_from(value: object, place: str) -> Gate | None:
    """Read a gate from a JSON object, or None from null."""
    if value is None:
        return None
    gate = expect_object(value, place, ("nodes",), ())
    nodes = []
    for index, entry in enumerate(expect_list(gate["nodes"], f"{place}.nodes")):
        node_place = f"{place}.nodes[{index}]"
        node = expect_object(entry, node_place, ("entry",), ("edges",))
        nodes.append(GateNode(node["entry"], edges_from(node.get("edges", []), f"{node_place}.edges")))
    return Gate(tuple(nodes))


_EDGE = re.compile(r"([a-z]+)([0-9]{1,9})")


def _parse_edge(text: str, place: str) -> Edge:
    match = _EDGE.fullmatch(text)
    if match is None:
        raise GenotypeError("an operation and the node it reads, such as tanh0", found=text, place=place)
    return Edge(match[1], int(match[2]))


def parse_one_line(text: str) -> dict[str, Any]:
    """Read the one-line form; return the arguments of `Genotype`."""
    if not text or any(character.isspace() for character in text):
        raise GenotypeError("a genotype: one line, JSON, or the printed named tuple", found=text)
    cell, *gates = text.split("/")
    cell, colon, outputs = cell.partition(":")
    written = cell.split("-")
    check_size(written, "cell.nodes")
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
    return {"nodes": tuple(nodes), "output": output, "state_gate": state_gate, "input_gate": input_gate}


def parse_printed(text: str) -> tuple[Any, Any]:
    """Read the last ``Genotype(recurrent=..., concat=...)`` in a text, as Python literals; return the two fields."""
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
    return named["recurrent"], named.get("concat")


def as_python(value: Any) -> Any:
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
