"""Certified recovery from a gradient and from the state of an optimiser."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.models.mlp import MLP
from exhume.records import GradientAt, OptimiserState
from tests.attacks.gates.evidence_victims import gradient_view, state_view
from tests.attacks.gates.victims import draw, score


def test_one_gradient_gives_the_whole_batch_away():
    data = draw(size=12)
    result = exhume.attacks.GateCertificate().run(gradient_view(data), seed=0)
    found = score(result, data.train.inputs)
    assert (found.recovered, found.false) == (12, 0)
    assert found.exact >= 10
    assert result.diagnostics["evidence"] == "gradient"


@pytest.mark.parametrize(("dtype", "least"), [(torch.float16, 5), (torch.bfloat16, 3)])
def test_rounding_a_gradient_does_not_hide_its_inputs(dtype, least):
    data = draw(size=6)
    view = gradient_view(data)
    rounded = replace(view, gradient={name: part.to(dtype).float() for name, part in view.gradient.items()})
    result = exhume.attacks.GateCertificate().run(rounded, seed=0)
    assert result.diagnostics["training_size_estimate"] == 6
    found = score(result, data.train.inputs)
    assert found.recovered >= least
    assert found.false == 0


def test_gradients_at_other_weights_help_where_one_has_too_few_units():
    data = draw(size=12)
    first, *others = (gradient_view(data, MLP(width=48), seed=seed) for seed in range(4))
    more = tuple(GradientAt(weights=other.final, gradient=other.gradient) for other in others)
    attack = exhume.attacks.GateCertificate(rounds=10, patience=4)
    alone, together = (attack.run(view, seed=0) for view in (first, replace(first, more_gradients=more)))
    found = score(together, data.train.inputs)
    assert score(alone, data.train.inputs).exact <= found.exact
    assert found.recovered >= 11
    assert found.exact >= 10
    assert found.false == 0


@pytest.mark.parametrize("optimiser", ["AdamW", "SGD"])
def test_a_checkpoint_gives_the_data_away_without_initial_weights(optimiser):
    data = draw(size=12)
    result = exhume.attacks.GateCertificate().run(state_view(data, optimiser=optimiser), seed=0)
    found = score(result, data.train.inputs)
    assert found.recovered >= 11
    assert found.exact >= 9
    assert found.false == 0


def test_a_state_of_noise_certifies_nothing():
    view = gradient_view(draw(size=12), MLP(width=64))
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(64, 8, generator=generator), torch.randn(8, 65, generator=generator)
    noise = factors[0] @ factors[1]
    state = OptimiserState(first_moment={"layer1.weight": noise[:, :64], "layer1.bias": noise[:, 64]})
    blind = exhume.AttackerView(model=view.model, final=view.final, optimiser_state=state, input_shape=(1, 8, 8))
    result = exhume.attacks.GateCertificate(rounds=1).run(blind, seed=0)
    assert not result.certified.any()


def test_weight_difference_explains_a_gradient():
    data = draw(size=4)
    result = exhume.attacks.WeightDifference(steps=300).run(gradient_view(data, MLP(width=256)), seed=0)
    evaluated = exhume.evaluate(result, data)
    assert evaluated.train.good >= 2
