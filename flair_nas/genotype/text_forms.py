"""Readers of a genotype's written forms: JSON, one line, and the named tuple that the DARTS code prints.

Each returns the arguments of `Genotype`, which checks them, or raises a GenotypeError with the place of a fault.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable

from flair_nas.errors import shown
from flair_nas.genotype.order import ORDER_FORMAT
from flair_nas.genotype.parts import Edge, Gate, GateNode, check_size, is_list
from flair_nas.genotype.vocabulary import FORMAT, MAX_NODES, NO_NODES, OPTION_NAMES, VERSION, GenotypeError, Json

_NUMPY_SCALAR = re.compile(r"\b(?:np|numpy)\.(?:u?int\d*|str_)\((\d+|'\w*'|\"\w*\")\)")  # as NumPy 2 prints it
_MAX_PRINTED = 100 * MAX_NODES  # characters, since Python's parser needs much memory for each

# --- JSON ---


def parse_json(text: str) -> Json:
    """Return the data of a JSON text, in which no object may repeat a key."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or "Unterminated" in error.msg
        expected = f"valid JSON: {error.msg}{' (the file looks cut short)' if cut else ''}"
        raise GenotypeError(expected, place=f"line {error.lineno}, column {error.colno}") from None
    except GenotypeError:
        raise
    except (RecursionError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise GenotypeError(f"valid JSON of a genotype's size ({shown(error)})") from None


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return a JSON object as a dictionary; raise an error for a repeated key, where JSON's reader keeps the last."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise GenotypeError("each key once in an object", actual=repeated)
    return unique


def fields_from_data(data: object) -> dict[str, Json]:
    """Read the JSON form from Python data."""
    if isinstance(data, dict) and data.get("format") == ORDER_FORMAT:
        expected = "a cell; that is an order of a transformer's sublayers, which --rnn takes as it stands"
        raise GenotypeError(expected, actual=data.get("order"))
    top = _object(data, "", ("format", "version", "cell"), ("state_gate", "input_gate", "options", "origin"))
    if top["format"] != FORMAT:
        raise GenotypeError(f"{FORMAT!r}", actual=top["format"], place="format")
    version = top["version"]
    if type(version) is not int or not 1 <= version <= VERSION:
        newer = "; a newer one wrote this, and can read it" if type(version) is int and version > VERSION else ""
        expected = f"version 1 to {VERSION}, which this flair-nas reads{newer}"
        raise GenotypeError(expected, actual=version, place="version")
    cell = _object(top["cell"], "cell", ("nodes", "output"))
    nodes = _list(cell["nodes"], "cell.nodes")
    if not nodes and version < 3:
        raise GenotypeError("at least one node in a file of this version", actual=[], place="cell.nodes")
    output = _list(cell["output"], "cell.output")
    if not output:
        raise GenotypeError("at least one output node", actual=[], place="cell.output")
    fields = {
        "nodes": [_edges(edges, f"cell.nodes[{index}]") for index, edges in enumerate(nodes)],
        "output": output,
        "state_gate": _gate(top.get("state_gate"), "state_gate"),
        "input_gate": _gate(top.get("input_gate"), "input_gate"),
        "origin": top.get("origin", {}),
    }
    newer_options = {1: ("carry", "recurrence"), 2: ("recurrence",)}.get(version, ())
    names = tuple(name for name in OPTION_NAMES if name not in newer_options)
    fields |= _object(top.get("options", {}), "options", (), names)
    if version == 1 and fields["state_gate"] is not None:
        fields["carry"] = "gated"
    return fields


def _object(value: object, place: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Json]:
    """Return a JSON object; raise an error if a required key is missing or a key is unknown."""
    if not isinstance(value, dict):
        raise GenotypeError("an object", actual=value, place=place)
    if missing := [repr(key) for key in required if key not in value]:
        expected = f"the key{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise GenotypeError(expected, actual=sorted(map(str, value)), place=place)
    for key in value:
        if key not in required + optional:
            raise GenotypeError(f"no key but {', '.join(required + optional)}", actual=key, place=place)
    return value


def _list(value: object, place: str) -> list[Json]:
    """Return a JSON list."""
    if not isinstance(value, list):
        raise GenotypeError("a list", actual=value, place=place)
    return value


def _edges(value: object, place: str) -> tuple[Edge, ...]:
    """Return the edges into a node."""
    objects = (_object(edge, f"{place}[{i}]", ("op", "tail")) for i, edge in enumerate(_list(value, place)))
    return tuple(Edge(edge["op"], edge["tail"]) for edge in objects)


def _gate(value: object, place: str) -> Gate | None:
    """Return a gate, or None for null."""
    if value is None:
        return None
    nodes = []
    for index, entry in enumerate(_list(_object(value, place, ("nodes",))["nodes"], f"{place}.nodes")):
        node = _object(entry, f"{place}.nodes[{index}]", ("entry",), ("edges",))
        edges = _edges(node.get("edges", []), f"{place}.nodes[{index}].edges")
        nodes.append(GateNode(node["entry"], edges))
    return Gate(tuple(nodes))


# --- one line ---


def fields_from_line(text: str) -> dict[str, Json]:
    """Read the one-line form."""
    if not text or any(character.isspace() for character in text):
        raise GenotypeError("a genotype: one line, JSON, or the printed named tuple", actual=text)
    cell, *gates = text.split("/")
    cell, colon, outputs = cell.partition(":")
    if colon and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", outputs):
        raise GenotypeError("output nodes joined by dots, such as :2.5", actual=outputs, place="cell.output")
    nodes = [] if cell == NO_NODES else cell.split("-")
    check_size(nodes, "cell.nodes")  # before objects are made of them
    fields: dict[str, Json] = {
        "nodes": [_line_edges(node.split("+"), f"cell.nodes[{index}]") for index, node in enumerate(nodes)],
        "output": [int(number) for number in outputs.split(".")] if colon else (),
    }
    for gate in gates:
        name, equals, body = gate.partition("=")
        key = f"{name}_gate"
        if key not in ("state_gate", "input_gate") or not equals or key in fields:
            raise GenotypeError("one /state= and one /input= at most", actual=f"/{gate}")
        parts = enumerate(node.split("+") for node in body.split("-"))
        fields[key] = Gate(tuple(GateNode(op, _line_edges(edges, f"{key}.nodes[{i}]")) for i, (op, *edges) in parts))
    return fields


def _line_edges(texts: list[str], place: str) -> tuple[Edge, ...]:
    """Return edges from texts such as ``tanh0``."""
    matches = [re.fullmatch(r"([a-z]+)([0-9]{1,9})", text) for text in texts]
    if None in matches:
        fault = texts[matches.index(None)]
        raise GenotypeError("an operation and the node it reads, such as tanh0", actual=fault, place=place)
    return tuple(Edge(match[1], int(match[2])) for match in matches if match)


# --- the named tuple of the DARTS code ---


def fields_from_darts(recurrent: object, concat: Iterable[object] | None) -> dict[str, Json]:
    """Read the fields of the named tuple; scalars of NumPy become Python's own."""
    if not is_list(recurrent):
        raise GenotypeError("a list of (operation, tail) pairs", actual=recurrent, place="recurrent")
    if not recurrent:
        raise GenotypeError("at least one node", actual=[], place="recurrent")
    check_size(recurrent, "recurrent")
    nodes = []
    for index, entry in enumerate(recurrent):
        pairs = [entry] if not is_list(entry) or (len(entry) == 2 and isinstance(entry[0], str)) else entry
        for pair in pairs:
            if not is_list(pair) or len(pair) != 2:
                raise GenotypeError("an (operation, tail) pair", actual=pair, place=f"recurrent[{index}]")
        nodes.append(tuple(Edge(_as_python(op), _as_python(tail)) for op, tail in pairs))
    if concat is None:
        return {"nodes": nodes}
    try:
        output = [*map(_as_python, itertools.islice(concat, len(nodes) + 1))]  # one too many is a fault already
    except TypeError:
        raise GenotypeError("node numbers", actual=concat, place="concat") from None
    if not output:
        raise GenotypeError("at least one output node", actual=[], place="concat")
    return {"nodes": nodes, "output": output}


def _as_python(value: Json) -> Json:
    """Return a scalar of NumPy as Python's own, and another value as it is."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def parse_printed(text: str) -> tuple[Json, Json]:
    """Return recurrent and concat of the last ``Genotype(recurrent=..., concat=...)`` in a text, as Python literals."""
    start = text.rindex("Genotype(")
    depth = 0
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0 and text[end] == ")":
            break
    else:
        raise GenotypeError("a closing bracket; the text is cut short", actual=text[start:])
    if end - start > _MAX_PRINTED:
        raise GenotypeError(f"a printed genotype of at most {_MAX_PRINTED:,} characters", actual=text[start:])
    try:
        call = ast.parse(_NUMPY_SCALAR.sub(r"\1", text[start : end + 1]), mode="eval").body
        assert isinstance(call, ast.Call)
        values = [_literal(argument) for argument in call.args]
        fields = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError, RecursionError, MemoryError):
        expected = "Genotype(recurrent=[(op, tail), ...], concat=range(1, N + 1))"
        raise GenotypeError(expected, actual=text[start : end + 1]) from None
    fields.update(zip(("recurrent", "concat"), values))
    if "recurrent" not in fields or len(values) > 2 or set(fields) - {"recurrent", "concat"}:
        expected = "the fields recurrent and concat (a convolutional genotype is no recurrent one)"
        raise GenotypeError(expected, actual=sorted(map(str, fields)))
    return fields["recurrent"], fields.get("concat")


def _literal(node: ast.expr) -> Json:
    """Return the value of a literal, or of a call of ``range``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        return range(*(ast.literal_eval(argument) for argument in node.args))
    return ast.literal_eval(node)
