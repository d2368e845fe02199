"""Starting points of attacks, and the shape of the energy between them."""

import pytest

from exhume.attacks.bilevel.starts import Mixture
from exhume.studies.runkel2024.starts import PARTITION, Network, Starts, draw_data, half_rise, make_starts, wells


def test_every_starting_point_of_the_paper_is_there():
    settings = Starts(networks=(), source="digits", shrink=1, strangers=60, partition_shares=(0.0, 0.5))
    data = draw_data(settings, Network(label="", depth=0, size=20), seed=0)
    named = make_starts(settings, data)
    assert [name for name in named if name.endswith("noise")] == [f"{p}% truth in noise" for p in (0, 25, 50, 75, 100)]
    assert PARTITION in named
    assert f"50% truth in {PARTITION}" in named
    assert all(isinstance(start, Mixture) for start in named.values())
    assert not named[PARTITION].is_oracle
    assert len(data.holdout) == 60


def test_landscapes_are_measured_by_their_shape_alone():
    steep = [1 - (1 - i / 20) ** 4 for i in range(21)]
    flat = [(i / 20) ** 4 for i in range(21)]
    assert half_rise(steep) < 0.2 < 0.8 < half_rise(flat)
    assert half_rise([7 * value + 1 for value in flat]) == pytest.approx(half_rise(flat))
    assert wells(flat) == wells(steep) == 0
    assert wells([3.0, 1.0, 2.0, 0.5, 4.0]) == 2
