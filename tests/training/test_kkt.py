"""The owner's check of how far a network is from its stationary point."""

import pytest
import torch

import exhume
from exhume.models.tangent import jacobians
from exhume.training.kkt import kkt_report
from exhume.training.recipes import max_margin_recipe, weight_decay_recipe


def trained(**recipe):
    data = exhume.load("digits", classes="odd-even", size=8, test=0)
    return data, exhume.train(data, device="cpu", **recipe)


def test_the_residual_is_the_least_squares_over_all_gradients():
    data, victim = trained(**weight_decay_recipe(width=16, steps=300))
    report = kkt_report(victim, data)
    view = victim.view()
    rows = torch.cat(
        list(jacobians(view.module(victim.final), victim.final, view.to_model(data.train.inputs.double())))
    )
    weights = torch.cat([victim.final[name].flatten() for name, _ in view.model.named_parameters()])
    best = torch.linalg.lstsq(rows[:, 0].T, weights[:, None]).solution
    left = (rows[:, 0].T @ best)[:, 0] - weights
    assert report.residual == pytest.approx(float(left.norm() / weights.norm()), rel=1e-4)
    assert report.margin_residual is None
    assert torch.allclose(report.multipliers, best, rtol=1e-3, atol=1e-6)


def test_weight_decay_and_patience_bring_a_network_to_rest():
    _, started = trained(**weight_decay_recipe(width=32, steps=20))
    data, rested = trained(**weight_decay_recipe(width=32, steps=3000, weight_decay=1e-2))
    assert kkt_report(rested, data).residual < 0.5 * kkt_report(started, data).residual
    assert "unexplained" in kkt_report(rested, data).sentence


@pytest.mark.parametrize("classes", ["odd-even", "all"])
def test_margins_with_feasible_multipliers_explain_no_more_than_free_ones(classes):
    data = exhume.load("digits", classes=classes, size=10, test=0)
    victim = exhume.train(data, device="cpu", **max_margin_recipe(classes=len(data.classes), width=24, steps=300))
    report = kkt_report(victim, data)
    assert report.residual <= report.margin_residual + 1e-6 <= 1 + 1e-6
    assert 0 < report.carriers <= 10


def test_recipes_follow_the_papers():
    published = max_margin_recipe(published=True)
    assert (published["lr"], published["momentum"], published["steps"]) == (0.01, 0.0, 1_000_000)
    assert max_margin_recipe(classes=10, published=True)["lr"] == 0.5
    assert published["model"].parameterisation == "small-first-layer"
    assert published["model"].bias == "first"
