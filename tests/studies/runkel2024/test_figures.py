"""Figures of the uncertainty study."""

import torch

from exhume.studies.runkel2024.figures import (
    certificate_figure,
    make_panels,
    reliability_figure,
    roc_figure,
)


def make_proofs():
    points = {
        "agreement": torch.tensor([0.9, 0.8, 0.2]),
        "proof_distance": torch.tensor([0.0, torch.inf, 0.5]),
        "truth": torch.tensor([True, False, False]),
        "own_images": torch.tensor([False, False, True]),
    }
    roc = {"auc": 0.75, "false_positive_rates": [0.0, 0.5, 1.0], "true_positive_rates": [0.0, 1.0, 1.0]}
    return {"digits": {"points": points, "agreement": roc, "certificate": roc, "agreement_without_own_images": None}}


def test_panels_do_not_overlap():
    figure, grid = make_panels(2, 3)
    assert len(figure.axes) == 6
    boxes = [axes.get_position() for line in grid for axes in line]
    assert all(0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1 for box in boxes)
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)


def test_every_kind_of_candidate_is_drawn_with_a_finite_height():
    (axes,) = certificate_figure(make_proofs()).axes
    heights = [float(point[1]) for group in axes.collections for point in group.get_offsets()]
    assert len(axes.collections) == 3
    assert len(heights) == 3
    assert all(0 < height <= 1 for height in heights)
    assert "0.750 by agreement" in axes.get_title()


def test_evidence_without_a_roc_is_left_out():
    (axes,) = roc_figure(make_proofs()).axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["certificate: 0.750", "agreement: 0.750"]


def test_bins_that_do_not_hold_are_hollow():
    one = {"predicted": 0.5, "observed": 0.5, "low": 0.4, "high": 0.6, "slack": 0.05, "holds": True}
    found = {
        "source": "digits",
        "way": "agreement",
        "bins": [one, one | {"observed": 0.9, "high": 1.0, "holds": False}],
    }
    (axes,) = reliability_figure([found]).axes
    faces = [bar.lines[0].get_markerfacecolor() for bar in axes.containers]
    assert [face == "none" for face in faces] == [False, True]
