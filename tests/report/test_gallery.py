"""Labelled rows of images."""

import torch

from exhume.report.gallery import draw_image_rows


def test_rows_have_labels_and_frames():
    rows = {"original": torch.rand(3, 1, 8, 8), "recovered": torch.rand(2, 1, 8, 8)}
    [axes] = draw_image_rows(rows, (0.0, 1.0), {"recovered": [1]}).axes
    assert [text.get_text() for text in axes.texts] == ["original", "recovered"]
    [frame] = axes.patches
    canvas = axes.images[0].get_array()
    assert frame.get_x() > canvas.shape[1] / 4, "the second image of the row"
    assert frame.get_y() > canvas.shape[0] / 4, "in the second row"
    assert (canvas[-8:, -8:, 3] == 0).all(), "a shorter row leaves its end transparent"
