"""Reference of the public names of `flair_nas`, made from their docstrings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flair_nas

GROUPS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "layers": (
        "Layers and genotypes",
        "Recurrent layers for PyTorch, and the genotypes that they are built from.",
        [
            *("SearchedRNN", "RecurrentState", "ParallelRNN", "Genotype", "Edge", "Gate", "GateNode"),
            *("load_genotype", "bundled_names", "random_genotype", "GenotypeError"),
        ],
    ),
    "taggers": (
        "Taggers",
        "Training, evaluating and running Flair taggers.",
        [
            *("TaggerConfig", "train_taggers", "evaluate_tagger", "load_tagger", "tag_lines", "load_corpus"),
            *("convert_corpus", "use_fast_crf", "DocumentRNNEmbeddings"),
        ],
    ),
    "search": (
        "Search",
        "Searching a genotype on text, tags or classes.",
        [
            *("SearchConfig", "TaggingSearchConfig", "ClassificationSearchConfig", "search_genotype"),
            *(
                "SearchResult",
                "estimate_search",
                "GradientSettings",
                "RandomSharedSettings",
                "RandomIndependentSettings",
            ),
            *("EvolutionSettings", "LocalSearchSettings", "EnasSettings", "ContinualSettings"),
        ],
    ),
    "language_models": (
        "Language models",
        "Training and comparing language models of words or characters.",
        [
            *("LanguageModelConfig", "train_language_model", "evaluate_language_model", "compare_language_models"),
            *("load_language_model", "LanguageModel"),
        ],
    ),
    "character_models": (
        "Character models",
        "Training Flair's character language models, for `FlairEmbeddings`.",
        [
            *("CharacterModelConfig", "train_character_models", "evaluate_character_model"),
            "load_character_model",
        ],
    ),
    "select": (
        "Select and tables",
        "Choosing a layer for a corpus, and what all parts share. Tables have no public function: "
        "use [`flair-nas tables`](../commands/tables.md).",
        ["SelectConfig", "TextSelectConfig", "select_layer", "resource_path", "FlairNasError"],
    ),
}
"""Title, first sentence and names of each page."""

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
    "EnasSettings": "search.md",
    "ContinualSettings": "search.md",
    "LanguageModelConfig": "lm.md#flair-nas-lm-train",
    "CharacterModelConfig": "charlm.md#flair-nas-charlm-train",
    "SelectConfig": "select.md",
    "TextSelectConfig": "select.md",
}
"""The pages of the commands that list the settings of a class."""


def python_pages() -> dict[str, str]:
    """Return the pages by their paths.

    Raises:
        ValueError: a public name is on no page, or a name on a page is not public.
    """
    names = [name for _, _, group in GROUPS.values() for name in group]
    wrong = set(names) ^ set(flair_nas.__all__)
    if wrong:
        raise ValueError(f"website/python_api.py and flair_nas.__all__ differ in {', '.join(sorted(wrong))}")
    return {
        f"python/{page}.md": "\n\n".join([f"# {title}", first, *map(_entry, group)])
        for page, (title, first, group) in GROUPS.items()
    }


def names_table() -> str:
    """Return the table of all public names, with links to their entries."""
    rows = [
        f"| [{title}]({page}.md) | {', '.join(f'[`{name}`]({page}.md#flair_nas.{name})' for name in group)} |"
        for page, (title, _, group) in GROUPS.items()
    ]
    return "\n".join(["| page | names |", "| --- | --- |", *rows])


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
