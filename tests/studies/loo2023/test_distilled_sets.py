"""Distilled sets: sizes, kernels and balanced random images."""

import pytest
import torch

from exhume.studies.loo2023.distilled_sets import METHODS, SMALL, Recipe, choose_random_images
from exhume.studies.study import StudyRun
from exhume.studies.tasks import load_task


@pytest.mark.parametrize("method", METHODS)
def test_every_method_returns_a_set_for_the_same_task(method, tmp_path):
    data = load_task("digits", 8, 0)
    made = METHODS[method](data, SMALL, StudyRun(folder=tmp_path, device="cpu"), 0)
    assert len(made.train) == (8 if method == "full data" else SMALL.distilled)
    assert made.classes == data.classes
    assert made.input_shape == data.input_shape
    assert bool(made.train.inputs.isfinite().all())


def test_random_images_are_balanced_and_centred_by_their_own_mean(tmp_path):
    data = load_task("digits", 40, 0)
    chosen = choose_random_images(data, Recipe(distilled=10), StudyRun(folder=tmp_path), 3)
    assert chosen.train.labels.bincount().tolist() == [5, 5]
    torch.testing.assert_close(chosen.offset.flatten(), chosen.train.inputs.mean().reshape(1))


def test_the_distilling_kernel_is_the_released_one_or_that_of_the_network():
    assert SMALL.distilling_kernel == SMALL.kernel
    assert Recipe(kernel=None).distilling_kernel == Recipe().own_kernel
