"""The folder of a genotype that is published on the Hugging Face Hub: the file, its picture, and a card."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import Genotype
from flair_nas.library.hugging_face import FILE
from flair_nas.storage.files import write_text

PICTURE = "genotype.svg"


def publish_genotype(genotype: Genotype, out: Path, repository: str, license: str | None) -> list[Path]:
    """Writes the folder that is uploaded as it is.

    Args:
        genotype: what is published; its origin fills the card.
        out: a folder that is new, empty or of an earlier call.
        repository: ``owner/name`` that it will have there.
        license: of the genotype, as the Hub spells it (``mit``, ``cc-by-4.0``); None leaves it out.

    Returns:
        The files.

    Raises:
        FlairNasError: the folder holds something else.
        OSError: it cannot be written.
    """
    prepare_folder(out, (FILE, PICTURE, "README.md"))
    genotype = dataclasses.replace(genotype, origin=without_folders(genotype.origin))
    written = genotype.to_json()
    digest = hashlib.sha256(written.encode()).hexdigest()
    write_text(out / FILE, written)
    write_picture(genotype, out / PICTURE)
    write_text(out / "README.md", _card(genotype, repository, license, digest))
    return [out / FILE, out / PICTURE, out / "README.md"]


def prepare_folder(out: Path, ours: Sequence[str]) -> None:
    """Makes the folder, and refuses one that holds files of others.

    Raises:
        FlairNasError: it does, or is no folder.
        OSError: it cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise FlairNasError(f"{out} is a file; name a folder")
    others = sorted(path.name for path in out.iterdir() if path.name not in ours) if out.exists() else []
    if others:
        raise FlairNasError(f"{out} holds other files ({', '.join(others[:5])}); name a new folder")
    out.mkdir(parents=True, exist_ok=True)


def write_picture(genotype: Genotype, path: Path) -> None:
    """Draws a genotype to an SVG file."""
    from flair_nas.drawing.cell import to_svg

    write_text(path, to_svg(genotype))


def front_matter(license: str | None, **fields: Any) -> str:
    """The head of a card that the Hub reads, without the lines around it.

    Args:
        license: as the Hub spells it, or None.
        fields: as `huggingface_hub.ModelCardData` takes them.
    """
    from huggingface_hub import ModelCardData

    data = ModelCardData(library_name="flair", license=license, **fields)
    return f"---\n{data.to_yaml()}\n---\n"


def without_folders(value: Any) -> Any:
    """Data in which a file or folder of one's own machine, also one in ``word:PATH``, has its name alone."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(inner) for inner in value]
    if not isinstance(value, str):
        return value
    kind, colon, source = value.rpartition(":")
    return f"{kind}{colon}{Path(source).expanduser().resolve().name or 'here'}" if _is_own(source) else value


def _is_own(text: str) -> bool:
    """Whether a text names a file or folder of this machine; names of the Hub and cells on a line have slashes, too."""
    try:
        return text.startswith(("/", "~", ".")) or ("/" in text and Path(text).exists())
    except OSError:  # it is too long for a path
        return False


def cell_section(genotype: Genotype, picture: str) -> str:
    """What a card says of a cell: its line, its picture, its equations."""
    from flair_nas.drawing.graph import text_of

    return (
        f"```text\n{genotype.one_line()}\n```\n\n![The cell as a graph]({picture})\n\n```text\n{text_of(genotype)}```\n"
    )


def origin_section(origin: Mapping[str, Any]) -> str:
    """Where a genotype is from, as a list; figures are told with what they are of."""
    lines = []
    for name, value in origin.items():
        if isinstance(value, Mapping):
            lines.append(f"- {words_of(name)}:")
            lines += [f"  - {words_of(key)}: {_shown(inner)}" for key, inner in value.items()]
        else:
            lines.append(f"- {words_of(name)}: {_shown(value)}")
    return "\n".join(lines) or "- not told"


def words_of(name: str) -> str:
    """What a name in a genotype's origin is called."""
    return "licence of the source's code" if name == "licence" else str(name).replace("_", " ")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else brief(value, 500)


def _card(genotype: Genotype, repository: str, license: str | None, digest: str) -> str:
    gates = " with ESS's inter-cell gates" if genotype.state_gate or genotype.input_gate else ""
    tags = ["flair", "flair-nas", "neural-architecture-search", "recurrent-neural-network"]
    return f"""{front_matter(license, tags=tags)}
# {repository.partition("/")[2]}

A recurrent cell{gates} for [Flair](https://github.com/flairNLP/flair)'s taggers and text classifiers, published with
flair-nas. It is an architecture, {len(genotype.nodes)} nodes and the operations between them, without weights: those
are learned with your tagger.

{cell_section(genotype, PICTURE)}
## How to use it

With flair-nas installed, in the place of `"LSTM"`:

```python
import flair_nas  # teaches Flair the names of searched cells

tagger = SequenceTagger(..., rnn_type="hf://{repository}")
```

or `flair-nas tag train --rnn hf://{repository} ...`. As this very file, or an error: `hf://{repository}#sha256={digest}`.

## Where it is from

{origin_section(genotype.origin)}

Differences of a few points of F1 between cells are often chance: compare it with an LSTM, and with several seeds.
"""
