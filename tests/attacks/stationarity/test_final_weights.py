"""What attacks on final weights share: ranges of settings, the span of the inputs, and a result with its reasons."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks import MaxMargin, Stationarity
from exhume.clues.clues import clues_of
from exhume.core.errors import ExhumeError, Refusal
from exhume.models.mlp import MLP
from exhume.records import AttackerView
from tests.attacks.stationarity.victims import classifier, regression


def without_initial(victim):
    return replace(victim.view(), initial=None)


def test_bad_settings_are_refused():
    with pytest.raises(ExhumeError, match=r"init_std.0 should be greater than 0"):
        MaxMargin(init_std=(0.0, 1.0))
    with pytest.raises(ExhumeError, match="floor should be a range from low to high"):
        MaxMargin(floor=(0.5, 0.1))
    with pytest.raises(ExhumeError, match="restarts should be greater than 0"):
        MaxMargin(restarts=0)
    with pytest.raises(ExhumeError, match="upper_layers should be greater than or equal to 0"):
        MaxMargin(upper_layers=-1.0)


def test_the_result_reports_how_settings_were_chosen():
    attack = MaxMargin(trials=4, trial_steps=10, winners=1, restarts=1, steps=10, edges=False)
    found = attack.run(without_initial(classifier()), device="cpu")
    trials, chosen = found.diagnostics["trials"], found.diagnostics["settings"]
    assert (len(trials), len(chosen)) == (4, 1)
    finalists = [trial for trial in trials if trial["rounds"] == 2]
    assert min(finalists, key=lambda trial: trial["residual"])["settings"] == chosen[0]
    assert "no training input" in found.diagnostics["chosen_by"]


def test_the_span_gives_the_number_of_candidates_and_the_searched_dimensions():
    attack = MaxMargin(trials=1, restarts=1, steps=2, edges=False)
    found = attack.run(without_initial(classifier()), device="cpu")
    assert found.diagnostics["training_size_estimate"] == 20
    everywhere = replace(attack, within_span=False, candidates=3).run(without_initial(classifier()), device="cpu")
    assert found.diagnostics["searched_dimensions"] < everywhere.diagnostics["searched_dimensions"] == 64


def test_chunks_of_candidates_and_of_runs_change_no_result():
    attack = MaxMargin(trials=1, restarts=2, steps=5, edges=False, similar=1.1, precision="float64")
    view = without_initial(classifier())
    whole = attack.run(view, device="cpu")
    parts = replace(attack, at_once=7, runs_at_once=1).run(view, device="cpu")
    # Candidates of equal confidence may change places.
    distances = torch.cdist(parts.inputs.flatten(1).double(), whole.inputs.flatten(1).double())
    assert len(parts) == len(whole)
    assert float(distances.amin(dim=0).max()) < 1e-5
    assert float(distances.amin(dim=1).max()) < 1e-5


def test_only_the_first_layer_counts_where_the_others_keep_their_random_start():
    for decay, alone in ((0.0, True), (3e-3, False)):
        view = without_initial(regression(decay))
        assert clues_of(view).upper_layers_look_random is alone
        found = MaxMargin(trials=1, restarts=1, steps=5, edges=False).run(view, device="cpu")
        assert found.diagnostics["upper_layers"] == (0.0 if alone else 1.0)


def test_views_without_anything_to_explain_are_refused():
    model = MLP(width=8, bias="first").build((1, 4, 4), 1, torch.Generator().manual_seed(0))
    view = AttackerView(model=model, final=model.state_dict(), input_shape=(1, 4, 4))
    with pytest.raises(Refusal, match="set candidates"):
        Stationarity().check(view)
    with pytest.raises(Refusal, match="does not show the span"):
        Stationarity(candidates=4, within_span=True).check(view)
    attack = Stationarity(candidates=4)
    with pytest.raises(Refusal, match="All final weights are zero"):
        attack.check(replace(view, final={name: torch.zeros_like(weight) for name, weight in view.final.items()}))
    with pytest.raises(Refusal, match="this view is linearised"):
        attack.check(replace(view, initial=view.final, linearised=True))
