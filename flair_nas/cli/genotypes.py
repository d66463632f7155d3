"""flair-nas genotypes: list, show, draw, fetch, publish, compare, sample and check genotypes."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flair_nas.cli.flags import add_action, add_hub_flags, count
from flair_nas.cli.log import print_table
from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import Genotype, GenotypeError, random_genotype
from flair_nas.genotype.complexity import edge_depth, edit_distance, multiply_adds
from flair_nas.genotype.graph import graph_equations, to_text
from flair_nas.genotype.picture import to_dot, to_png, to_svg
from flair_nas.library.card import publish_genotype, words_of
from flair_nas.library.downloads import download
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.library.named import bundled_names, is_address, load_genotype
from flair_nas.storage.files import copy_whole, whole_file, write_text
from flair_nas.storage.paths import typed, user_path

EXAMPLES = """examples:
  flair-nas genotypes list
  flair-nas genotypes show darts-v2
  flair-nas genotypes draw runs/search --out cell.svg
  flair-nas genotypes draw all --out pictures/
  flair-nas genotypes compare darts-v1 darts-v2
  flair-nas genotypes get hf://owner/name@main
  flair-nas genotypes get https://example.org/cell.json --out cell.json
  flair-nas genotypes publish runs/search --repository owner/name --license mit --out hub/
  flair-nas genotypes random --seed 3 --history 2 --out random.json
  flair-nas genotypes validate *.json

