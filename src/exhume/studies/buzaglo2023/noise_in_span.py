"""The control of attacks on final weights: random points in the span of the inputs."""

import torch

from exhume.attacks.attack import Attack
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.errors import Refusal
from exhume.core.run_context import RunContext
from exhume.core.settings import settings
from exhume.records import AttackerView, Outcome, Reconstruction


@settings
class NoiseInSpan(Attack):
    """Draw random points in the span of the inputs.

    The span alone is knowledge about the training set. This control measures how much of a result it explains.
    """

    oversampling: float = 1.0
    """Candidates per dimension of the span."""
    spread: float = 0.5
    """Standard deviation of a value, in model units."""

    def check(self, view: AttackerView) -> None:
        """Refuse if the first layer does not determine a span."""
        if clues_of(view).span is None:
            raise Refusal("The first layer does not show the span of the inputs.")

    def recover(self, view: AttackerView, context: RunContext) -> Reconstruction:
        """Draw normal variables along every direction of the span."""
        span = clues_of(view).span
        assert span is not None
        space = SearchSpace.spanned_by(span, torch.float32)
        count = round(self.oversampling * span.rank)
        noise = torch.randn(count, space.size, generator=context.generator).to(view.device)
        free = self.spread * space.stretch * space.project(noise)
        pixels = view.to_pixels(space.inputs(space.coordinates(free)))
        return Reconstruction(
            inputs=pixels if view.bounds is None else pixels.clamp(*view.bounds),
            certified=torch.zeros(count, dtype=torch.bool),
            confidence=torch.zeros(count),
            outcome=Outcome.NOTHING_FOUND,
            message="Random points of the span of the inputs.",
            diagnostics={"residuals": [1.0], "training_size_estimate": span.rank},
        )
