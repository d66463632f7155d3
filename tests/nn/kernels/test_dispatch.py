"""Choice of kernels by the environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from as_if_built import WHY, no_variables, nothing_is_built, there_are  # noqa: F401  # a fixture

from flair_nas import FlairNasError, Genotype, SearchedRNN
from flair_nas.nn.kernels.dispatch import engine_for, wants_equations

CPU, CUDA, OTHER = torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")


def engine_on(device: torch.device) -> str:
    """Return the engine of a cell in the highway form."""
    return engine_for(True, cast("torch.Tensor", SimpleNamespace(device=device, dtype=torch.float32)), torch.float32)


@pytest.mark.parametrize("setting", [None, "", "auto"])
@pytest.mark.parametrize(("native", "expected"), [(True, "native"), (False, "columns")])
def test_a_cpu_has_native_kernels_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, native: bool, expected: str
) -> None:
    if setting is not None:
        monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    there_are(monkeypatch, native)
    assert engine_on(CPU) == expected


@pytest.mark.parametrize("device", [CUDA, OTHER], ids=str)
def test_native_kernels_are_for_cpus_alone(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    nothing_is_built(monkeypatch)
    for setting in ("auto", "columns"):
        monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
        assert engine_on(device) == "columns"
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
    with pytest.raises(FlairNasError, match=f"native kernels run on CPUs alone, and this layer is on {device}"):
        engine_on(device)


def test_native_kernels_that_are_asked_for_and_missing_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
    there_are(monkeypatch, True)
    assert engine_on(CPU) == "native"
    there_are(monkeypatch, False)
    with pytest.raises(FlairNasError, match="native: native kernels run nowhere here: .* install one"):
        engine_on(CPU)


def test_the_equations_and_columns_build_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_built(monkeypatch)
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    assert engine_on(CPU) == "columns" and not wants_equations()
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    assert wants_equations() and SearchedRNN(3, 2, Genotype.parse("tanh0"))(torch.ones(1, 1, 3))[0].isfinite().all()


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_an_unknown_value_is_an_error_that_lists_the_known(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "nativ")  # and so are engines of earlier versions, such as triton
    with pytest.raises(FlairNasError) as raised:
        engine_on(device)
    for words in ("FLAIR_NAS_KERNELS 'nativ'", "did you mean native?", "auto, native, columns, plain"):
        assert words in str(raised.value)
