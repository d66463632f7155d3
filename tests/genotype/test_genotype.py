"""Genotypes: written forms that survive round trips, faults that are named, and nothing that is run as code."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy
import pytest
from drawn_genotypes import KEPT, DartsTuple, genotypes
from hypothesis import given, settings

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Edge, Gate, GateNode, Genotype, GenotypeError, random_genotype
from flair_nas.library.named import bundled_names, load_genotype

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

relaxed = settings(max_examples=60)

# The published genotypes, typed out from the papers' code: (operation, tail) per node 1, 2, ...
PUBLISHED = {
    "darts-v1": "relu 0, relu 1, tanh 2, relu 3, relu 4, identity 1, relu 5, relu 1",
    "darts-v2": "sigmoid 0, relu 1, relu 1, identity 1, tanh 2, sigmoid 5, tanh 3, relu 5",
    "i-darts-ptb": "identity 0, relu 1, identity 2, tanh 3, relu 3, relu 5, identity 2, relu 6",
    "enas-ptb": "tanh 0, tanh 1, relu 1, tanh 3, tanh 3, relu 3, relu 4, relu 7, relu 8, relu 8, relu 8",
    # as pairs in the authors' script: 0 0 1 1 2 1 2 0 2 0 5 1 1 0 6 1 8 1 8 1 8 1
    "enas-script": "tanh 0, relu 1, relu 2, tanh 2, tanh 2, relu 5, tanh 1, relu 6, relu 8, relu 8, relu 8",
    "gdas": "relu 0, relu 0, identity 1, relu 1, tanh 0, relu 2, identity 4, identity 2",
    "nao": "relu 0, relu 0, relu 1, tanh 3, relu 4, relu 4, relu 5, relu 1, relu 7, relu 1, identity 1",
    "nao-ws": "relu 0, relu 1, sigmoid 2, sigmoid 1, relu 4, relu 4, relu 4, relu 7, sigmoid 8, tanh 1, relu 4",
    "sdarts-adv": "relu 0, relu 1, tanh 2, relu 3, identity 2, relu 1, tanh 2, relu 7",
    "sdarts-rs": "sigmoid 0, sigmoid 1, identity 2, sigmoid 1, tanh 2, tanh 2, sigmoid 0, sigmoid 3",
    "ednas": "identity 0, tanh 1, relu 1, tanh 2, relu 4, relu 3, sigmoid 4, tanh 7",
    # as pairs of node and operation in the authors' command: 0 2 1 0 2 1 2 2 4 0 5 0 3 2 6 2
    "enas-lm": "sigmoid 0, tanh 1, relu 2, sigmoid 2, tanh 4, tanh 5, sigmoid 3, sigmoid 6",
    "ennas": "sigmoid 0, identity 1, tanh 1, sigmoid 3, identity 0, tanh 0, sigmoid 4, sigmoid 3",
    "ennas-pr": "tanh 0, sigmoid 0, sigmoid 2, sigmoid 3, tanh 4, identity 2, identity 3, sigmoid 3",
    "nsas": "sigmoid 0, sigmoid 0, tanh 2, tanh 2, sigmoid 3, relu 4, tanh 3, relu 5",
}
OUTPUTS = {"enas-ptb": (2, 5, 6, 9, 10, 11), "enas-script": (3, 4, 7, 9, 10, 11)}  # of the others, all nodes


def edges_of(text: str) -> tuple[tuple[Edge, ...], ...]:
    """Return one edge per node from text such as "relu 0, tanh 1"."""
    words = [pair.split() for pair in text.split(", ")]
    return tuple((Edge(op, int(tail)),) for op, tail in words)


def gated_example() -> Genotype:
    """Return a genotype with two edges between one pair, an output subset, both gates and no default option."""
    return Genotype(
        nodes=((Edge("tanh", 0), Edge("relu", 0)), (Edge("sigmoid", 1),)),
        output=(2,),
        state_gate=Gate((GateNode("tanh"), GateNode("relu", (Edge("sigmoid", 1),)))),
        input_gate=Gate((GateNode("sigmoid"),)),
        highway=False,
        combine="sum",
        gate="product",
        carry="gated",
        origin={"method": "by hand", "figures": {"dev_f1": 0.5}},
    )


# --- written forms ----------------------------------------------------------------------------------------------------


@relaxed
@given(genotypes())
def test_json_keeps_structure_options_and_origin(genotype: Genotype) -> None:
    text = genotype.to_json()
    for back in (Genotype.from_json(text), Genotype.parse(f"\n {text}"), Genotype.from_dict(json.loads(text))):
        assert (back, back.options, back.origin) == (genotype, genotype.options, genotype.origin)
        assert back.to_json() == text


def test_json_is_laid_out_as_documented() -> None:
    edge = {"op": "sigmoid", "tail": 1}
    assert json.loads(gated_example().to_json()) == {
        "format": "flair-nas/genotype",
        "version": 2,
        "cell": {"nodes": [[{"op": "tanh", "tail": 0}, {"op": "relu", "tail": 0}], [edge]], "output": [2]},
        "state_gate": {"nodes": [{"entry": "tanh", "edges": []}, {"entry": "relu", "edges": [edge]}]},
        "input_gate": {"nodes": [{"entry": "sigmoid", "edges": []}]},
        "options": {"highway": False, "combine": "sum", "gate": "product", "carry": "gated"},
        "origin": {"method": "by hand", "figures": {"dev_f1": 0.5}},
    }


def test_json_without_the_optional_keys_gets_the_defaults() -> None:
    data = gated_example().to_dict()
    for key in ("state_gate", "input_gate", "options", "origin"):
        del data[key]
    genotype = Genotype.from_dict(data)
    assert genotype == Genotype(nodes=gated_example().nodes, output=(2,))
    defaults = {"highway": True, "combine": "mean", "gate": "residual", "carry": "ungated"}
    assert genotype.options == defaults and genotype.origin == {}


@pytest.mark.parametrize("state_gate", [True, False])
@relaxed
@given(genotype=genotypes(version=2))
def test_a_file_of_version_1_means_what_it_meant(genotype: Genotype, state_gate: bool) -> None:
    """In version 1, a cell with a state gate carried the gated state without an option for it."""
    gate = Gate((GateNode("tanh"),)) if state_gate else None
    data = replace(genotype, state_gate=gate).to_dict() | {"version": 1}
    del data["options"]["carry"]
    found = Genotype.from_dict(data)
    assert found.carry == ("gated" if state_gate else "ungated")
    assert found.options | {"carry": ""} == genotype.options | {"carry": ""}
    assert Genotype.from_json(found.to_json()).options == found.options  # written anew, it is the same cell


@relaxed
@given(genotypes())
def test_the_one_line_form_keeps_the_structure_and_needs_no_quotes_in_a_shell(genotype: Genotype) -> None:
    line = genotype.one_line()
    assert Genotype.parse(line) == Genotype.parse(f"  {line}\n") == genotype
    assert str(genotype) == line == shlex.quote(line)


def test_the_one_line_form_is_spelt_as_documented() -> None:
    assert gated_example().one_line() == "tanh0+relu0-sigmoid1:2/state=tanh-relu+sigmoid1/input=sigmoid"
    assert Genotype(nodes=edges_of("relu 0, tanh 1")).one_line() == "relu0-tanh1"  # all nodes: no output is named


@relaxed
@given(genotypes(gated=False, version=2), st.booleans())
def test_the_classic_tuple_and_its_printed_form_keep_the_structure(genotype: Genotype, bare: bool) -> None:
    lists = [[(edge.op, edge.tail) for edge in edges] for edges in genotype.nodes]
    recurrent = [pairs[0] if bare and len(pairs) == 1 else pairs for pairs in lists]  # DARTS prints no inner list
    whole = len(genotype.output) == len(genotype.nodes)
    classic = DartsTuple(recurrent, range(1, len(genotype.nodes) + 1) if whole else list(genotype.output))
    assert Genotype.from_darts(*classic) == genotype
    assert Genotype.parse(repr(classic)) == genotype


def test_the_order_of_edges_has_no_meaning() -> None:
    assert Genotype.parse("tanh0-relu1+tanh0") == Genotype.parse("tanh0-tanh0+relu1")
    gates = [Gate((GateNode("tanh"), GateNode("tanh"), GateNode("relu", edges)))
             for edges in ((Edge("tanh", 1), Edge("relu", 2)), (Edge("relu", 2), Edge("tanh", 1)))]  # fmt: skip
    assert gates[0] == gates[1]


def test_a_product_gate_without_sigmoid_is_known_to_be_silent() -> None:
    gated = Genotype.parse("tanh0-relu1/input=tanh-relu+tanh1")
    assert replace(gated, gate="product").silent and not gated.silent
    for line in ("tanh0-relu1/input=tanh-relu+sigmoid1", "tanh0-sigmoid1/input=tanh", "tanh0/state=tanh", "tanh0"):
        assert not replace(Genotype.parse(line), gate="product").silent


def test_scalars_of_numpy_are_taken_as_pythons_own() -> None:
    op, tail = numpy.str_("relu"), numpy.int64(1)
    genotype = Genotype.from_darts([(numpy.str_("tanh"), numpy.int32(0)), [(op, tail)]], numpy.arange(1, 3))
    assert genotype == Genotype.parse("tanh0-relu1") == Genotype.parse(genotype.to_json())
    assert genotype == Genotype.parse(f"Genotype(recurrent=[('tanh', 0), ({op!r}, {tail!r})], concat=range(1, 3))")
    assert {type(edge.tail) for edges in genotype.nodes for edge in edges} == {int}


def test_from_darts_takes_options_and_no_output_as_all_nodes() -> None:
    genotype = Genotype.from_darts([("tanh", 0), [("relu", 1), ("relu", 0)]], highway=False, origin={"corpus": "PTB"})
    assert genotype.output == (1, 2) and genotype.nodes[1] == (Edge("relu", 0), Edge("relu", 1))
    assert genotype.highway is False and genotype.origin == {"corpus": "PTB"}


@pytest.mark.parametrize(
    "text",
    [
        "2019-04-01 12:00:00,123 (epoch 3) genotype = Genotype(recurrent=[('tanh', 0), ('relu', 1)], "
        "concat=range(1, 3)) took 1.5s (12 batches)",
        "Genotype([('tanh', 0), ('relu', 1)], [1, 2])",
        "Genotype(concat=(1, 2), recurrent=(('tanh', 0), ('relu', 1)))",
        "X = [(Genotype(recurrent=([(('tanh'), (0)), ([('relu', (1))])]), concat=(range((1), (3)))))]",
        "Genotype(recurrent=[('tanh', 0),\n                    ('relu', 1)],\n         concat=range(1, 3))",
        "Genotype(recurrent=[(np.str_('tanh'), 0), (np.str_('relu'), np.int64(1))], concat=range(1, 3))",
        "Genotype([[(numpy.str_('tanh'), np.int32(0))], ('relu', np.uint8(1))], range(np.int64(1), np.int64(3)))",
        "epoch 1 Genotype(recurrent=[('sigmoid', 0)], concat=range(1, 2))\n"
        "epoch 2 Genotype(recurrent=[('tanh', 0), ('relu', 1)], concat=range(1, 3))\n",  # a log: the last one
    ],
    ids=["in a log line", "positional", "tuples", "extra brackets", "over lines", "NumPy 2", "NumPy, oddly", "last"],
)
def test_the_printed_form_is_found_in(text: str, tmp_path: Path) -> None:
    expected = Genotype(nodes=edges_of("tanh 0, relu 1"))
    (tmp_path / "search.log").write_text(text)
    assert Genotype.parse(text) == Genotype.load(tmp_path / "search.log") == expected


ATTACKS = {
    "call": "Genotype(recurrent=__import__('os').system('touch {mark}'), concat=[1])",
    "inside range": "Genotype(recurrent=[('tanh', 0)], concat=range(1, 2 + __import__('os').system('touch {mark}')))",
    "f-string": "Genotype(recurrent=[(f\"{{open('{mark}', 'w') and 'tanh'}}\", 0)], concat=[1])",
    "starred": "Genotype(*[open('{mark}', 'w')], concat=[1])",
    "starred range": "Genotype(recurrent=[('tanh', 0)], concat=range(*[open('{mark}', 'w').fileno()]))",
    "inside a NumPy scalar": "Genotype(recurrent=[(np.str_(open('{mark}', 'w').name), 0)], concat=[1])",
    "another function of NumPy": "Genotype(recurrent=[(np.str_(np.loadtxt('{mark}')), open('{mark}', 'w'))])",
    "like NumPy": "Genotype(recurrent=[('tanh', open('{mark}', 'w').np.int64(0))], concat=[1])",
}


NUMPY = SimpleNamespace(str_=str, int64=int, loadtxt=str)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_code_in_a_printed_form_is_refused_and_never_runs(attack: str, tmp_path: Path) -> None:
    text = attack.format(mark=tmp_path / "ran")
    with pytest.raises(GenotypeError, match="expected Genotype"):
        Genotype.parse(text)
    with pytest.raises(GenotypeError):
        load_genotype(text)
    assert not (tmp_path / "ran").exists()
    with contextlib.suppress(AttributeError):
        # the attack is a live one: it leaves its mark when run
        eval(text, {"Genotype": lambda *args, **named: None, "np": NUMPY})
    assert (tmp_path / "ran").exists()


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_genotype_is_frozen_and_lists_become_tuples() -> None:
    genotype = gated_example()
    for part, name in ((genotype, "nodes"), (genotype.nodes[0][0], "op"), (genotype.state_gate, "nodes")):
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, ())
    listed = Genotype(nodes=[[Edge("tanh", 0)], [Edge("relu", 1)]], output=[2, 1])  # type: ignore[arg-type]
    assert listed.nodes == edges_of("tanh 0, relu 1") and listed.output == (1, 2)
    assert hash(listed) == hash(Genotype.parse("tanh0-relu1"))
    gate = Gate([GateNode("tanh", []), GateNode("relu", [Edge("tanh", 1)])])  # type: ignore[arg-type]
    gated, same = Genotype(nodes=edges_of("tanh 0"), state_gate=gate), Genotype.parse("tanh0/state=tanh-relu+tanh1")
    assert gated == same and hash(gated) == hash(same)


def test_genotypes_are_equal_by_structure_alone() -> None:
    one = gated_example()
    other = replace(one, highway=True, combine="mean", gate="residual", origin={})
    assert one == other and hash(one) == hash(other) and one.options != other.options
    assert len({one, other, copy.deepcopy(one), pickle.loads(pickle.dumps(one))}) == 1
    different = [
        replace(one, nodes=(one.nodes[0][:1], one.nodes[1])),
        replace(one, output=(1, 2)),
        replace(one, state_gate=None),
        replace(one, state_gate=one.input_gate, input_gate=one.state_gate),
    ]
    assert len({one, *different}) == 5


@pytest.mark.parametrize("public", [Genotype, Edge, Gate, GateNode, GenotypeError])
def test_a_public_class_is_known_and_pickled_by_its_public_name(public: type) -> None:
    assert public.__module__ == "flair_nas" and pickle.loads(pickle.dumps(public)) is public


@relaxed
@given(genotypes())
def test_live_nodes_are_those_on_a_path_to_the_output(genotype: Genotype) -> None:
    def reaches_output(node: int) -> bool:
        readers = [i for i, edges in enumerate(genotype.nodes, 1) if any(edge.tail == node for edge in edges)]
        return node in genotype.output or any(map(reaches_output, readers))

    assert genotype.live_nodes == tuple(i for i in range(1, len(genotype.nodes) + 1) if reaches_output(i))


# --- bundled and random -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_bundled_genotype_is_the_published_one(name: str) -> None:
    nodes, genotype = edges_of(PUBLISHED[name]), load_genotype(name)
    assert (genotype.nodes, genotype.output) == (nodes, OUTPUTS.get(name, tuple(range(1, len(nodes) + 1))))
    assert genotype.state_gate is None and genotype.input_gate is None and genotype.highway is True
    origin = genotype.origin
    assert all(origin[key] for key in ("method", "corpus", "paper", "source", "licence", "note"))
    assert any(key.endswith("_published") for key in origin["figures"]) or "no figure" in origin["note"]


def test_the_bundled_genotypes_of_this_project_say_how_they_were_found() -> None:
    small = {"small-relu-tanh": "relu0-tanh1", "small-relu": "relu0", "small-tanh": "tanh0"}
    others = set(bundled_names()) - set(PUBLISHED)
    assert others == {"ess-ptb", *small}
    for name, line in small.items():
        assert load_genotype(name) == Genotype.parse(line) and load_genotype(name).origin["command"]
    genotype = load_genotype("ess-ptb")
    assert len(genotype.nodes) == 8
    assert genotype.state_gate is not None and genotype.state_gate.history == 3
    assert genotype.input_gate is not None and genotype.input_gate.history == 3
    origin = genotype.origin
    assert origin["method"].startswith("I-DARTS, first order, within gates") and origin["corpus"] == "Penn Treebank"
    assert origin["training_tokens"] == 929_589
    assert origin["command"].startswith("python benchmarks/search_quality.py search ess-")
    assert origin["figures"]["epochs"] == origin["settings"]["epochs"]


@relaxed
@given(st.integers(), st.integers(1, 12), st.integers(1, 4), st.integers(0, 5))
def test_a_random_genotype_has_the_size_asked_for(seed: int, nodes: int, edges: int, history: int) -> None:
    genotype = random_genotype(seed, nodes, edges, history)
    again = random_genotype(seed, nodes, edges, history)
    assert genotype == again and genotype.origin == again.origin
    assert [len(set(node)) for node in genotype.nodes] == [edges] * nodes  # a set: each edge once
    for gate in (genotype.state_gate, genotype.input_gate):
        assert (gate.history if gate else 0) == history
    assert Genotype.parse(genotype.one_line()) == genotype


def test_a_random_genotype_is_the_same_on_every_machine_and_draws_every_edge() -> None:
    assert random_genotype(7, nodes=3, edges_per_node=2, history=2).one_line() == (
        "tanh0+sigmoid0-relu1+sigmoid1-tanh0+relu0/state=tanh-sigmoid+identity1/input=tanh-relu"
    )
    drawn = [random_genotype(seed, nodes=3) for seed in range(400)]
    last = {genotype.nodes[2] for genotype in drawn}
    assert last == {(Edge(op, tail),) for op in KEPT for tail in range(3)}
    assert 220 < len(set(drawn)) < 280  # 400 uniform draws from 4 * 8 * 12 = 384 cells hit 248 of them, give or take 7


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"nodes": 0}, "nodes=0"), ({"edges_per_node": 5}, "1 to 4, got 5"), ({"edges_per_node": 0}, "got 0"),
     ({"history": -1}, "got -1")],
)  # fmt: skip
def test_a_random_genotype_of_no_possible_size_is_refused(arguments: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        random_genotype(1, **arguments)


# --- faults -----------------------------------------------------------------------------------------------------------

EARLIER = "an earlier node, 0 to 1, as tail of an edge into node 2"
A_NODE = "a node, 1 to 3"


def into(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that puts a value at a place of the JSON form."""

    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def without(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


def no_nodes(data: dict[str, Any]) -> None:
    data["version"], data["cell"]["nodes"] = 3, []


def elementwise(data: dict[str, Any]) -> None:
    data["version"], data["options"]["recurrence"] = 3, "elementwise"


EDGE_2 = ("cell", "nodes", 1, 0)
GATE_2 = ("state_gate", "nodes", 1)
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], str, str, str]] = {
    # name: the change, the place, what is found there, what is expected
    "unknown op": (into(*EDGE_2, "op", value="gelu"), "cell.nodes[1][0].op", "'gelu'", f"one of {', '.join(KEPT)}"),
    "op no text": (into(*EDGE_2, "op", value=["tanh"]), "cell.nodes[1][0].op", "['tanh']", "one of tanh"),
    "drop": (into(*EDGE_2, "op", value="drop"), "cell.nodes[1][0].op", "'drop'", "an operation that keeps the edge"),
    "later tail": (into(*EDGE_2, "tail", value=3), "cell.nodes[1][0].tail", "3", EARLIER),
    "bool tail": (into(*EDGE_2, "tail", value=True), "cell.nodes[1][0].tail", "True", EARLIER),
    "fractional tail": (into(*EDGE_2, "tail", value=1.0), "cell.nodes[1][0].tail", "1.0", EARLIER),
    "edge without op": (without(*EDGE_2, "op"), "cell.nodes[1][0]", "['tail']", "the key 'op'"),
    "edge with more": (into(*EDGE_2, "weight", value=1), "cell.nodes[1][0]", "'weight'", "no key but op, tail"),
    "edge no object": (into(*EDGE_2, value=["tanh", 0]), "cell.nodes[1][0]", "['tanh', 0]", "an object"),
    "edge twice": (
        into("cell", "nodes", 1, value=[{"op": "tanh", "tail": 0}] * 2),
        "cell.nodes[1]", "(Edge(op='tanh', tail=0), Edge(op='tanh', tail=0))", "each (operation, tail) once",
    ),
    "empty node": (into("cell", "nodes", 1, value=[]), "cell.nodes[1]", "[]", "at least one edge into node 2"),
    "node no list": (into("cell", "nodes", 1, value="tanh0"), "cell.nodes[1]", "'tanh0'", "a list"),
    "no nodes": (into("cell", "nodes", value=[]), "cell.nodes", "[]", "at least one node"),
    "no cell": (without("cell"), "", "['format', 'input_gate', 'options',", "the key 'cell'"),
    "no output": (without("cell", "output"), "cell", "['nodes']", "the key 'output'"),
    "empty output": (into("cell", "output", value=[]), "cell.output", "[]", "at least one output node"),
    "output twice": (into("cell", "output", value=[1, 3, 1]), "cell.output", "(1, 3, 1)", "each output node once"),
    "output 0": (into("cell", "output", value=[0]), "cell.output[0]", "0", A_NODE),
    "output beyond": (into("cell", "output", value=[1, 4]), "cell.output[1]", "4", A_NODE),
    "output no list": (into("cell", "output", value=3), "cell.output", "3", "a list"),
    "other format": (into("format", value="onnx"), "format", "'onnx'", "'flair-nas/genotype'"),
    "version 4": (into("version", value=4), "version", "4", "version 1 to 3, which this flair-nas reads; a newer one"),
    "recurrence in version 2": (into("options", "recurrence", value="full"), "options", "'recurrence'", "no key but"),
    "no nodes, output 1": (no_nodes, "cell.output[0]", "1", "0, for s_0, as the cell has no nodes"),
    "gates and elementwise": (elementwise, "options.recurrence", "'elementwise'", "full: an elementwise recurrence"),
    "carry in version 1": (into("version", value=1), "options", "'carry'", "no key but highway, combine, gate"),
    "bool version": (into("version", value=True), "version", "True", "version 1"),
    "unknown key": (into("cells", value={}), "", "'cells'", "no key but format, version, cell, state_gate"),
    "unknown option": (into("options", "dropout", value=1), "options", "'dropout'", "no key but highway, combine"),
    "highway 1": (into("options", "highway", value=1), "options.highway", "1", "true or false"),
    "combine max": (into("options", "combine", value="max"), "options.combine", "'max'", "sum or mean"),
    "origin text": (into("origin", value="a paper"), "origin", "'a paper'", "an object with text keys"),
    "gate no object": (into("input_gate", value=[]), "input_gate", "[]", "an object"),
    "gate without nodes": (into("input_gate", "nodes", value=[]), "input_gate", "Gate(nodes=())", "a gate with at"),
    "gate: later tail": (
        into(*GATE_2, "edges", 0, "tail", value=2),
        "state_gate.nodes[1].edges[0].tail", "2", "an earlier node, 1 to 1, as tail of an edge into node 2",
    ),
    "gate: tail 0": (into(*GATE_2, "edges", 0, "tail", value=0), "state_gate.nodes[1].edges[0].tail", "0", "an earl"),
    "gate: edge into node 1": (
        into("state_gate", "nodes", 0, "edges", value=[{"op": "tanh", "tail": 1}]),
        "state_gate.nodes[0].edges[0].tail", "1", "no edge: no node is earlier",
    ),
}  # fmt: skip


