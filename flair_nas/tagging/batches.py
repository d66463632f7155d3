"""The vectors of a batch on another device at once: Flair moves those of each word by themselves, hundreds of times."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flair.data import Sentence
from torch import Tensor


def moved_at_once(
    sentences: Sequence[Sentence], names: Sequence[str], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor] | None:
    """What `SequenceTagger` reads of a batch, with one move for each of its embeddings.

    Args:
        sentences: that have been embedded, B of them.
        names: of the embeddings, whose vectors Flair joins in the order of these.
        device: where the tagger is.
        dtype: of its weights.

    Returns:
        Lengths [B] on the CPU, and vectors [B, T, D] with zeros behind the ends, as Flair makes them; None where there
        is nothing to move, or vectors are not alike in all words, and Flair's own way is to be taken.
    """
    words = [token for sentence in sentences for token in sentence]
    wanted = frozenset(names)
    found = [wanted.intersection(token._embeddings) for token in words]
    if not words or any(of_word != found[0] for of_word in found):
        return None
    vectors = [[token._embeddings[name] for token in words] for name in sorted(found[0])]
    kinds = [{(vector.device, vector.dtype, vector.shape) for vector in of_name} for of_name in vectors]
    if any(len(kind) > 1 for kind in kinds):
        return None
    if all(of == device for kind in kinds for of, _, _ in kind) or any(
        of != dtype for kind in kinds for _, of, _ in kind
    ):
        return None
    joined = torch.cat([torch.stack(of_name).to(device) for of_name in vectors], dim=1)  # [words, D]
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    longest = int(lengths.max())
    is_word = torch.arange(longest) < lengths[:, None]  # [B, T]
    rows = is_word.flatten().nonzero().squeeze(1).to(device)
    padded = joined.new_zeros(is_word.numel(), joined.shape[1]).index_copy(0, rows, joined)
    return lengths, padded.view(len(sentences), longest, -1)
