import math

import numpy as np
import torch

from exhume.attacks.lattice.images import FoundImages, find_images
from exhume.attacks.lattice.proof import CoordinateBounds, are_only_choice, has_rivals, log_p_images
from exhume.attacks.lattice.whole_vectors import find_whole_vectors

from .photographs import in_levels, photographs, span_of


def as_found(images):
    return FoundImages(images=in_levels(images), rest=in_levels(images)[:0])


def generator():
    return torch.Generator().manual_seed(0)


def test_chance_does_not_explain_images_of_the_span():
    span = span_of(photographs(10))
    whole = find_whole_vectors(span)
    found = find_images(whole.vectors, span, generator())
    assert bool((log_p_images(found.images, span, whole) < math.log(1e-3)).all())


def test_chance_explains_whole_numbers_that_are_not_in_the_span():
    span = span_of(photographs(10))
    whole = find_whole_vectors(span)
    foreign = in_levels(photographs(10, seed=5))
    assert bool((log_p_images(foreign, span, whole) == 0).all())


def test_values_that_all_inputs_share_prove_nothing():
    images = torch.cat([photographs(6), torch.full((6, 200), 0.2, dtype=torch.float64)], dim=1)
    plain, padded = span_of(photographs(6)), span_of(images)
    of_plain = log_p_images(in_levels(photographs(6)), plain, find_whole_vectors(plain))
    of_padded = log_p_images(in_levels(images), padded, find_whole_vectors(padded))
    assert bool((of_padded > 1.2 * of_plain).all())  # about as many values tell something


def test_different_photographs_are_the_only_choice():
    assert bool(are_only_choice(as_found(photographs(6, side=20)), 6).all())


def test_images_that_the_difference_of_two_others_leaves_in_the_range_are_not():
    images = photographs(6).clamp(0.2, 0.8).mul(255).round().div(255)
    nearly = images[:1].clone()
    nearly[0, ::7] += 1 / 255
    is_only = are_only_choice(as_found(torch.cat([images, nearly])), 7)
    assert not bool(is_only.any())


def test_a_lattice_with_too_few_dimensions_proves_nothing():
    assert not bool(are_only_choice(as_found(photographs(6, side=20)), 7).any())


def test_whole_numbers_settle_what_linear_programs_leave_open():
    # The half of each sum is in the range, so that coordinates of -1/2 and less are; whole ones are not.
    one, two = torch.tensor([0.0, 255, 0, 255, 90]), torch.tensor([255.0, 0, 0, 255, 200])
    three, four = torch.tensor([0.0, 0, 255, 0, 130]), torch.tensor([255.0, 255, 0, 0, 40])
    basis = torch.cat([torch.stack([one, two, three, four]), torch.ones(4, 1)], dim=1).double()
    bounds = CoordinateBounds(basis.numpy())
    assert bounds.settle([(place, 1) for place in range(4)], lambda: None) == []
    assert (bounds.sides[:, 0] == 0).all()


def test_a_rival_stays_unsure():
    images = photographs(3, side=20) / 4 + 0.3  # so little contrast that one plus another less the third is inside
    levels = (images * 255).round()
    bounds = CoordinateBounds(torch.cat([levels, torch.ones(3, 1).double()], dim=1).numpy())
    assert len(bounds.settle([(place, 1) for place in range(3)], lambda: None)) == 3


def test_bounds_on_coordinates_are_those_of_all_values():
    bounds = CoordinateBounds(in_levels(photographs(5)).numpy())
    every = CoordinateBounds(in_levels(photographs(5)).numpy())
    every.used = np.arange(len(every.values))
    for place in range(5):
        assert bounds.exceeds(place) == every.exceeds(place)
        assert bounds.exceeds(place, given=(place + 1) % 5) == every.exceeds(place, given=(place + 1) % 5)


def test_different_photographs_have_no_rivals():
    assert not has_rivals(as_found(photographs(12, side=20)), generator())


def test_a_combination_in_place_of_an_image_has_a_rival():
    images = (photographs(6, side=20) * 255 / 4).round() + 90  # so little contrast that combinations stay in the range
    levels = in_levels(images / 255).round()
    chosen = levels.clone()
    chosen[2] = levels[0] + levels[2] - levels[1]
    assert has_rivals(FoundImages(images=chosen, rest=levels[:0]), generator())


def test_an_incomplete_choice_has_rivals():
    levels = in_levels(photographs(4, side=20))
    assert has_rivals(FoundImages(images=levels[:3], rest=levels[3:]), generator())


def test_a_single_image_is_the_only_choice():
    assert are_only_choice(as_found(photographs(1)), 1).tolist() == [True]
