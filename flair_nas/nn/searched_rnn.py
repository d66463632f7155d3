"""SearchedRNN: a searched cell as a layer."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any

import torch

from flair_nas.errors import brief
from flair_nas.genotype import Genotype
from flair_nas.nn.cell import SearchedCell
from flair_nas.nn.init import check_arguments
from flair_nas.nn.recurrent_layer import RecurrentLayer


class SearchedRNN(RecurrentLayer):
    """A recurrent layer with a searched cell, used as `torch.nn.GRU` is.

    The state is one tensor, so `output, state = rnn(x)`. `output, (h, c) = rnn(x)`, as for an LSTM, raises an error.
    Under autocast, products have its dtype; output and state keep that of the weights.

    A state dict names the genotype in its metadata, which `torch.save` keeps. A layer of another genotype refuses it. A
    plain dictionary of the same tensors has no metadata and loads unchecked.

    `torch.compile` takes any sizes and runs recurrences uncompiled. `torch.jit.trace` and
    `torch.export.export(..., strict=False)` fix T and B to those of the example; `strict=True` and `torch.jit.script`
    do not support the layer.

    Args:
        input_size: D.
        hidden_size: H.
        genotype: the architecture of every layer and direction; `load_genotype` returns one by its name.
        num_layers: layers on top of one another.
        bidirectional: run in both directions and concatenate.
        batch_first: padded tensors are [B, T, D] instead of [T, B, D].
        dropout: dropout on the output of each layer but the last.
        input_dropout: variational dropout of the input of each layer and direction; one mask per sequence.
        recurrent_dropout: variational dropout of the states where they enter a product; one mask per sequence.
        init_range: weights start uniform in +-init_range; None for 1.5 / √H, those of gates for 1.5 / √rows. The
            papers' code has 0.04 at H = 850.
        device: device of the weights, as for any module of `torch.nn`.
        dtype: dtype of the weights.

    Attributes:
        cells: a `SearchedCell` per layer and direction, at index layer * num_directions + direction.

    Raises:
        ValueError: a size that is not positive, a probability outside [0, 1).
        TypeError: `genotype` is no `Genotype`.

    Example:
        >>> import torch
        >>> from flair_nas import SearchedRNN, load_genotype
        >>> layer = SearchedRNN(100, 256, load_genotype("small-relu-tanh"), bidirectional=True, batch_first=True)
        >>> output, state = layer(torch.randn(8, 20, 100))  # 8 sequences of 20 steps
        >>> output.shape, state.shape
        (torch.Size([8, 20, 512]), torch.Size([2, 8, 256]))
    """

    __module__ = "flair_nas"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        genotype: Genotype,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        init_range: float | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(genotype, Genotype):
            raise TypeError(f"genotype must be a flair_nas.Genotype, as load_genotype makes it, got {brief(genotype)}")
        check_arguments(init_range)
        if genotype.silent:
            warnings.warn(
                "with gate='product' and no sigmoid in cell and input gate, a state of zeros stays zero and nothing is "
                "learned; use gate='residual', or pass a state that is not zero",
                stacklevel=2,
            )
        make_cell = partial(SearchedCell, hidden_size=hidden_size, genotype=genotype, init_range=init_range)
        sizes, dropouts = (input_size, hidden_size), (dropout, input_dropout, recurrent_dropout)
        super().__init__(*sizes, make_cell, num_layers, bidirectional, batch_first, *dropouts, device, dtype)
        self.genotype, self.init_range = genotype, None if init_range is None else float(init_range)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata"):  # none if the caller gives a plain dictionary to fill
            architecture = dataclasses.replace(self.genotype, origin={})
            destination._metadata[prefix[:-1]]["genotype"] = architecture.to_dict()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        *_, errors = others
        saved = local_metadata.get("genotype")
        if saved is not None and (other := Genotype.from_dict(saved)) != self.genotype:
            errors.append(f"the weights are of {other.spec()}, and this layer is {self.genotype.spec()}")

    def config(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {**super().config(), "init_range": self.init_range, "genotype": self.genotype.to_dict()}
