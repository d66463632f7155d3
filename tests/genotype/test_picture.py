"""Pictures of genotypes: what is in them is what the genotype says, and nothing lies on anything else."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.textpath import TextPath

from flair_nas import Genotype, load_genotype, random_genotype
from flair_nas.genotype import OPERATION_TABLE
from flair_nas.genotype.graph import graph_equations, layout, to_text
from flair_nas.genotype.picture import DARK, LIGHT, letter_colour, place_shapes, to_dot, to_png, to_svg
from flair_nas.library.named import bundled_names

COLOURS = {name: row.colour for name, row in OPERATION_TABLE.items() if row.colour}
DRAWN = [
    *map(load_genotype, bundled_names()),
    random_genotype(1, 12, 2, 5),
    Genotype.parse("tanh0-relu1-relu0-tanh3:2"),
]
RANDOM = st.builds(
    random_genotype, st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3), st.sampled_from([0, 0, 1, 5])
)


def edges_of(genotype: Genotype) -> Counter[tuple[str, str, str]]:
    """Return operation, tail and head of every edge, gates included."""
    found = [(edge.op, f"s{edge.tail}", f"s{n}") for n, edges in enumerate(genotype.nodes, 1) for edge in edges]
    for gate, letter in ((genotype.state_gate, "f"), (genotype.input_gate, "g")):
        for n, node in enumerate(gate.nodes if gate else [], 1):
            found += [(node.entry, f"v{n}", f"{letter}{n}")]
            found += [(edge.op, f"{letter}{edge.tail}", f"{letter}{n}") for edge in node.edges]
    return Counter(found)


def check(genotype: Genotype) -> None:
    root = ElementTree.fromstring(to_svg(genotype))
    every = list(root.iter())
    drawn = [item for item in every if item.get("data-op")]
    assert Counter((i.get("data-op"), i.get("data-tail"), i.get("data-head")) for i in drawn) == edges_of(genotype)
    boxes = {i.get("data-vertex"): i for i in every if i.get("data-vertex") and i.get("data-vertex", "")[0] == "s"}
    outputs = {key for key, item in boxes.items() if item.get("data-output") == "true"}
    assert set(boxes) == {f"s{n}" for n in range(len(genotype.nodes) + 1)}
    assert outputs == {f"s{n}" for n in genotype.output}
    check_places(every, drawn)
    shapes, width, height = place_shapes(genotype)
    rects = [shape.at for shape in shapes if shape.kind == "rect"]
    for x, y, w, h in rects:
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    for one, other in itertools.combinations(rects, 2):
        apart = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
        assert apart or one[1] + one[3] <= other[1] or other[1] + other[3] <= one[1], (one, other)
    for shape in shapes:  # an edge passes no box: between columns alone does it leave its row
        if shape.kind == "path":
            ends = shape.at[:2], shape.at[-2:]
            for x, y, w, h in rects:
                for px, py in zip(shape.at[::2], shape.at[1::2]):
                    inside = x < px < x + w and y < py < y + h
                    assert not inside, (shape.data, ends, (x, y, w, h))


def numbers(item: ElementTree.Element, *names: str) -> list[float]:
    return [float(item.get(name, "nan")) for name in names]


def check_places(every: list[ElementTree.Element], edges: list[ElementTree.Element]) -> None:
    """Check that each edge joins its two boxes, and that each box has one label, its own."""
    rects = [(item, *numbers(item, "x", "y", "width", "height")) for item in every if item.get("rx")]
    texts = [(item.text, *numbers(item, "x", "y")) for item in every if item.tag.endswith("}text")]
    label = {}
    for item, x, y, w, h in rects:
        (label[item],) = (text for text, at, middle in texts if x < at < x + w and y < middle < y + h)
    for edge in edges:
        begin_x, begin_y, *_, end_x, end_y = map(float, edge.get("d", "")[1:].replace("C", "").split())
        (tail,) = (item for item, x, y, w, h in rects if abs(x + w - begin_x) < 0.01 and y <= begin_y <= y + h)
        assert tail.get("data-vertex") == edge.get("data-tail")
        ((entry, right),) = ((i, x + w) for i, x, y, w, h in rects if abs(x - end_x) < 0.01 and y <= end_y <= y + h)
        assert label[entry] == edge.get("data-op") and entry.get("data-vertex") is None
        (head,) = (item for item, x, y, _, h in rects if abs(x - right) < 0.01 and y <= end_y <= y + h)
        assert head.get("data-vertex") == edge.get("data-head")
    width, height = numbers(every[0], "width", "height")
    for text, x, y in ((text or "", x, y) for text, x, y in texts if text not in label.values()):  # titles
        assert x + TextPath((0, 0), text, size=13, prop={"weight": "bold"}).get_extents().width <= width
        assert all(top >= y + 10 or top + tall <= y - 10 for _, _, top, _, tall in rects) and 10 <= y <= height - 10


@pytest.mark.slow
@settings(max_examples=40)
@given(RANDOM | st.sampled_from(DRAWN))
def test_a_picture_is_of_its_genotype_and_nothing_overlaps(genotype: Genotype) -> None:
    check(genotype)


@pytest.mark.slow
def test_labels_fit_their_boxes() -> None:
    for genotype in DRAWN:
        for shape in place_shapes(genotype)[0]:
            if shape.kind == "text" and "start" not in shape.style:
                weight = "bold" if "bold" in shape.style else "normal"
                width = TextPath((0, 0), shape.text, size=13, prop={"weight": weight}).get_extents().width
                assert width < (60 if weight == "bold" else 56), shape.text


def test_letters_can_be_read_on_their_colours() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for op, colour in COLOURS.items():
        low, high = sorted([luminance(colour), luminance(letter_colour(colour))])
        assert (high + 0.05) / (low + 0.05) > 4.5, op  # WCAG 2, level AA
    for names in (LIGHT, DARK):
        for ink, under in (("ink", "paper"), ("ink", "box"), ("soft", "box"), ("soft", "faint")):  # soft: dead ones
            low, high = sorted([luminance(names[ink]), luminance(names[under])])
            assert (high + 0.05) / (low + 0.05) > 4.5, (ink, under)


# Machado, Oliveira and Fernandes (2009), of linear RGB, without one kind of cones at all
BLIND = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("kind", BLIND)
def test_the_colour_blind_can_tell_operations_apart(kind: str) -> None:
    def lab(colour: str) -> np.ndarray:
        """Return CIE 1976 L*a*b* of a colour as these readers see it."""
        parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        seen = np.clip(np.array(BLIND[kind]) @ linear, 0, 1)
        xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
        x, y, z = np.cbrt(xyz / [0.9505, 1.0, 1.089])
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    for one, other in itertools.combinations(COLOURS, 2):
        assert np.linalg.norm(lab(COLOURS[one]) - lab(COLOURS[other])) > 25, (one, other)


def test_columns_are_ordered_so_that_few_edges_cross() -> None:
    (graph,) = Genotype.parse("tanh0-relu0-sigmoid2-tanh1").graphs()
    columns, _ = layout(graph)
    assert [len(column) for column in columns] == [1, 2, 2]
    first, second = columns[1], columns[2]
    assert [first.index("s1"), first.index("s2")] == [second.index("s4"), second.index("s3")]  # straight lines


def test_equations_and_dot_and_png() -> None:
    genotype = Genotype.parse("tanh0-relu1-relu0-tanh3:2/state=tanh-relu+sigmoid1")
    cell, gate = genotype.graphs()
    assert graph_equations(cell)[:4] == [
        "s1 = tanh(s0)",
        "s2 = relu(s1)",
        "s3 = relu(s0)  (dead)",
        "s4 = tanh(s3)  (dead)",
    ]
    assert graph_equations(cell)[4].endswith("h[t] = mean of s2")
    assert graph_equations(gate) == [
        "f1 = tanh(x[t-1])",
        "f2 = relu(x[t-2]), sigmoid(f1)",
        "h[t-1] * (1 + mean of f1 to f2)",
    ]
    # a level further in than what it reads, in the order of levels
    assert to_text(genotype).startswith(
        "cell:\n  s1 = tanh(s0)\n  s3 = relu(s0)  (dead)\n    s2 = relu(s1)\n    s4 = tanh(s3)  (dead)\n  s0 of x[t]"
    )
    painted = to_text(genotype, coloured=True)
    assert "  s1 = \x1b[38;2;0;114;178mtanh\x1b[0m(s0)\n" in painted
    assert "  \x1b[38;2;128;128;128ms3 = relu(s0)  (dead)\x1b[0m\n" in painted  # none of its own within the grey
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == to_text(genotype)
    dot = to_dot(genotype)
    assert dot.count("->") == 4 + 3 and 'label="sigmoid"' in dot and dot.count("{") == dot.count("}") == 3
    assert to_png(genotype)[:8] == to_png(genotype, dark=True)[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_notebook_shows_the_picture_and_a_terminal_the_line() -> None:
    genotype = load_genotype("darts-v2")
    assert genotype._repr_svg_() == to_svg(genotype)
    assert repr(genotype) == genotype.one_line()
