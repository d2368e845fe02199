import pytest
import torch

from exhume.attacks.lattice.images import are_inside, find_images
from exhume.attacks.lattice.whole_vectors import find_whole_vectors

from .photographs import are_same_images, in_levels, photographs, span_of


@pytest.mark.parametrize("count", [2, 3, 8, 24])
@pytest.mark.parametrize("seed", range(3))
def test_all_images_are_found_whatever_basis_the_lattice_has(count, seed):
    images = photographs(count, side=20, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randint(-2, 3, (count, count), generator=generator).double().tril(-1)
    mixing = (torch.eye(count, dtype=torch.float64) + mixing)[torch.randperm(count, generator=generator)]
    found = find_images(mixing @ in_levels(images), span_of(images), generator)
    assert len(found.rest) == 0
    assert are_same_images(found.images, in_levels(images))


def test_images_and_the_rest_are_a_basis_of_the_lattice():
    images = photographs(16)
    span = span_of(images)
    found = find_images(find_whole_vectors(span).vectors, span, torch.Generator().manual_seed(0), rounds=1)
    parts = torch.linalg.lstsq(in_levels(images).T, found.basis.T).solution
    assert float(torch.linalg.det(parts.round()).abs()) == pytest.approx(1.0)


def test_an_image_has_the_constant_of_one_input_and_no_value_outside_the_range():
    vectors = torch.tensor([[0.0, 255.0, 1.0], [-1.0, 3.0, 1.0], [7.0, 256.0, 1.0], [7.0, 8.0, 2.0]])
    assert are_inside(vectors.double()).tolist() == [True, False, False, False]
