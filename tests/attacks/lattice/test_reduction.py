import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exhume.attacks.lattice.reduction import _shortest, nearest_combination, reduce_basis, require_flint, volume
from exhume.core.errors import Refusal


def draw(count, seed):
    return torch.randn(count, count + 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(2, 12), st.integers(0, 1000))
def test_a_reduced_basis_spans_the_same_lattice(count, seed):
    combined = reduce_basis(draw(count, seed))
    assert torch.equal(combined, combined.round())
    assert float(torch.linalg.det(combined).abs()) == pytest.approx(1.0)


def test_short_vectors_are_found_behind_long_combinations():
    short = draw(8, 0)
    mixing = torch.eye(8, dtype=torch.float64) + 7 * torch.ones(8, 8, dtype=torch.float64).tril(-1)
    reduced = reduce_basis(mixing @ short) @ mixing @ short
    assert float(reduced.norm(dim=1).max()) <= 2 * float(short.norm(dim=1).max())
    assert volume(reduced) == pytest.approx(volume(short))


def test_blocks_find_shorter_vectors_of_the_same_lattice():
    # Whole numbers whose weighted sum nearly vanishes: the usual hard case, wider than one window.
    count = 90
    basis = torch.eye(count, dtype=torch.float64)
    basis[:, 0] = torch.randint(1, 1 << 40, (count,), generator=torch.Generator().manual_seed(0)).double()
    plain, by_blocks = (reduce_basis(basis, blocks=blocks, sweeps=2) for blocks in (False, True))
    assert torch.equal(by_blocks, by_blocks.round())
    assert volume(by_blocks @ basis) == pytest.approx(volume(basis), rel=1e-6)
    before, after = ((combined @ basis).norm(dim=1) for combined in (plain, by_blocks))
    assert float(after.log().mean()) < float(before.log().mean()) - 0.05


def test_the_shortest_combination_of_a_block_is_that_of_all_combinations():
    block = draw(5, 3)[:, :5].tril()[None]
    times, squares = _shortest(block)
    every = torch.cartesian_prod(*[torch.arange(-3.0, 4.0, dtype=torch.float64)] * 5)
    lengths = (every @ block[0]).square().sum(dim=1)
    assert float(squares[0]) == pytest.approx(float(lengths[lengths > 0].min()))
    assert float((times[0] @ block[0]).square().sum()) == pytest.approx(float(squares[0]))


def test_a_caller_ends_the_reduction_when_it_is_enough():
    asked = []
    reduce_basis(draw(70, 0), blocks=True, is_enough=lambda combined: asked.append(combined) is None)
    assert len(asked) == 2  # after one sweep, and before blocks


@pytest.mark.parametrize("vectors", [[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [float("nan"), 1.0]]])
def test_dependent_or_missing_values_are_an_error(vectors):
    with pytest.raises(ValueError, match="finite and independent"):
        reduce_basis(torch.tensor(vectors, dtype=torch.float64))


@given(st.integers(2, 10), st.integers(0, 1000))
def test_a_vector_of_the_lattice_is_its_own_nearest_combination(count, seed):
    basis = draw(count, seed)
    parts = torch.randint(-9, 9, (3, count), generator=torch.Generator().manual_seed(seed)).double()
    found = nearest_combination(parts @ basis + 1e-6, basis)
    assert torch.equal(found, parts)


def test_a_missing_library_is_said_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(Refusal, match="needs python-flint"):
        require_flint()
