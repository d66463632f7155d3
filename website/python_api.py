"""Reference of the public names of `flair_nas`, made from their docstrings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flair_nas

PAGES: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "layers": (
        "Layers and genotypes",
        "Recurrent layers for PyTorch, and the genotypes that they are built from.",
        ["nn", "genotype", "library"],
    ),
    "taggers": ("Taggers", "Training, evaluating and running Flair taggers.", ["tagging"]),
    "search": ("Search", "Searching a genotype on text, tags or classes.", ["search"]),
    "language_models": (
        "Language models",
        "Training and evaluating language models of words or characters.",
        ["language_model"],
    ),
    "embeddings": (
        "Embeddings",
        "Word vectors and Flair's character language models, from one's own text.",
        ["embedding", "tagging.data.character_models", "tagging.data.table_embeddings"],
    ),
    "tune": (
        "Tune",
        "Tuning embeddings, training and layer on a corpus, and what all parts share.",
        ["tune", "storage", "errors"],
    ),
}
"""Title, first sentence and packages of each page; the longest name of a package decides on the page of a name."""

COMMANDS = {
    "TaggerConfig": "tag.md#flair-nas-tag-train",
    "SearchConfig": "search.md",
    "TaggingSearchConfig": "search.md",
    "ClassificationSearchConfig": "search.md",
    "GradientSettings": "search.md",
    "RandomSharedSettings": "search.md",
    "RandomIndependentSettings": "search.md",
    "EvolutionSettings": "search.md",
    "LocalSearchSettings": "search.md",
    "PredictorSettings": "search.md",
    "EnasSettings": "search.md",
    "ContinualSettings": "search.md",
    "TransformerSettings": "search.md",
    "LanguageModelConfig": "lm.md#flair-nas-lm-train",
    "CharacterModelConfig": "charlm.md#flair-nas-charlm-train",
    "EmbeddingConfig": "embed.md#flair-nas-embed-train",
    "TuneConfig": "tune.md",
    "TextTuneConfig": "tune.md",
}
"""The pages of the commands that list the settings of a class."""


def python_pages() -> dict[str, str]:
    """Return the pages by their paths.

    Raises:
        ValueError: a public name is of a package without a page.
    """
    groups = group_names()
    return {
        f"python/{page}.md": "\n\n".join([f"# {title}", first, *map(_entry, groups[page])])
        for page, (title, first, _) in PAGES.items()
    }


def names_table() -> str:
    """Return the table of all public names, with links to their entries."""
    rows = [
        f"| [{PAGES[page][0]}]({page}.md) | {', '.join(f'[`{name}`]({page}.md#flair_nas.{name})' for name in names)} |"
        for page, names in group_names().items()
    ]
    return "\n".join(["| page | names |", "| --- | --- |", *rows])


def group_names() -> dict[str, list[str]]:
    """Return the public names of each page."""
    groups: dict[str, list[str]] = {page: [] for page in PAGES}
    for name, home in flair_nas._HOMES.items():
        places = {f"flair_nas.{package}": page for page, (_, _, packages) in PAGES.items() for package in packages}
        package = max((place for place in places if f"{home}.".startswith(f"{place}.")), key=len, default="")
        if not package:
            raise ValueError(f"website/python_api.py has no page for {home}, the home of {name}")
        groups[places[package]].append(name)
    return groups


def _entry(name: str) -> str:
    """Return the entry of a name; settings are listed with their command."""
    entry = f"::: flair_nas.{name}"
    if name not in COMMANDS:
        return entry
    settings = (
        f"Its settings are the flags of [`flair-nas {COMMANDS[name].partition('.')[0]}`](../commands/{COMMANDS[name]})."
    )
    hidden = ("members", "inherited_members", "show_signature", "merge_init_into_class")
    options = "".join(f"\n      {name}: false" for name in hidden)
    return f"{entry}\n    options:{options}\n\n{settings}"
