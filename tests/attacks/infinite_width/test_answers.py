"""The change of outputs by training, for both kinds of dynamics."""

import torch

from exhume import MLP, load, train
from exhume.attacks.infinite_width.answers import change_of_outputs


def test_the_change_of_outputs_leads_to_the_targets_for_both_dynamics():
    data = load("digits", classes="odd-even", size=6, seed=0)
    inputs = data.to_model(data.train.inputs).flatten(1)
    targets = 2.0 * data.train.labels[:, None] - 1.0
    for linearised in (True, False):
        victim = train(data, model=MLP(width=256), linearised=linearised, device="cpu")
        view = victim.view()
        change, pull = change_of_outputs(view)(inputs)
        start = view.module(view.initial)(data.to_model(data.train.inputs))
        assert torch.allclose(change, targets - start, atol=1e-2)
        assert pull(change).shape == inputs.shape
