"""Bundled resources: genotypes, presets, embeddings, the demo corpus and the demo text."""

from __future__ import annotations

from pathlib import Path


def resource_path(*parts: str) -> Path:
    """Return a path below ``resources/``, in an installed package or at the top of a checkout.

    Raises:
        FileNotFoundError: the resource is in neither place.

    Example:
        >>> from flair_nas import resource_path
        >>> resource_path("presets", "tagging", "small-ner.yaml").is_file()
        True
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package, package.parent):
        if (path := folder.joinpath("resources", *parts)).exists():
            return path
    raise FileNotFoundError(
        f"the bundled resource {path} is missing; reinstall flair-nas, or in a clone: git checkout resources"
    )