A genotype is a bundled name, a file of any written form, the folder of a search, a one-line genotype, or an address
(https://... or hf://owner/name[@revision], each with #sha256=... if you like). show, draw and compare also take options
after it: tanh0,recurrence=elementwise."""

_FORMATS: dict[str, Callable[[Genotype], str | bytes]] = {"svg": to_svg, "png": to_png, "dot": to_dot, "txt": to_text}
"""Functions that draw a genotype, by the suffix of the file."""

MEASURED = "zoo-small"
"""The table with figures of bundled genotypes. Their key in `origin` is ``zoo-small: COLUMN, FIGURE``."""


def add_parser(verbs: Any) -> None:
    """Add the verb with its actions to the command's parser."""
    genotypes = verbs.add_parser("genotypes", help="list, show, draw, compare and fetch genotypes", description=__doc__)
    actions = genotypes.add_subparsers(title="actions", metavar="ACTION", required=True)

    parser = add_action(actions, "list", list_all, EXAMPLES)
    parser.add_argument("genotypes", nargs="*", metavar="GENOTYPE", help="genotypes (default: the bundled ones)")
    _add_sizes(parser)

    parser = add_action(actions, "show", show, EXAMPLES)
    parser.add_argument("genotype", metavar="GENOTYPE")
    _add_sizes(parser)

    parser = add_action(actions, "draw", draw, EXAMPLES)
    parser.add_argument("genotype", metavar="GENOTYPE", help="or all: draw the bundled ones as SVG into a folder")
    parser.add_argument("--out", metavar="FILE", required=True, help=f"its suffix is the format: {', '.join(_FORMATS)}")
    parser.add_argument("--dark", action="store_true", help="PNG: light on dark (SVG follows the reader's system)")

    parser = add_action(actions, "compare", compare, EXAMPLES)
    parser.add_argument("genotypes", nargs=2, metavar="GENOTYPE")

    parser = add_action(actions, "get", get, EXAMPLES)
    parser.add_argument("source", metavar="SOURCE", help="https://... or hf://owner/name[@revision]")
    parser.add_argument("--refresh", action="store_true", help="fetch it again if it is in the cache")
    parser.add_argument("--out", metavar="FILE", help="also write the fetched file here")

    parser = add_action(actions, "publish", publish, EXAMPLES)
    parser.add_argument("genotype", metavar="GENOTYPE")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for genotype, picture and card")
    add_hub_flags(parser)

    parser = add_action(actions, "random", draw_at_random, EXAMPLES)
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed (default: 1)")
    parser.add_argument("--nodes", type=int, default=8, metavar="N", help="nodes of the cell (default: 8)")
    parser.add_argument("--edges-per-node", type=int, default=1, metavar="N", help="edges into each node (default: 1)")
    parser.add_argument("--history", type=int, default=0, metavar="N", help="m of both gates; 0: none (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="also write it here as JSON")

    parser = add_action(actions, "validate", validate, EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, the folder of a search, or a bundled name")


def _load(text: str) -> Genotype:
    """Return the genotype of a source, which options may follow."""
    return parse_layer_spec(text, ())[0] if re.search(r",\s*\w+=", text) else load_genotype(text)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hidden-size", type=count, default=256, metavar="N", help="H of the layer (default: 256)")
    parser.add_argument("--input-size", type=count, default=256, metavar="N", help="D of the layer (default: 256)")


def _size(genotype: Genotype, arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the weights of a layer in one direction, and its FLOP per token."""
    import torch

    from flair_nas.nn.searched_rnn import SearchedRNN

    with torch.device("meta"):
        layer = SearchedRNN(arguments.input_size, arguments.hidden_size, genotype)
    weights = sum(parameter.numel() for parameter in layer.parameters())
    return weights, 2 * multiply_adds(genotype, arguments.input_size, arguments.hidden_size)


def list_all(arguments: argparse.Namespace) -> int:
    """List the bundled genotypes, or others."""
    rows = [("name", "method", "corpus", "nodes", "depth", "gates", "weights", "FLOP / token", "published", "measured")]
    for name in arguments.genotypes or bundled_names():
        genotype = load_genotype(name)
        weights, flop = _size(genotype, arguments)
        gates = (("state", genotype.state_gate), ("input", genotype.input_gate))
        rows.append((
            brief(name).strip("'"),
            str(genotype.origin.get("method", "-")),
            str(genotype.origin.get("corpus", "-")),
            str(len(genotype.nodes)),
            str(edge_depth(genotype)),
            "+".join(f"{part} {gate.history}" for part, gate in gates if gate is not None) or "-",
            f"{weights:,}",
            f"{flop:,}",
            *_figures(genotype),
        ))  # fmt: skip
    print_table(rows)
    sizes = f"H = {arguments.hidden_size}, D = {arguments.input_size}"
    print(f"weights and FLOP of one direction, {sizes}; published: test perplexity in the papers")
    print(
        "measured: small models of equal size, test perplexity on PTB, test F1 on WNUT-2017, mean ± standard deviation "
        "over seeds, or one seed (docs/results.md)"
    )
    return 0


def _figures(genotype: Genotype) -> tuple[str, str]:
    """Return the published and the measured figures of a genotype as text."""
    published, measured = [], []
    figures = genotype.origin.get("figures")
    titles = {"ptb_test_perplexity_published": "PTB", "wikitext2_test_perplexity_published": "WT2"}
    for key, figure in figures.items() if isinstance(figures, dict) else ():
        if key in titles:
            published.append(f"{titles[key]} {figure:g}")
        elif key.startswith(f"{MEASURED}: "):
            part = key.removeprefix(f"{MEASURED}: ").partition(",")[0]
            measured.append(f"{part} {str(figure).partition(' (')[0]}")
    return ", ".join(published) or "-", ", ".join(measured) or "-"


def show(arguments: argparse.Namespace) -> int:
    """Show one: its equations, its provenance, its size."""
    genotype = _load(arguments.genotype)
    weights, flop = _size(genotype, arguments)
    print(genotype.one_line())
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(to_text(genotype, coloured), end="")
    print("options:", ", ".join(f"{name} {value}" for name, value in genotype.options.items()))
    for name, value in genotype.origin.items():
        lines = value.items() if isinstance(value, dict) else ()
        title = words_of(name)
        print("\n  ".join([f"{title}:" if lines else f"{title}: {value}", *(f"{key}: {text}" for key, text in lines)]))
    sizes = f"H = {arguments.hidden_size}, D = {arguments.input_size}"
    print(f"one direction, {sizes}: {weights:,} weights, {flop:,} FLOP a token; depth {edge_depth(genotype)}")
    return 0


def draw(arguments: argparse.Namespace) -> int:
    """Draw one as a picture, or all bundled ones."""
    out = user_path(arguments.out)
    if arguments.genotype == "all":
        out.mkdir(parents=True, exist_ok=True)
        for name in bundled_names():
            _write(load_genotype(name), out / f"{name}.svg", arguments.dark)
        print(f"{len(bundled_names())} pictures: {out}")
        return 0
    _write(_load(arguments.genotype), out, arguments.dark)
    print(f"picture: {out}")
    return 0


def _write(genotype: Genotype, path: Path, dark: bool) -> None:
    """Write a picture in the format of its suffix."""
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in _FORMATS:
        raise FlairNasError(f"--out {brief(str(path))} must end in one of .{', .'.join(_FORMATS)}")
    picture = to_png(genotype, dark=True) if suffix == "png" and dark else _FORMATS[suffix](genotype)
    with whole_file(path) as temporary:
        temporary.write_bytes(picture if isinstance(picture, bytes) else picture.encode())


def compare(arguments: argparse.Namespace) -> int:
    """Show two side by side, and their edit distance."""
    genotypes = [_load(name) for name in arguments.genotypes]
    parts = [
        {graph.title.partition(",")[0]: [graph.title, *graph_equations(graph)] for graph in genotype.graphs()}
        for genotype in genotypes
    ]
    names = [*dict.fromkeys([*parts[0], *parts[1]]), "options"]
    for part, genotype in zip(parts, genotypes):
        part["options"] = [f"{name} {value}" for name, value in genotype.options.items()]
    width = max(len(line) for part in parts for lines in part.values() for line in (*lines, arguments.genotypes[0]))
    print(f"  {arguments.genotypes[0].ljust(width)}  {arguments.genotypes[1]}")
    for name in names:
        print(f"{name}:")
        for left, right in itertools.zip_longest(*(part.get(name, []) for part in parts), fillvalue="-"):
            print(f"{' ' if left == right else '*'} {left.ljust(width)}  {right}")
    distance = edit_distance(*genotypes)
    other = "; options differ" if genotypes[0].options != genotypes[1].options else ""
    print(f"edit distance: {distance} (edges, gate entries and output nodes of only one of them){other}")
    return 0


def get(arguments: argparse.Namespace) -> int:
    """Fetch one into the cache of all commands."""
    if not is_address(arguments.source):
        hint = "bundled genotypes need no fetching: flair-nas genotypes list"
        raise FlairNasError(f"{brief(arguments.source)} is no https:// or hf:// address; {hint}")
    path, pinned = download(arguments.source, refresh=arguments.refresh)
    print(Genotype.load(path).one_line())
    print(f"in the cache: {path}")
    print(f"always this very file: {pinned}")
    if arguments.out:
        copy_whole(path, _genotype_file(arguments.out))
        print(f"written: {arguments.out}")
    return 0


def publish(arguments: argparse.Namespace) -> int:
    """Write the folder of one for the Hugging Face Hub."""
    out = user_path(arguments.out)
    for path in publish_genotype(load_genotype(arguments.genotype), out, arguments.repository, arguments.license):
        print(path)
    print(f"check the card, then: hf upload {arguments.repository} {typed(out)}")
    return 0


def draw_at_random(arguments: argparse.Namespace) -> int:
    """Draw one at random."""
    try:
        genotype = random_genotype(arguments.seed, arguments.nodes, arguments.edges_per_node, arguments.history)
    except ValueError as error:
        raise FlairNasError(str(error)) from None
    print(genotype.one_line())
    if arguments.out:
        write_text(_genotype_file(arguments.out), genotype.to_json())
    return 0


def _genotype_file(name: str) -> Path:
    """Return the path of a genotype to write. Refuse to replace a file that holds something else."""
    path = user_path(name)
    try:
        if path.is_file():
            Genotype.load(path)
    except GenotypeError:
        raise FlairNasError(f"{path} exists and holds no genotype; name another file") from None
    return path


def validate(arguments: argparse.Namespace) -> int:
    """Check files. The exit code is 2 if one cannot be used."""
    faults = 0
    for name in arguments.files:
        try:
            print(f"{name}: {load_genotype(name if name in bundled_names() else user_path(name)).one_line()}")
        except (FlairNasError, OSError) as error:
            faults += 1
            print(f"{name}: cannot be used: {error}")
    return 2 if faults else 0