def sound() -> dict[str, Any]:
    return Genotype.parse("relu0-tanh0-relu1+tanh2/state=tanh-relu+sigmoid1/input=sigmoid").to_dict()


def error_of(path: Path) -> str:
    """Return the message for a file without its path, which is equal for both ways to load it."""
    with pytest.raises(GenotypeError) as caught:
        Genotype.load(path)
    with pytest.raises(FlairNasError) as again:
        load_genotype(path)
    assert str(again.value) == str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_file_is_refused_with_the_place_what_was_found_and_expected(name: str, tmp_path: Path) -> None:
    change, place, found, expected = FAULTS[name]
    data = sound()
    assert Genotype.from_dict(data).to_dict() == data  # so that the change alone is at fault
    change(data)
    path = tmp_path / "found.json"
    path.write_text(json.dumps(data))
    message = error_of(path)
    start, _, end = message.partition("; expected ")
    assert start.startswith(f"{place}: found {found}" if place else f"found {found}")
    assert start.endswith(found) or found.endswith(",")  # a list of keys is given by its beginning
    assert end.startswith(expected)


def test_json_that_is_cut_short_anywhere_is_refused_with_its_line(tmp_path: Path) -> None:
    text = gated_example().to_json().rstrip()
    path = tmp_path / "cut.json"
    for end in range(1, len(text), 7):
        cut = text[:end].rstrip()
        path.write_text(cut)
        line = cut.count("\n") + 1
        message = error_of(path)
        place, _, rest = message.partition(": ")
        assert place.startswith(f"line {line}, column ") and rest.startswith("expected valid JSON: ")
    path.write_text(text[: text.index('"origin"')])
    assert "(the file looks cut short)" in error_of(path)
    path.write_text('\n\n{\n  "format": oops\n}\n')  # an editor shows line 4
    assert error_of(path).startswith("line 4, column 13: expected valid JSON")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"\x80\x02}q\x00X\xff", ["expected a genotype in UTF-8 text", "binary file"]),
        (b"", ["expected a genotype", "the file is empty"]),
        (b'{"model": "lstm", "hidden": 3}',
         ["found ['hidden', 'model']", "expected the keys 'format', 'version', 'cell'"]),
        (b"[1, 2, 3]", ["found '[1, 2, 3]'", "expected a genotype: one line, JSON, or the printed named tuple"]),
        (b"null", ["cell.nodes[0]: found 'null'", "expected an operation and the node it reads"]),
        (b"a search log\nwithout a genotype", ["found 'a search log", "expected a genotype: one line, JSON"]),
        (b"Genotype(recurrent=[('tanh', 0)], conc", ["found \"Genotype(recurrent", "expected a closing bracket"]),
        (b"Genotype(normal=[('sep_conv_3x3', 0)], normal_concat=[2])",
         ["found ['normal', 'normal_concat']", "expected the fields recurrent and concat"]),
    ],
    ids=["binary", "empty", "other JSON", "JSON list", "JSON null", "prose", "cut print", "convolutional"],
)  # fmt: skip
def test_a_file_that_is_another_thing_is_refused_by_name(content: bytes, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    message = error_of(path)
    assert [part for part in parts if part not in message] == []


def test_a_folder_and_a_missing_file_are_refused_by_name(tmp_path: Path) -> None:
    assert error_of(tmp_path) == "expected a readable genotype file (Is a directory)"
    assert error_of(tmp_path / "no.json") == "expected a readable genotype file (No such file or directory)"


def test_a_range_of_countless_output_nodes_costs_no_memory() -> None:
    code = """
import resource
from flair_nas.genotype import Genotype, GenotypeError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    Genotype.parse("Genotype(recurrent=[('tanh', 0)], concat=range(1, 1000000000000))")
except GenotypeError as error:
    print(error)
"""
    done = run_python(code)
    assert "a node, 1 to 1" in done.stdout, done.stderr[-300:]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("tanh0-gelu0", ["cell.nodes[1][0].op", "found 'gelu'", "expected one of tanh"]),
        ("tanh0-relu2", ["cell.nodes[1][0].tail", "found 2", "expected an earlier node, 0 to 1"]),
        ("tanh0-relu", ["cell.nodes[1]", "found 'relu'", "expected an operation and the node it reads"]),
        ("tanh0:1,1", ["cell.output", "found '1,1'", "expected output nodes joined by dots"]),
        ("tanh0/output=tanh", ["found '/output=tanh'", "expected one /state= and one /input= at most"]),
        ("tanh0/state=tanh/state=tanh", ["found '/state=tanh'", "expected one /state= and one /input= at most"]),
        ("tanh0/state=", ["state_gate.nodes[0].entry", "found ''", "expected one of tanh"]),
        ("tanh0/input=tanh-relu+tanh", ["input_gate.nodes[1]", "found 'tanh'", "expected an operation and the node"]),
    ],
)
def test_a_faulty_line_is_refused_with_the_place_what_was_found_and_expected(line: str, parts: list[str]) -> None:
    with pytest.raises(GenotypeError) as caught:
        Genotype.parse(line)
    positions = [str(caught.value).find(part) for part in parts]
    assert -1 not in positions and positions == sorted(positions), str(caught.value)


