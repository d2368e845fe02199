"""Columns that inputs and their output gradients explain."""

import torch
from torch import Tensor

from exhume.attacks.gates.column_fit import add_inputs
from exhume.attacks.gates.participants import Columns

RANK, UNITS, OUTPUTS = 8, 400, 3


def make_columns() -> tuple[Columns, Tensor]:
    """Return columns that follow from inputs and their gradients, with noise of one standard deviation."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    basis = torch.linalg.qr(draw(30, RANK)).Q
    codes = draw(RANK, RANK)
    codes = codes + (1 - codes @ basis[-1])[:, None] * basis[-1] / basis[-1].square().sum()  # constants of 1
    takes_part = torch.rand(UNITS, RANK, generator=generator) < 0.2
    gates = torch.linalg.solve(codes, torch.where(takes_part, 1.0, -1.0).double().T).T
    signals, gradients = 1e6 * draw(OUTPUTS, UNITS), draw(RANK, OUTPUTS)
    changes = codes.T @ (gradients @ signals * takes_part.T) + draw(RANK, UNITS)
    limits = torch.linalg.lstsq(codes, torch.ones(RANK, 1, dtype=torch.float64)).solution.T
    columns = Columns(changes=changes, gates=gates, limits=limits, basis=basis, signals=signals, precision=1e-8)
    return columns, codes


def relative_errors(found: Tensor, codes: Tensor) -> Tensor:
    return (torch.cdist(found, codes) / codes.norm(dim=1)).amin(dim=1)


def test_all_inputs_are_found_in_columns_that_two_or_more_show_alone() -> None:
    columns, codes = make_columns()
    found = add_inputs(columns, columns.changes.new_zeros(0, RANK))
    assert len(found) == RANK
    assert float(relative_errors(found, codes).max()) < 1e-4


def test_inputs_that_are_known_inexactly_become_exact() -> None:
    columns, codes = make_columns()
    noise = torch.randn(3, RANK, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    near = codes[:3] + 1e-4 * codes[:3].norm(dim=1, keepdim=True) * noise / noise.norm(dim=1, keepdim=True)
    found = add_inputs(columns, near)
    assert float(relative_errors(found[:3], codes).max()) < 1e-5


def test_columns_of_noise_show_no_input() -> None:
    columns, _ = make_columns()
    noise = torch.randn(RANK, UNITS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    empty = Columns(
        changes=noise,
        gates=columns.gates,
        limits=columns.limits,
        basis=columns.basis,
        signals=columns.signals,
        precision=columns.precision,
    )
    assert len(add_inputs(empty, noise.new_zeros(0, RANK))) == 0
