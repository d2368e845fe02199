import pytest
from torch import nn

from exhume.attacks.lattice.own_rows import have_own_rows
from exhume.clues.clues import clues_of

from .photographs import photographs
from .test_level_lattice import evidence_of


def judge(images, chosen, activation=nn.Tanh, kind="gradient"):
    view = evidence_of(images, activation, kind)
    return have_own_rows(view, clues_of(view).require_subspace(), chosen)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.ReLU, nn.LeakyReLU])
@pytest.mark.parametrize("count", [2, 7, 15])
def test_the_images_that_were_trained_on_have_their_own_rows(activation, count):
    images = photographs(count)
    assert judge(images, images, activation)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.ReLU])
@pytest.mark.parametrize("parts", [(1, 1, -1), (0, 1, 1)])
def test_a_combination_in_place_of_one_image_does_not(activation, parts):
    images = photographs(8)
    chosen = images.clone()
    chosen[1] = sum(part * image for part, image in zip(parts, images[:3], strict=True)) / sum(parts)
    assert not judge(images, chosen, activation)


def test_an_incomplete_choice_decides_nothing():
    assert not judge(photographs(6), photographs(6)[:5])


def test_a_training_of_many_steps_decides_nothing():
    assert not judge(photographs(6), photographs(6), kind="training")
