"""Columns that are made up: every input has its own strength, and rounding along itself."""

import torch
from torch import Tensor

from exhume.attacks.gates.participants import Columns, _find_rows

RANK, UNITS, PRECISION = 10, 240, 2e-8


def make_columns(strengths: Tensor) -> tuple[Columns, Tensor]:
    """Return columns with noise of one standard deviation, and the inputs behind them."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    basis = torch.linalg.qr(draw(30, RANK)).Q
    codes = draw(RANK, RANK)
    codes = codes / (codes @ basis[-1])[:, None]
    # Each unit has few participants: the gates that the inputs, which are a basis, should have are solved for.
    wanted = torch.where(torch.rand(UNITS, RANK, generator=generator) < 0.15, 1.0, -1.0) * (
        0.5 + draw(UNITS, RANK).abs()
    )
    gates = torch.linalg.solve(codes, wanted.T).T
    reach = torch.full((UNITS,), 1e9, dtype=torch.float64)
    signals = strengths[:, None] * reach * draw(RANK, UNITS) / 3
    rounding = PRECISION * strengths[:, None] * reach * draw(RANK, UNITS)
    changes = codes.T @ (signals * (wanted.T > 0) + rounding) + draw(RANK, UNITS)
    limits = torch.linalg.lstsq(codes, torch.ones(RANK, 1, dtype=torch.float64)).solution.T
    columns = Columns(
        changes=changes, gates=gates, limits=limits, basis=basis, signals=reach[None], precision=PRECISION
    )
    return columns, codes


def test_rounding_of_a_strong_input_is_no_entry() -> None:
    columns, codes = make_columns(torch.logspace(0, -4, RANK, dtype=torch.float64))
    row = torch.linalg.inv(codes)[:, 0]
    pattern = columns.participation(codes)[0]
    entries = columns.is_entry(row, pattern)
    assert not bool(entries[~pattern].any())
    assert float(entries[pattern].double().mean()) > 0.95
    assert bool(((row @ columns.changes).abs()[~pattern] > columns.deviations).any())


def test_nothing_is_left_when_all_inputs_are_known() -> None:
    columns, codes = make_columns(torch.ones(RANK, dtype=torch.float64))
    assert _find_rows(columns, codes, codes) == []
    assert len(_find_rows(columns, codes, codes[:-1])) <= 1