@pytest.mark.parametrize(
    ("recurrent", "concat", "parts"),
    [
        ("tanh0", [1], ["recurrent: ", "found 'tanh0'", "expected a list of (operation, tail) pairs"]),
        ([("tanh", 0), 3], None, ["recurrent[1]", "found 3", "expected an (operation, tail) pair"]),
        ([[("tanh", 0, 1)]], None, ["recurrent[0]", "found ('tanh', 0, 1)", "expected an (operation, tail) pair"]),
        ([], None, ["recurrent", "found []", "expected at least one node"]),
        ([("tanh", 0)], [], ["concat", "found []", "expected at least one output node"]),
        ([("tanh", 0)], 1, ["concat", "found 1", "expected node numbers"]),
        ([("tanh", 0)], range(0, 2), ["cell.output[0]", "found 0", "expected a node, 1 to 1"]),
    ],
)
def test_a_faulty_classic_tuple_is_refused_in_python_and_in_print(
    recurrent: Any, concat: Any, parts: list[str]
) -> None:
    with pytest.raises(GenotypeError) as caught:
        Genotype.from_darts(recurrent, concat)
    with pytest.raises(GenotypeError) as printed:
        Genotype.parse(f"log: {DartsTuple(recurrent, concat)!r}")
    assert str(printed.value) == str(caught.value)
    positions = [str(caught.value).find(part) for part in parts]
    assert -1 not in positions and positions == sorted(positions), str(caught.value)


