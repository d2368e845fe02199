"""Search the inputs of given features: annealed descents that are combined patch by patch, then Gauss–Newton.

A pixel reaches only the features near it. So one descent solves some patches of an image and leaves a local minimum in
others, another descent others, and an image that takes each patch from the descent with the smaller residual there is
better than both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.core.run_context import OutOfTime, RunContext
from exhume.core.settings import settings
from exhume.inversion.gauss_newton import InputBox, Steps, Trunk, minimise_residuals
from exhume.inversion.smoothing import Smoothed

AT_ONCE = 16
"""Number of examples that a CPU searches at once. A descent of 40 takes as long, but a deadline leaves none of them."""
Share = Annotated[float, Field(gt=0, le=1)]


@settings
class SearchRules:
    """How inputs are searched. None of these numbers decides what counts as determined."""

    first_steps: PositiveInt = 300
    """Adam steps of the first descent, from the middle of the range."""
    reheated_steps: PositiveInt = 150
    """Adam steps of a descent that continues from an earlier result."""
    mixing_steps: PositiveInt = 100
    """Adam steps after two results are combined, which fit the borders of patches to each other."""
    descents: PositiveInt = 25
    """Largest number of descents. With max pooling most images need two to fifteen."""
    patience: PositiveInt = 8
    """Number of descents that improve no image after which the search stops."""
    hopeless: PositiveFloat = 0.5
    """Relative residual of the first descent from which no input has the features; wrong combinations of features leave
    0.9 and more."""
    temperature: NonNegativeFloat = 0.5
    """First temperature of the first descent, in standard deviations of what enters an activation."""
    reheated: NonNegativeFloat = 0.1
    """First temperature of a descent that continues from an earlier result."""
    mixed: NonNegativeFloat = 0.02
    """First temperature after two results are combined."""
    cooling: Share = 1e-3
    """Last temperature, relative to the first."""
    exact_share: Share = 0.2
    """Fraction of the steps, the last ones, without smoothing."""
    learning_rate: PositiveFloat = 0.05
    """First learning rate of a descent, relative to the range of an input value."""
    kick: PositiveFloat = 0.3
    """Size of the random change where the residual is largest, relative to the range of an input value."""
    promising: PositiveFloat = 5e-3
    """Relative residual from which Gauss–Newton takes over; above it, the wrong units are on."""
    polishing_steps: PositiveInt = 12
    """Largest number of Gauss–Newton steps."""


Locate = Callable[[Float[Tensor, "example ..."], Float[Tensor, "example feature"]], Float[Tensor, "example ..."]]
"""From inputs and the residuals of their features to the squared residuals that each input value has a part in."""


@dataclass
class InverseSearch:
    """The state of a search for the inputs of many features at once; rows of all tensors belong together."""

    trunk: Trunk
    features: Float[Tensor, "example feature"]
    box: InputBox
    tolerance: Float[Tensor, " example"]
    """Relative residual from which an example is solved."""
    generator: torch.Generator
    rules: SearchRules
    take_step: Steps
    """How Gauss–Newton steps are computed."""
    locate: Locate
    """How residuals are traced back to input values."""
    inputs: Float[Tensor, "example ..."]
    """The best inputs so far, in float64."""
    residuals: Float[Tensor, " example"]
    """Their relative residuals."""

    def run(self, context: RunContext, on_solved: Callable[[Tensor], None] = lambda solved: None) -> None:
        """Descend until every example is solved, the number of descents is reached, or the time is spent.

        ``on_solved`` is called with the numbers of examples as soon as they are solved.
        """
        idle = 0
        for descent in range(self.rules.descents):
            is_hopeless = (self.residuals > self.rules.hopeless) & (descent > 0)
            todo = ((self.residuals > self.tolerance) & ~is_hopeless).nonzero()[:, 0]
            if len(todo) == 0 or idle >= self.rules.patience:
                return
            before = self.residuals.clone()

            def tick(descent: int = descent) -> None:
                solved = int((self.residuals <= self.tolerance).sum())
                context.report("invert", solved, len(self.residuals), f"descent {descent + 1}")

            for some in torch.split(todo, len(todo) if todo.is_cuda else AT_ONCE):
                try:
                    self._improve(some, descent, tick)
                except OutOfTime as stop:  # this descent is lost, and nothing before it
                    if stop.wraps_up:
                        return
                    raise
                on_solved(some[self.residuals[some] <= self.tolerance[some]])
            idle = 0 if bool((self.residuals < 0.9 * before).any()) else idle + 1

    def _improve(self, todo: Tensor, descent: int, tick: Callable[[], None]) -> None:
        rules, rate, before = self.rules, self.rules.learning_rate, self.residuals[todo]
        if descent == 0:
            self._descend(todo, self._draw(len(todo)), rules.temperature, rules.first_steps, rate, tick)
        else:
            old = self.inputs[todo].float()
            new = self._descend(todo, self._kick(todo, old), rules.reheated, rules.reheated_steps, rate / 2, tick)
            is_nearer = self._located(todo, new) < self._located(todo, old)
            mixed = torch.where(is_nearer, new, old)
            self._descend(todo, mixed, rules.mixed, rules.mixing_steps, rate / 2, tick)
        near = todo[(self.residuals[todo] < rules.promising) & (self.residuals[todo] < before)]
        if len(near):
            polished = minimise_residuals(
                self.trunk,
                self.features[near].double(),
                self.inputs[near],
                self.box.double(),
                take_step=self.take_step,
                steps=rules.polishing_steps,
                tick=tick,
            )
            self._keep(near, polished)

    def _descend(
        self, todo: Tensor, starts: Tensor, temperature: float, steps: int, rate: float, tick: Callable[[], None]
    ) -> Tensor:
        """Descend from starting points, keep what is better than before, and return where the descents ended."""
        found = anneal(
            self.trunk,
            self.features[todo],
            starts,
            self.box,
            self.rules,
            temperature=temperature,
            steps=steps,
            rate=rate,
            tick=tick,
        )
        self._keep(todo, found.double())
        return found

    def _keep(self, which: Tensor, found: Tensor) -> None:
        """Take over inputs with a smaller residual than before."""
        new = relative_residuals(self.trunk, self.features[which].double(), found)
        is_better = new < self.residuals[which]
        self.inputs[which[is_better]] = found[is_better]
        self.residuals[which[is_better]] = new[is_better]

    def _draw(self, count: int) -> Tensor:
        """Draw starting points near the middle of the range."""
        low, high = self._ends()
        uniform = torch.rand(count, *low.shape, generator=self.generator).to(self.features.device)
        return (low + high) / 2 + 0.02 * (high - low) * (uniform - 0.5)

    def _kick(self, todo: Tensor, inputs: Tensor) -> Tensor:
        """Change inputs at random where the residual comes from."""
        low, high = self._ends()
        noise = torch.randn(inputs.shape, generator=self.generator).to(inputs.device)
        squares = self._located(todo, inputs)
        largest = squares.flatten(1).amax(dim=1).clamp(min=torch.finfo(squares.dtype).tiny)
        where = (squares / largest.reshape(-1, *[1] * (squares.ndim - 1))).sqrt()
        return self.box.clamp(inputs + self.rules.kick * (high - low) * where * noise)

    def _located(self, todo: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            residuals = self.trunk(inputs) - self.features[todo]
        return self.locate(inputs, residuals)

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Return the range of starting points; from −1 to 1 where inputs are unbounded."""
        low, high = self.box.lowest, self.box.highest
        return torch.where(low.isfinite(), low, -1.0), torch.where(high.isfinite(), high, 1.0)


