"""Unrecorded initial weights are found, with evidence; where they cannot be found, none are claimed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from exhume.attacks import GateCertificate
from exhume.auditing.start_search import Resemblance, draw_weights, fill_missing, find_base, find_seed
from exhume.core.errors import ExhumeError, WeightsError
from tests.auditing.audited_networks import SEED, network, trained


def build(seed: int) -> dict[str, torch.Tensor]:
    return draw_weights(network, seed)


def test_an_unrecorded_seed_is_found_and_the_attack_succeeds_with_it():
    view = trained()
    hidden = replace(view, initial=None)
    found = find_seed(hidden, build, range(200))
    best, second = found.evidence.candidates[:2]
    assert best.name == f"seed {SEED}"
    assert found.evidence.is_clear
    assert found.evidence.tried <= 200
    assert best.distance < 0.5 < second.distance
    assert best.correlation > 0.9
    assert abs(second.correlation) < 0.1
    assert (best.rank, best.full_rank) == (8, 65)
    assert second.rank is None, "the difference from unrelated weights has no low rank"
    assert all(torch.equal(found.weights[name], weight) for name, weight in view.initial.items())
    assert GateCertificate().run(replace(view, initial=found.weights), seed=0).certified.all()


def test_no_seed_is_claimed_where_the_right_one_was_not_tried():
    found = find_seed(replace(trained(), initial=None), build, range(100, 160))
    assert not found.evidence.is_clear
    assert found.evidence.tried == 60
    assert found.evidence.best.log10_p > -3


def test_the_search_stops_early_but_not_before_it_has_candidates_to_compare():
    certain = find_seed(replace(trained(), initial=None), build, [SEED, *range(1000, 3000)])
    assert certain.evidence.tried == 16
    assert certain.evidence.best.name == f"seed {SEED}"
    alone = find_seed(replace(trained(), initial=None), build, [SEED])
    assert alone.evidence.is_clear


def test_building_under_a_seed_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    first, again, other = build(1), build(1), build(2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first["1.weight"], again["1.weight"])
    assert not torch.equal(first["1.weight"], other["1.weight"])


def test_a_factory_that_draws_nothing_is_refused():
    constant = {name: torch.zeros_like(weight) for name, weight in trained().final.items()}
    with pytest.raises(WeightsError, match="do not depend on the seed"):
        find_seed(trained(), lambda _: constant, range(3))
    with pytest.raises(WeightsError, match=r"has no '1\.bias'"):
        find_seed(trained(), lambda seed: draw_weights(lambda: nn.Linear(3, 2), seed), range(3))
    with pytest.raises(ExhumeError, match="at least one seed"):
        find_seed(trained(), build, [])


def test_the_public_base_is_found_among_others_with_its_new_head_filled_in():
    view = trained()
    base = dict(view.initial)
    base["3.weight"], base["3.bias"] = torch.randn(10, 256), torch.randn(10)
    decoys = {f"decoy {seed}": build(seed) for seed in range(5)}
    found = find_base(view, {**decoys, "the base": base})
    assert found.evidence.best.name == "the base"
    assert found.evidence.is_clear
    assert found.evidence.stand_ins == ("3.bias", "3.weight")
    assert torch.equal(found.weights["3.weight"], view.final["3.weight"])
    assert GateCertificate().run(replace(view, initial=found.weights), seed=0).certified.all()


def test_checkpoints_of_other_networks_are_passed_over_or_refused():
    view = trained()
    unrelated = {"layer.weight": torch.zeros(3, 3)}
    assert find_base(view, {"other": unrelated, "start": view.initial}).evidence.best.name == "start"
    with pytest.raises(WeightsError, match="initial weights do not belong"):
        find_base(view, {"other": unrelated})
    with pytest.raises(ExhumeError, match="at least one checkpoint"):
        find_base(view, {})


def test_layers_that_a_base_lacks_are_taken_from_the_final_weights():
    final = {"a": torch.ones(2), "b": torch.ones(3)}
    filled = fill_missing(final, {"a": torch.zeros(2), "b": torch.zeros(4), "c": torch.zeros(1)})
    assert {name: weight.tolist() for name, weight in filled.items()} == {"a": [0.0, 0.0], "b": [1.0, 1.0, 1.0]}


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), rows=st.integers(20, 60), spread=st.floats(1e-3, 1e3))
def test_unrelated_weights_rarely_look_alike(seed: int, rows: int, spread: float):
    generator = torch.Generator().manual_seed(seed)
    final = {"w": torch.randn(rows, 50, generator=generator) ** 3, "b": torch.rand(rows, generator=generator)}
    start = {name: spread * torch.randn(weight.shape, generator=generator) for name, weight in final.items()}
    assert Resemblance.of(final, final)(start)[2] > -7  # of forty draws, one in ten million would be news


def test_p_values_of_unrelated_weights_are_uniform():
    generator = torch.Generator().manual_seed(0)
    resemblance = Resemblance.of({"w": torch.rand(40, 40, generator=generator)}, ["w"])
    p_values = torch.tensor([10 ** resemblance({"w": torch.rand(40, 40, generator=generator)})[2] for _ in range(400)])
    for share in (0.1, 0.5, 0.9):
        assert float((p_values < share).double().mean()) == pytest.approx(share, abs=0.08)
