"""Precision of products: which steps round, to what, and what a result says about it."""

import pytest
import torch

from exhume.optimise import precision


def test_only_float64_has_variables_of_its_own():
    assert precision.dtype_of("float64") == torch.float64
    assert {precision.dtype_of(name) for name in ("float32", "tf32", "mixed")} == {torch.float32}


@pytest.mark.parametrize("works", [True, False])
def test_mixed_precision_rounds_on_cpus_that_gain_from_it_and_says_so_elsewhere(monkeypatch, works):
    monkeypatch.setattr(precision, "has_fast_bfloat16", lambda: works)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert precision.short_dtype("mixed", cpu) == (torch.bfloat16 if works else None)
    assert bool(precision.precision_note("mixed", cpu)) is not works
    assert precision.short_dtype("mixed", gpu) is None
    assert precision.short_dtype("half", gpu) == torch.float16
    for name in ("float32", "tf32", "float64"):
        assert precision.short_dtype(name, cpu) is None
        assert not precision.precision_note(name, cpu)
