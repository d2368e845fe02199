"""Clues are computed once per view, for all who use them, and belong to that view alone."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from exhume.attacks import GateCertificate, MaxMargin, WeightDifference
from exhume.auditing.applicability import assess
from exhume.clues import clues as clues_module
from exhume.clues.clues import clues_of
from exhume.core.errors import Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from tests.attacks.gates.victims import draw, view_of

COMPUTED = (
    "read_first_layer",
    "find_subspace",
    "span_of_final_weights",
    "upper_layers_look_random",
    "degree_of_homogeneity",
)


@pytest.fixture(scope="module")
def trained() -> AttackerView:
    return view_of(draw(size=6), MLP(width=48, bias="first"), steps=100)


@pytest.fixture
def view(trained) -> AttackerView:
    """A view without any clue computed yet."""
    return replace(trained)


@pytest.fixture
def calls(monkeypatch) -> dict[str, int]:
    """Count how often each clue is computed."""
    counts = dict.fromkeys(COMPUTED, 0)

    def counting(name):
        compute = getattr(clues_module, name)

        def counted(*arguments):
            counts[name] += 1
            return compute(*arguments)

        return counted

    for name in COMPUTED:
        monkeypatch.setattr(clues_module, name, counting(name))
    return counts


@pytest.fixture
def decompositions(monkeypatch) -> list[torch.Size]:
    """Record the shapes of all matrices whose singular vectors are computed."""
    shapes = []
    decompose = torch.linalg.svd

    def recording(matrix, **settings):
        shapes.append(matrix.shape)
        return decompose(matrix, **settings)

    monkeypatch.setattr(torch.linalg, "svd", recording)
    return shapes


@pytest.mark.parametrize(
    "attack",
    [
        GateCertificate(rounds=1),
        WeightDifference(steps=3),
        MaxMargin(trials=1, restarts=2, steps=3),
        MaxMargin(trials=2, trial_steps=2, restarts=1, steps=3, within_span=True),
    ],
)
def test_an_assessment_and_a_run_compute_each_clue_once(attack, view, calls, decompositions):
    assess(view, {"named": attack, "gate-certificate": GateCertificate()})
    attack.run(view, device="cpu")
    assert max(calls.values()) == calls["find_subspace"] == 1
    change = clues_of(view).require_first_layer().change
    live = ((change != 0).any(dim=1).sum(), (change != 0).any(dim=0).sum())
    assert decompositions.count(torch.Size(live)) == 1


def test_missing_initial_weights_are_looked_for_once(view, calls):
    hidden = replace(view, initial=None)
    assess(hidden)
    assess(hidden)
    assert calls["read_first_layer"] == 0  # refused before any layer is read
    assert calls["span_of_final_weights"] == 1


def test_a_refusal_is_remembered_and_raised_again(view, calls):
    clues = clues_of(replace(view, final=view.initial))
    for _ in range(3):
        with pytest.raises(Refusal, match="nothing was trained"):
            clues.require_subspace()
    assert clues.subspace is None
    assert (calls["read_first_layer"], calls["find_subspace"]) == (1, 0)


def test_clues_are_the_same_objects_on_the_same_device_and_new_for_another_view(view):
    clues = clues_of(view)
    assert clues_of(view.to("cpu")).require_subspace() is clues.require_subspace() is clues.span
    assert clues_of(replace(view)).require_subspace() is not clues.require_subspace()
    assert clues_of(replace(view, initial=None)).subspace is None


def test_clues_leave_the_view_as_it_was_and_do_not_keep_it_alive(view):
    fresh = replace(view)
    printed = repr(fresh)
    clues = clues_of(fresh)
    assert clues.movement is not None
    assert clues.subspace is not None
    assert fresh == view
    assert repr(fresh) == printed
    watched = weakref.ref(fresh)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        del fresh, clues
        assert watched() is None  # no cycle: freed without the garbage collector
    finally:
        if was_enabled:
            gc.enable()
