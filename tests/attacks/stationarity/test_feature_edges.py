"""Images of convolutional networks from final weights alone: found where edges meet, and nowhere else."""

import pytest
import torch
from torch import Tensor

from exhume.attacks import FeatureEdges
from exhume.core.errors import Refusal
from exhume.records import Outcome, Reconstruction
from tests.attacks.stationarity.rest_victims import images, view_at_rest

QUICK = FeatureEdges(starts=32, descents=4)


def errors(found: Reconstruction, wanted: Tensor) -> Tensor:
    """Return the largest error of a pixel, per candidate and image."""
    return (found.inputs[:, None] - wanted[None]).flatten(2).abs().amax(dim=2)


def test_all_images_come_out_of_a_network_at_rest():
    wanted = images()
    found = QUICK.run(view_at_rest(wanted), seed=0, device="cpu")
    assert found.diagnostics["training_size_estimate"] == len(wanted)
    assert float(errors(found, wanted).amin(dim=0).max()) < 0.02
    assert float(errors(found, images(20, seed=3)).min()) > 0.2  # images that were not trained on
    assert found.outcome == Outcome.CONVERGED
    assert not bool(found.certified.any())


def test_nothing_comes_out_where_no_edges_meet():
    wanted = images()
    found = QUICK.run(view_at_rest(wanted, meet=False), seed=0, device="cpu")
    assert len(found) == 0 or float(errors(found, wanted).min()) > 0.02


def test_features_are_returned_where_pooling_leaves_too_few_of_them():
    wanted = images()
    view = view_at_rest(wanted, pool=True)
    found = QUICK.run(view, seed=0, device="cpu")
    features = view.model[0](wanted).detach()
    distances = torch.cdist(found.inputs.double(), features) / features.norm(dim=1)
    assert int((distances.amin(dim=0) < 0.02).sum()) >= len(wanted) - 1
    assert "the features are returned" in found.message


def test_weights_without_a_rank_are_refused():
    with pytest.raises(Refusal, match="no clear number of directions"):
        QUICK.run(view_at_rest(images(), noise=0.3), device="cpu")


def test_networks_with_few_units_per_image_are_refused():
    with pytest.raises(Refusal, match="different units in layer"):
        QUICK.run(view_at_rest(images(14)), device="cpu")
