"""Attacks together: never worse than any of them alone."""

from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks import Combined, GateCertificate, MaxMargin, Stationarity
from exhume.attacks.combined import join_reconstructions
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.mlp import MLP
from exhume.records import Outcome

QUICK = MaxMargin(trials=2, trial_steps=20, winners=1, restarts=1, steps=60)


@pytest.fixture(scope="module")
def lazy():
    data = exhume.load("digits", classes="odd-even", size=8, test=0)
    return data, exhume.train(data, model=MLP(width=128, bias="first"), device="cpu").view()


def nearest(found, data):
    return torch.cdist(data.train.inputs.flatten(1), found.inputs.flatten(1)).amin(1)


def test_with_known_initial_weights_the_union_is_never_worse(lazy):
    data, view = lazy
    # Reconstructions start the certificate, which must not keep it from proving all there is.
    proven = GateCertificate(warm_start=QUICK, rounds=10).run(view, device="cpu")
    guessed = QUICK.run(view, device="cpu")
    both = join_reconstructions([guessed, proven], {})
    assert torch.equal(nearest(both, data), torch.minimum(nearest(guessed, data), nearest(proven, data)))
    assert int(both.certified.sum()) == int(proven.certified.sum()) == 8
    assert bool(both.certified[:8].all())
    assert both.outcome is Outcome.CERTIFIED
    assert both.diagnostics["training_size_estimate"] == 8


def test_known_initial_weights_narrow_the_search_to_the_subspace(lazy):
    _, view = lazy
    assert QUICK.run(view, device="cpu").diagnostics["searched_dimensions"] == 7
    with pytest.raises(Refusal, match="cannot be read off"):
        QUICK.check(replace(view, initial=None))


def test_the_certificate_is_omitted_where_the_initial_weights_are_unknown(lazy):
    _, view = lazy
    wanted = replace(QUICK, candidates=8)
    found = Combined(attacks=(GateCertificate(), wanted)).run(replace(view, initial=None), device="cpu")
    assert "no initial weights" in found.diagnostics["attacks"]["GateCertificate"]
    assert not found.certified.any()


def test_a_view_is_refused_only_if_every_attack_refuses_it(lazy):
    _, view = lazy
    bent = exhume.AttackerView(
        model=MLP(width=128, bias="first", activation="tanh").build((1, 8, 8), 1),
        final=view.final, input_shape=view.input_shape,
    )  # fmt: skip
    with pytest.raises(Refusal, match="activation tanh is not piecewise linear"):
        Combined(attacks=(GateCertificate(), MaxMargin())).check(bent)
    Combined(attacks=(GateCertificate(), Stationarity(candidates=4))).check(bent)
    with pytest.raises(ExhumeError, match="at least one attack"):
        Combined(attacks=())