def anneal(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    starts: Float[Tensor, "example ..."],
    box: InputBox,
    rules: SearchRules,
    *,
    temperature: float,
    steps: int,
    rate: float,
    tick: Callable[[], None] = lambda: None,
) -> Float[Tensor, "example ..."]:
    """Minimise the residual by Adam while the smoothing of the trunk falls from ``temperature`` to nothing."""
    inputs = starts.clone().requires_grad_()
    width = box.width
    sizes = features.square().sum(dim=1).clamp(min=torch.finfo(features.dtype).tiny)
    mean, square = torch.zeros_like(starts), torch.zeros_like(starts)
    smooth_steps = int(steps * (1 - rules.exact_share))
    for step in range(steps):
        if step % 20 == 0:
            tick()
        if step < smooth_steps and temperature > 0:
            with Smoothed(temperature * rules.cooling ** (step / smooth_steps)):
                values = trunk(inputs)
        else:
            values = trunk(inputs)
        loss = ((values - features).square().sum(dim=1) / sizes).sum()
        gradient = torch.autograd.grad(loss, inputs)[0]
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient.square(), 0.01)
        ahead = mean / (1 - 0.9 ** (step + 1))
        size = (square / (1 - 0.99 ** (step + 1))).sqrt()
        length = rate * (1 - step / steps) + 1e-4
        with torch.no_grad():
            inputs.copy_(box.clamp(inputs - length * width * ahead / (size + 1e-12)))
    return inputs.detach()


def relative_residuals(
    trunk: Trunk, features: Float[Tensor, "example feature"], inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, " example"]:
    """Return ``‖trunk(x) − h‖ / ‖h‖`` per example."""
    with torch.no_grad():
        distance: Tensor = (trunk(inputs) - features).norm(dim=1)
    size: Tensor = features.norm(dim=1)
    return distance / size.clamp(min=torch.finfo(features.dtype).tiny)


def locate_by_probes(trunk: Trunk, temperature: float = 1.0, probes: int = 8) -> Locate:
    """Trace residuals back by products with the Jacobian, for inputs that are too large for footprints.

    With random signs ``s``, ``Jᵀ(s∘r)`` has the expected squares ``Σ_k J_ki² r_k²``. The Jacobian is that of the
    smoothed trunk, in which units that are off take part.
    """

    def locate(inputs: Tensor, residuals: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        leaf = inputs.clone().requires_grad_()
        with Smoothed(temperature):
            values = trunk(leaf)
        total = torch.zeros_like(inputs)
        for _ in range(probes):
            signs = torch.randint(0, 2, residuals.shape[1:], generator=generator).to(residuals) * 2 - 1
            total += torch.autograd.grad(values, leaf, residuals * signs, retain_graph=True)[0].square()
        return total

    return locate
