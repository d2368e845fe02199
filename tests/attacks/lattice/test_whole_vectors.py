import pytest
import torch

import exhume
from exhume.attacks.lattice import whole_vectors
from exhume.attacks.lattice.whole_vectors import (
    NEEDED_CONTRAST,
    contrast,
    find_whole_vectors,
    largest_contrast,
    span_in_levels,
)
from exhume.clues.clues import clues_of
from exhume.core.errors import Refusal

from .photographs import in_levels, photographs, span_of


def coefficients(whole, images):
    """The coefficients of vectors as combinations of images."""
    return torch.linalg.lstsq(in_levels(images).T, whole.vectors.T).solution


@pytest.mark.parametrize(("count", "noise"), [(2, 1e-6), (5, 1e-9), (12, 1e-7), (20, 1e-6)])
def test_the_lattice_consists_of_whole_combinations_of_the_images(count, noise):
    images = photographs(count)
    parts = coefficients(find_whole_vectors(span_of(images, noise)), images)
    assert float((parts - parts.round()).abs().max()) < 1e-3
    assert float(torch.linalg.det(parts.round()).abs()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images.sqrt(),
        lambda images: 0.9 * images,
        lambda images: (images + 1 / 510).clamp(0, 1),
        lambda images: torch.rand(images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    ],
    ids=["gamma", "darker", "half a level", "noise"],
)
def test_other_inputs_span_no_images(change):
    whole = find_whole_vectors(span_of(change(photographs(10))))
    assert not bool((whole.vectors[:, -1].abs() == 1).any())


def test_much_noise_and_many_inputs_leave_little_contrast():
    few, many = span_of(photographs(10)), span_of(photographs(40))
    noisy = span_of(photographs(40), noise=1.0)
    assert largest_contrast(few) > largest_contrast(many) > largest_contrast(noisy)
    assert largest_contrast(many) > NEEDED_CONTRAST > largest_contrast(noisy)
    assert contrast(few, torch.arange(5)) == -float("inf")


def test_evidence_too_uneven_for_double_precision_shows_no_lattice(monkeypatch):
    def refuse(*arguments, **settings):
        raise ValueError("The vectors of a basis must be finite and independent.")

    monkeypatch.setattr(whole_vectors, "reduce_basis", refuse)
    assert len(find_whole_vectors(span_of(photographs(5))).vectors) == 0


def test_more_inputs_than_reduction_can_handle_have_no_contrast(monkeypatch):
    monkeypatch.setattr(whole_vectors, "MOST_INPUTS", 9)
    assert largest_contrast(span_of(photographs(10))) == -float("inf")


def test_a_tick_may_stop_the_search():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_whole_vectors(span_of(photographs(5)), stop)


def view_of(images, offset=None, bias=True, bounds=(0.0, 1.0)):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(images.shape[1], 64, bias=bias), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    )
    shown = images.float() if offset is None else images.float() - offset
    torch.nn.functional.cross_entropy(model(shown), torch.arange(len(images)) % 2).backward()
    gradient = {name: weight.grad for name, weight in model.named_parameters()}
    shape = images.shape[1:]
    return exhume.AttackerView(
        model=model, final=model.state_dict(), gradient=gradient, input_shape=shape, bounds=bounds, offset=offset
    )


@pytest.mark.parametrize("offset", [None, 0.4])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0)])
def test_a_span_in_levels_contains_the_images_in_levels(offset, bounds):
    images = photographs(6)
    pixels = bounds[0] + images * (bounds[1] - bounds[0])
    given = None if offset is None else torch.full((images.shape[1],), offset)
    view = view_of(pixels, given, bounds=bounds)
    span = span_in_levels(view, clues_of(view).require_subspace())
    rest = in_levels(images).T - span.axes[0] @ (span.axes[0].T @ in_levels(images).T)
    assert float(rest.abs().max()) < 0.05


def test_a_span_without_range_or_bias_is_refused():
    for wrong, reason in (({"bounds": None}, "range of the inputs"), ({"bias": False}, "with a bias")):
        view = view_of(photographs(4), **wrong)
        with pytest.raises(Refusal, match=reason):
            span_in_levels(view, clues_of(view).require_subspace())
