"""Distilled images above the nearest training images."""

from dataclasses import replace

import torch

import exhume
from exhume.evaluation import find_copies
from exhume.records import Split
from exhume.report.distilled import ACROSS, draw_beside_nearest


def test_copies_are_framed_and_many_images_take_several_rows():
    data = exhume.load("digits", classes="odd-even", size=30, test=0)
    copies = data.train.inputs[: ACROSS + 2].clone()
    copies[1:] = torch.rand(ACROSS + 1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    made = replace(data, train=Split(inputs=copies, labels=data.train.labels[: ACROSS + 2]))
    [axes] = draw_beside_nearest(made, data, find_copies(made, data)).axes
    assert len(axes.texts) == 4
    assert axes.patches
    assert axes.patches[0].get_x() < 1, "the first image is a copy"


def test_tables_are_not_drawn():
    data = exhume.load("breast-cancer", size=4, test=0)
    assert draw_beside_nearest(data, data, find_copies(data, data)) is None
