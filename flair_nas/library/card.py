"""Folder of a genotype for the Hugging Face Hub: file, picture and card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flair_nas.errors import as_markdown, brief
from flair_nas.genotype import Genotype
from flair_nas.genotype.graph import to_text
from flair_nas.genotype.picture import to_svg
from flair_nas.library.downloads import FILE
from flair_nas.storage.files import hash_file, write_text
from flair_nas.storage.folders import whole_files

PICTURE = "genotype.svg"
CARD = "README.md"

_CARD = """---
{header}
---
# {name}

{about} Made with flair-nas, for [Flair](https://github.com/flairNLP/flair).

```python
import flair_nas  # has to be installed; it teaches Flair the names of searched cells
{code}
```

{sections}"""


def publish_genotype(genotype: Genotype, out: Path, repository: str, license: str | None) -> list[Path]:
    """Write the folder of a genotype, ready for upload.

    Args:
        genotype: the genotype, whose provenance is in the card.
        out: a folder that is new or empty.
        repository: ``owner/name`` on the Hub.
        license: of the genotype, as the Hub spells it (``mit``, ``cc-by-4.0``), or None.

    Returns:
        The files.

    Raises:
        FlairNasError: the folder holds other files.
        OSError: it cannot be written.
    """
    with whole_files(out, CARD) as part:
        genotype = write_genotype(genotype, part)
        gates = " with ESS's inter-cell gates" if genotype.state_gate or genotype.input_gate else ""
        about = f"A recurrent cell of {len(genotype.nodes)} nodes{gates}, without weights: your tagger learns those. "
        about += "Compare it with an LSTM over several seeds: differences of a few points are often chance."
        code = f"""
tagger = SequenceTagger(..., rnn_type="hf://{repository}")
# or this very file: rnn_type="hf://{repository}#sha256={hash_file(part / FILE)}\""""
        tags = ["neural-architecture-search", "recurrent-neural-network"]
        write_card(part, repository, about, code, describe_genotype(genotype), license=license, tags=tags)
    return [out / FILE, out / PICTURE, out / CARD]


def write_genotype(genotype: Genotype, out: Path) -> Genotype:
    """Write a genotype and its picture to a folder; return it as written, without private paths."""
    genotype = dataclasses.replace(genotype, origin=without_folders(genotype.origin))
    write_text(out / FILE, genotype.to_json())
    write_text(out / PICTURE, to_svg(genotype))
    return genotype


def write_card(
    out: Path, repository: str, about: str, code: str, sections: Mapping[str, str], tags: Sequence[str], **header: Any
) -> None:
    """Write the card of a repository; `huggingface_hub.ModelCardData` takes tags and header."""
    from huggingface_hub import ModelCardData

    data = ModelCardData(library_name="flair", tags=["flair", "flair-nas", *tags], **header)
    text = "\n".join(f"## {title}\n\n{section}\n" for title, section in sections.items())
    name = repository.partition("/")[2]
    write_text(out / CARD, _CARD.format(header=data.to_yaml(), name=name, about=about, code=code, sections=text))


def without_folders(value: Any) -> Any:
    """Return JSON data with each path of this machine, also in ``word:PATH``, cut to its last part.

    Character models keep the folder of their direction, as all files are called ``model.pt``.
    """
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(inner) for inner in value]
    if not isinstance(value, str):
        return value
    kind, colon, source = value.rpartition(":")
    if not _is_path(source):
        return value
    path = Path(source).expanduser().resolve()
    direction = f"{path.parent.name}/" if path.parent.name in ("forward", "backward") else ""
    return f"{kind}{colon}{direction}{path.name or 'here'}"


def _is_path(text: str) -> bool:
    """Return True if a text is a path here: names on the Hub and one-line genotypes have slashes, too."""
    try:
        return text.startswith(("/", "~", ".")) or ("/" in text and Path(text).exists())
    except OSError:  # too long for a path
        return False


def describe_genotype(genotype: Genotype) -> dict[str, str]:
    """Return the sections of a card on a genotype, in Markdown: line, picture, equations and provenance."""
    picture = f"![The cell as a graph]({PICTURE})"
    cell = f"```text\n{genotype.one_line()}\n```\n\n{picture}\n\n```text\n{to_text(genotype)}```"
    lines: list[str] = []
    for name, value in genotype.origin.items():
        inner = value if isinstance(value, Mapping) else {}
        lines.append(f"- {words_of(name)}:" + ("" if inner else f" {_to_text(value)}"))
        lines += [f"  - {words_of(key)}: {_to_text(item)}" for key, item in inner.items()]
    return {"The cell": cell, "Where it is from": "\n".join(lines) or "- not told"}


def words_of(name: str) -> str:
    """Return the title of a key of a genotype's provenance."""
    return "licence of the source's code" if name == "licence" else str(name).replace("_", " ")


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value if value.startswith("http") else as_markdown(value)
    return f"{value:g}" if isinstance(value, float) else as_markdown(brief(value, 500))
