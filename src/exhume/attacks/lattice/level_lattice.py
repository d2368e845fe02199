"""The attack by levels alone: all 8-bit images in the span of the inputs, whatever the activation."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field, PositiveInt
from torch import Tensor

from exhume.attacks.attack import Attack
from exhume.attacks.lattice.images import find_images
from exhume.attacks.lattice.own_rows import have_own_rows
from exhume.attacks.lattice.proof import are_only_choice, has_rivals, log_p_images
from exhume.attacks.lattice.reduction import require_flint
from exhume.attacks.lattice.whole_vectors import (
    NEEDED_CONTRAST,
    find_whole_vectors,
    largest_contrast,
    span_in_levels,
)
from exhume.attacks.levels import STEPS
from exhume.clues.clues import clues_of
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.core.text import count_noun
from exhume.records import AttackerView, Outcome, Reconstruction


class LatticeDoubt(StrEnum):
    """Why an image is not certified; the first reason that applies."""

    NONE = ""
    CHANCE = "chance may have made it"
    FLAT = "images of one colour are in the span wherever the brightness of inputs varied"
    OTHER_CHOICE = "another combination of inputs may lie in the range in its place"


@dataclass(frozen=True, kw_only=True)
class LatticeImages:
    """Images of whole numbers in a span, and what proves them."""

    images: Float[Tensor, "image value"]
    """In network units, flat."""
    log_p: Float[Tensor, " image"]
    is_certified: Bool[Tensor, " image"]
    doubts: list[str]
    is_complete: bool = False
    """Whether there are as many as the span has dimensions, none of which chance may have made."""
    has_rivals: bool = False
    """Whether other images in the range could take the place of some."""
    reason: str = ""
    """Why there are none."""


@settings
class LevelLattice(Attack):
    """Recover 8-bit images exactly from the span of the inputs, for a first dense layer with any activation.

    The weight change, gradient or optimiser's state of the first layer shows the span of all inputs, and so do the
    final weights alone once weight decay has removed the initial ones. An 8-bit image is a vector of whole numbers of
    levels in it. All such vectors form a lattice, which reduction finds
    (:mod:`exhume.attacks.lattice.whole_vectors`), and the images are those in their range
    (:mod:`exhume.attacks.lattice.images`). They are certified where no other choice fits
    (:mod:`exhume.attacks.lattice.proof`), and exact bit for bit.
    """

    rounds: PositiveInt = 40
    """Largest number of reductions in the search for images."""
    error_rate: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Probability, over the whole run, of certifying anything that was not trained on."""

    def check(self, view: AttackerView) -> None:
        """Refuse views without a first dense layer with a bias, and without a known range of inputs."""
        require_flint()
        layer = _find_span(view).layer
        if view.bounds is None:
            raise Refusal(
                "This attack needs the range of the inputs (bounds), as it looks for the levels of 8-bit images."
            )
        if not (layer.reads_input and layer.has_bias):
            raise Refusal(
                f"This attack needs a first layer that reads the input and has a bias; {layer.name!r} does not."
            )

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Find the lattice, the images in it, and what proves them."""
        subspace = _find_span(view)
        found = recover_images(view, subspace, context, self)
        count, rank = int(found.is_certified.sum()), subspace.rank
        outcome = Outcome.PARTIAL if len(found.images) else Outcome.NOTHING_FOUND
        recovered = f"{len(found.images)} of {count_noun(rank, 'training input')} recovered, {count} of them certified."
        return Reconstruction(
            inputs=view.to_pixels(found.images.float().to(view.device)),
            certified=found.is_certified,
            confidence=found.is_certified.float(),
            p_values=found.log_p.exp(),
            outcome=Outcome.CERTIFIED if count == rank else outcome,
            message=found.reason or recovered,
            diagnostics=subspace.describe() | {"doubts": found.doubts, "on_levels": found.is_certified.tolist()},
        )


def recover_images(
    view: AttackerView, subspace: InputSubspace, context: RunContext, rules: LevelLattice, *, with_proof: bool = True
) -> LatticeImages:
    """Recover all images of whole numbers in a span, with what proves each of them.

    ``with_proof`` looks for other choices, which takes as long as all the rest; none is certified without.
    """
    span = span_in_levels(view, subspace)
    if largest_contrast(span) < NEEDED_CONTRAST:
        return _nothing(view, f"There are too many inputs ({span.rank}) for the noise of the evidence to find levels.")
    whole = find_whole_vectors(span, lambda done, total: context.report("find the lattice", done, total))
    if len(whole.vectors) == 0:
        return _nothing(view, "The span of the inputs contains no vectors of whole numbers: no 8-bit images.")
    # Its own source of chance: a search that calls this twice, after an interruption, goes on as if it had not.
    generator = torch.Generator().manual_seed(context.generator.initial_seed())
    try:
        found = find_images(
            whole.vectors,
            span,
            generator,
            rules.rounds,
            lambda done: context.report("find images", done, len(whole.vectors)),
        )
    except ValueError:
        return _nothing(view, "The evidence shows the inputs too unevenly to find images among whole numbers.")
    log_p = log_p_images(found.images, span, whole)
    is_sure = log_p < math.log(rules.error_rate)
    assert view.bounds is not None
    low, high = view.bounds
    pixels = low + found.images[:, :-1] * ((high - low) / STEPS)
    images = view.to_model(pixels.to(view.device)).flatten(1)
    is_only = torch.full((len(images),), with_proof and have_own_rows(view, subspace, images))
    if with_proof and not bool(is_only.all()):
        is_only = are_only_choice(found, span.rank, lambda: context.report("prove images", 0, 1))
    is_flat = (pixels == pixels[:, :1]).all(dim=1)
    doubts = [LatticeDoubt.NONE] * len(images)
    for doubt, is_in_doubt in (
        (LatticeDoubt.OTHER_CHOICE, ~is_only),
        (LatticeDoubt.FLAT, is_flat),
        (LatticeDoubt.CHANCE, ~is_sure),
    ):
        doubts = [doubt if bad else before for before, bad in zip(doubts, is_in_doubt.tolist(), strict=True)]
    return LatticeImages(
        images=images.cpu(),
        log_p=log_p,
        is_certified=is_sure & is_only & ~is_flat,
        doubts=[doubt.value for doubt in doubts],
        is_complete=len(found.images) == span.rank and bool(is_sure.all()),
        has_rivals=has_rivals(found, generator),
        reason=""
        if len(found.images)
        else "No vector of whole numbers lies in the range of the inputs; check the bounds.",
    )


def _find_span(view: AttackerView) -> InputSubspace:
    """Return the span of the inputs, from a sum of gradients or else from the final weights.

    Raises:
        Refusal: when neither shows it.
    """
    clues = clues_of(view)
    return clues.span or clues.require_subspace()


def _nothing(view: AttackerView, reason: str) -> LatticeImages:
    none = torch.zeros(0, dtype=torch.float64)
    return LatticeImages(
        images=none.new_zeros(0, view.input_size), log_p=none, is_certified=none.bool(), doubts=[], reason=reason
    )
