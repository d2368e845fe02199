"""Multipliers: duals against definitions, pullbacks against finite differences, and what is feasible."""

import pytest
import torch

from exhume.attacks.stationarity.multipliers import (
    EitherLabelMultipliers,
    FreeMultipliers,
    MarginMultipliers,
    Multipliers,
    RivalMultipliers,
    TiedMultipliers,
)

CANDIDATES, OUTPUTS, VALUES = 5, 3, 4


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WEIGHT = draw(VALUES, OUTPUTS, seed=1)
LABELS = torch.arange(CANDIDATES) % OUTPUTS


def network(inputs):
    return (inputs @ WEIGHT).tanh()


FAMILIES = {
    "margin": MarginMultipliers(LABELS, OUTPUTS),
    "rivals": RivalMultipliers(LABELS, OUTPUTS),
    "free": FreeMultipliers(),
    "tied": TiedMultipliers(torch.nn.functional.cross_entropy, LABELS, 2.0),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_pullbacks_are_derivatives_of_duals(family):
    multipliers = FAMILIES[family]
    assert isinstance(multipliers, Multipliers)
    inputs, raw = draw(CANDIDATES, VALUES, seed=2), draw(*multipliers.shape(CANDIDATES, OUTPUTS), seed=3)
    cotangent = draw(CANDIDATES, OUTPUTS, seed=4)
    _, pullback = multipliers.duals(network, inputs, raw)
    by_inputs, by_raw = pullback(cotangent)
    slow_inputs, slow_raw = torch.func.grad(
        lambda *at: (multipliers.duals(network, *at)[0] * cotangent).sum(), argnums=(0, 1)
    )(inputs, raw)
    torch.testing.assert_close(torch.zeros_like(inputs) if by_inputs is None else by_inputs, slow_inputs)
    torch.testing.assert_close(by_raw, slow_raw)


@pytest.mark.parametrize("family", FAMILIES)
def test_runs_have_the_duals_and_pullbacks_of_each(family):
    multipliers = FAMILIES[family]
    inputs, raw = draw(2, CANDIDATES, VALUES, seed=2), draw(2, *multipliers.shape(CANDIDATES, OUTPUTS), seed=3)
    cotangents, floors = draw(2, CANDIDATES, OUTPUTS, seed=4), draw(2, seed=5).abs()
    duals, pullback = multipliers.duals(network, inputs, raw)
    _, by_raw = pullback(cotangents)
    penalties = torch.broadcast_to(multipliers.penalty(raw, floors)[0], (2,))
    for run in range(2):
        own, own_pullback = multipliers.duals(network, inputs[run], raw[run])
        torch.testing.assert_close(duals[run], own)
        torch.testing.assert_close(by_raw[run], own_pullback(cotangents[run])[1])
        torch.testing.assert_close(penalties[run], multipliers.penalty(raw[run], floors[run])[0])


def test_one_output_needs_no_network():
    def refuse(at):
        raise AssertionError("not needed")

    duals, _ = MarginMultipliers(LABELS % 2, 1).duals(refuse, draw(CANDIDATES, VALUES), draw(CANDIDATES).abs())
    assert torch.equal(duals[:, 0] > 0, LABELS % 2 == 1)


def test_either_label_has_a_multiplier_and_pulls_back():
    either, raw = EitherLabelMultipliers(LABELS % 2, 1), draw(2, CANDIDATES, 2)
    duals, pullback = either.duals(network, draw(2, CANDIDATES, VALUES), raw)
    torch.testing.assert_close(duals, (raw[..., 1:] - raw[..., :1]) / 2)
    cotangent = draw(2, CANDIDATES, 1, seed=7)
    slow = torch.func.grad(lambda at: (either.duals(network, raw, at)[0] * cotangent).sum())(raw)
    torch.testing.assert_close(pullback(cotangent)[1], slow)


def test_rivals_have_multipliers_of_their_own_and_express_the_slopes_of_a_cross_entropy():
    rivals = RivalMultipliers(LABELS, OUTPUTS)
    logits = network(draw(CANDIDATES, VALUES))
    wanted = torch.nn.functional.one_hot(LABELS, OUTPUTS).double() - logits.softmax(1)
    is_rival = torch.arange(OUTPUTS) != LABELS[:, None]
    raw = (OUTPUTS - 1) * logits.softmax(1)[is_rival].reshape(CANDIDATES, OUTPUTS - 1)
    duals, _ = rivals.duals(network, draw(CANDIDATES, VALUES), raw)
    torch.testing.assert_close(duals, wanted)
    # A mean above the floor is no excuse for a negative multiplier.
    assert float(rivals.penalty(torch.tensor([[3.0, -1.0]]), torch.tensor(0.5))[0]) == 1.0


def test_tied_duals_are_negative_slopes_per_candidate():
    inputs, strength = draw(CANDIDATES, VALUES), 0.7
    tied = TiedMultipliers(torch.nn.functional.cross_entropy, LABELS, strength)
    duals, _ = tied.duals(network, inputs, torch.zeros(1, dtype=torch.float64))
    one_hot = torch.nn.functional.one_hot(LABELS, OUTPUTS).double()
    torch.testing.assert_close(duals, strength * (one_hot - network(inputs).softmax(1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_penalties_have_their_gradients_and_vanish_for_feasible_multipliers(family):
    multipliers = FAMILIES[family]
    raw = draw(*multipliers.shape(CANDIDATES, OUTPUTS), seed=5)
    floor = torch.tensor(0.3, dtype=torch.float64)
    value, gradient = multipliers.penalty(raw, floor)
    torch.testing.assert_close(gradient, torch.func.grad(lambda at: multipliers.penalty(at, floor)[0])(raw))
    assert (float(value) > 0) == (family in ("margin", "rivals"))
    assert float(multipliers.penalty(raw.abs() + floor, floor)[0]) == 0.0
