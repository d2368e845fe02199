"""The control attack: random points, all of them inside the span of the inputs."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.clues.clues import clues_of
from exhume.core.errors import Refusal
from exhume.studies.buzaglo2023.noise_in_span import NoiseInSpan
from exhume.training.recipes import weight_decay_recipe


@pytest.fixture(scope="module")
def view():
    data = exhume.load("digits", classes="odd-even", size=6, test=0, seed=0)
    recipe = weight_decay_recipe(loss="bce", weight_decay=1e-3, width=32, steps=200, lr=0.1)
    victim = exhume.train(data, device="cpu", seed=0, **recipe)
    return replace(victim.view(), initial=None)


def test_points_lie_in_the_span_and_differ_by_seed(view):
    unbounded = replace(view, bounds=None)
    found = NoiseInSpan(oversampling=2.0).run(unbounded, seed=0, device="cpu")
    span = clues_of(view).span
    assert len(found) == 2 * span.rank
    assert not bool(found.certified.any())
    spanned = torch.linalg.matrix_rank(unbounded.to_model(found.inputs).flatten(1).double(), rtol=1e-4)
    assert int(spanned) == span.rank
    other = NoiseInSpan(oversampling=2.0).run(unbounded, seed=1, device="cpu")
    assert not torch.allclose(found.inputs, other.inputs)


def test_a_view_without_a_span_is_refused():
    data = exhume.load("digits", classes="odd-even", size=6, test=0, seed=0)
    trained = exhume.train(data, model=exhume.MLP(width=16), steps=20, device="cpu", seed=0)
    with pytest.raises(Refusal, match="span"):
        NoiseInSpan().check(replace(trained.view(), initial=None))