# --- the module -------------------------------------------------------------------------------------------------------


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_module_imports_neither_torch_nor_flair() -> None:
    code = """
import sys
from flair_nas.genotype import Genotype, random_genotype
genotype = random_genotype(1, history=2)
assert Genotype.parse(genotype.to_json()) == genotype
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "flair", "numpy", "flair_nas"}))
"""
    done = run_python(code)
    assert (done.returncode, done.stdout.strip()) == (0, "['flair_nas']"), done.stderr


def test_the_forms_in_the_docs_are_one_genotype() -> None:
    text = (Path(__file__).parents[2] / "docs" / "genotypes.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S)
    line = re.search(r"On one line this is `(.+?)`", text)
    assert line is not None and Genotype.parse(written) == Genotype.parse(line[1])
    blocks = re.findall(r"^```text\n(.*?)\n```$", text, re.M | re.S)
    lines = [block for block in blocks if not block.startswith("flair-nas ")]
    assert len(lines) == 2 and [Genotype.parse(found).output for found in lines] == [(2,), (1, 2)]
    printed = re.search(r"`(Genotype\(recurrent=.+?)`", text)
    assert printed is not None and Genotype.parse(printed[1]).one_line() == "tanh0-relu1"


# what was made to break it


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Genotype.parse("-".join(["tanh0"] * 10**6)), "at most 1,000 nodes, not 1,000,000"),
        (lambda: Genotype.parse("tanh0/state=" + "-".join(["tanh"] * 1001)), "at most 1,000 nodes, not 1,001"),
        (lambda: Genotype.from_darts([("tanh", 0)] * 10**6), "at most 1,000 nodes, not 1,000,000"),
        (lambda: Genotype.parse(f"Genotype(recurrent={[('tanh', 0)] * 10**5})"), "at most 100,000 characters"),
        (lambda: Genotype(((Edge("tanh", 0),),) * 1001), "at most 1,000 nodes, not 1,001"),
        (lambda: Genotype.from_json(json.dumps(changed(cell={"nodes": [[]] * 1001, "output": [1]}))), "at most 1,000"),
        (lambda: random_genotype(1, nodes=1001), "at most 1,000"),
        (lambda: random_genotype(1, history=1001), "at most 1,000"),
        (lambda: Genotype.from_json('{"format": 1, "format": 2}'), "each key once"),
        (
            lambda: Genotype.from_json(
                json.dumps(changed(origin={f"k{n}": 1 for n in range(10**5)}))[:-2] + ', "k7": 2}}'
            ),
            "each key once",
        ),
        (lambda: Genotype.from_json('{"a":' * 100_000), "valid JSON"),
        (lambda: Genotype.parse("tanh" + "9" * 5000), "such as tanh0"),
        (lambda: Genotype.parse("tanh0:" + "9" * 5000), "joined by dots"),
        (lambda: Genotype.parse(f"Genotype(recurrent={'-' * 100_000}1, concat=[1])"), "at most 100,000 characters"),
        (lambda: Genotype.parse(f"Genotype(recurrent={'1+' * 40_000}1, concat=[1])"), "expected Genotype(recurrent"),
        (lambda: Genotype.parse(f"Genotype(recurrent={'[' * 100_000}"), "a closing bracket"),
        (lambda: Genotype.from_json(json.dumps(changed(cell={"nodes": nested(800), "output": [1]}))), "expected"),
        (lambda: Genotype.from_json('{"version": ' + "9" * 10_000 + "}"), "valid JSON"),
        (lambda: replace(Genotype.parse("tanh0"), origin={"a": "\ud83d"}), "in UTF-8"),
        (lambda: Genotype.from_json(json.dumps(changed(origin={"a": "\ud83d"}))), "in UTF-8"),
        (lambda: replace(Genotype.parse("tanh0"), origin={"a": nested(10**5)}), "JSON can hold"),
        (lambda: Genotype.from_dict(changed(version=10**5000)), "a large int"),
    ],
)
def test_a_genotype_made_to_break_it_is_refused_in_short(make: Callable[[], Genotype], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        make()
    assert len(str(caught.value)) < 500
    str(caught.value).encode()


def changed(**parts: Any) -> dict[str, Any]:
    return {**Genotype.parse("tanh0").to_dict(), **parts}


def test_a_thousand_nodes_are_not_too_many() -> None:
    genotype = Genotype.parse("-".join(["tanh0"] * 1000))
    assert Genotype.parse(genotype.to_json()) == Genotype.parse(genotype.one_line()) == genotype
