"""Search the inputs of given features: annealed descent, repeated from where the residual is, then Gauss–Newton."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional

from exhume.core.run_context import OutOfTime, RunContext
from exhume.core.settings import settings
from exhume.inversion.gauss_newton import InputBox, Steps, Trunk, minimise_residuals
from exhume.inversion.smoothing import Smoothed

Share = Annotated[float, Field(gt=0, le=1)]


@settings
class SearchRules:
    """How inputs are searched. None of these numbers decides what counts as determined."""

    first_steps: PositiveInt = 160
    """Adam steps of the first descent; enough for a trunk without pooling."""
    steps: PositiveInt = 700
    """Adam steps of a later descent from scratch; slow cooling avoids most local minima."""
    reheated_steps: PositiveInt = 240
    """Adam steps of a descent that continues from an earlier result."""
    descents: PositiveInt = 25
    """Largest number of descents. With max pooling most images need two to ten."""
    patience: PositiveInt = 8
    """Number of descents that improve no image after which the search stops."""
    temperature: NonNegativeFloat = 0.5
    """First temperature of a descent from scratch, in standard deviations of what enters an activation."""
    reheated: NonNegativeFloat = 0.1
    """First temperature of a descent that continues from an earlier result."""
    cooling: Share = 1e-3
    """Last temperature, relative to the first."""
    exact_share: Share = 0.2
    """Fraction of the steps, the last ones, without smoothing."""
    learning_rate: PositiveFloat = 0.05
    """First learning rate of a descent, relative to the range of an input value."""
    kick: PositiveFloat = 0.3
    """Size of the random change where the residual is largest, relative to the range of an input value."""
    fresh_every: NonNegativeInt = 6
    """Each this many descents an unsolved image starts from scratch again; 0: never."""
    promising: PositiveFloat = 1e-2
    """Relative residual from which Gauss–Newton takes over; above it, the wrong units are on."""
    polishing_steps: PositiveInt = 12
    """Largest number of Gauss–Newton steps."""
    probes: PositiveInt = 8
    """Random signs by which the residual is traced back to input values."""


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
    inputs: Float[Tensor, "example ..."]
    """The best inputs so far, in float64."""
    residuals: Float[Tensor, " example"]
    """Their relative residuals."""

    def run(self, context: RunContext) -> None:
        """Descend until every example is solved, the number of descents is reached, or the time is spent."""
        idle = 0
        for descent in range(self.rules.descents):
            todo = (self.residuals > self.tolerance).nonzero()[:, 0]
            if len(todo) == 0 or idle >= self.rules.patience:
                return
            before = self.residuals.clone()
            solved = len(self.residuals) - len(todo)

            def tick(solved: int = solved, descent: int = descent) -> None:
                context.report("invert", solved, len(self.residuals), f"descent {descent + 1}")

            try:
                self._improve(todo, descent, tick)
            except OutOfTime as stop:  # this descent is lost, and nothing before it
                if stop.wraps_up:
                    return
                raise
            idle = 0 if bool((self.residuals < 0.9 * before).any()) else idle + 1

    def _improve(self, todo: Tensor, descent: int, tick: Callable[[], None]) -> None:
        rules, features = self.rules, self.features[todo]
        is_fresh = descent == 0 or (rules.fresh_every > 0 and descent % rules.fresh_every == 1)
        if is_fresh:
            starts, temperature = self._draw(len(todo), is_first=descent == 0), rules.temperature
        else:
            starts, temperature = self._kick(self.inputs[todo], features), rules.reheated
        rate = rules.learning_rate * (1.0 if is_fresh else 0.5)
        later = rules.steps if is_fresh else rules.reheated_steps
        steps = rules.first_steps if descent == 0 else later
        found = anneal(
            self.trunk, features, starts, self.box, rules, temperature=temperature, steps=steps, rate=rate, tick=tick
        )
        self._keep(todo, found.double())
        near = todo[self.residuals[todo] < rules.promising]
        if len(near):
            polished = minimise_residuals(
                self.trunk,
                self.features[near].double(),
                self.inputs[near],
                _in_double(self.box),
                take_step=self.take_step,
                steps=rules.polishing_steps,
                tick=tick,
            )
            self._keep(near, polished)

    def _keep(self, which: Tensor, found: Tensor) -> None:
        """Take over inputs with a smaller residual than before."""
        new = relative_residuals(self.trunk, self.features[which].double(), found)
        is_better = new < self.residuals[which]
        self.inputs[which[is_better]] = found[is_better]
        self.residuals[which[is_better]] = new[is_better]

    def _draw(self, count: int, *, is_first: bool) -> Tensor:
        """Draw starting points: near the middle of the range first, then anywhere in it."""
        low, high = self._ends()
        uniform = torch.rand(count, *low.shape, generator=self.generator).to(self.features.device)
        spread = 0.02 if is_first else 1.0
        return (low + high) / 2 + spread * (high - low) * (uniform - 0.5)

    def _kick(self, inputs: Tensor, features: Tensor) -> Tensor:
        """Change inputs at random where the residual comes from."""
        low, high = self._ends()
        noise = torch.randn(inputs.shape, generator=self.generator).to(features.device)
        where = locate_residuals(self.trunk, features, inputs.float(), self.rules.probes, self.generator)
        return self.box.clamp(inputs.float() + self.rules.kick * (high - low) * where * noise)

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
    span = torch.where((box.highest - box.lowest).isfinite(), box.highest - box.lowest, 1.0)
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
            inputs.copy_(box.clamp(inputs - length * span * ahead / (size + 1e-12)))
    return inputs.detach()


def relative_residuals(
    trunk: Trunk, features: Float[Tensor, "example feature"], inputs: Float[Tensor, "example ..."]
) -> Float[Tensor, " example"]:
    """Return ``‖trunk(x) − h‖ / ‖h‖`` per example."""
    with torch.no_grad():
        distance: Tensor = (trunk(inputs) - features).norm(dim=1)
    size: Tensor = features.norm(dim=1)
    return distance / size.clamp(min=torch.finfo(features.dtype).tiny)


def locate_residuals(
    trunk: Trunk,
    features: Float[Tensor, "example feature"],
    inputs: Float[Tensor, "example ..."],
    probes: int,
    generator: torch.Generator,
) -> Float[Tensor, "example ..."]:
    """Trace residuals back to input values: 1 at the value that affects the largest of them most, towards 0 elsewhere.

    At a local minimum the gradient ``Jᵀr`` is zero. With random signs ``s``, ``Jᵀ(s∘r)`` has the expected squares
    ``Σ_k J_ki² r_k²``.
    """
    leaf = inputs.clone().requires_grad_()
    values = trunk(leaf)
    residual = (values - features).detach()
    total = torch.zeros_like(inputs)
    for _ in range(probes):
        signs = torch.randint(0, 2, residual.shape, generator=generator).to(residual) * 2 - 1
        total += torch.autograd.grad(values, leaf, residual * signs, retain_graph=True)[0].square()
    size = total.sqrt()
    if size.ndim == 4:  # images: neighbours of a wrong pixel may be wrong as well
        size = functional.avg_pool2d(size, 5, stride=1, padding=2)
    largest = size.flatten(1).amax(dim=1).clamp(min=torch.finfo(size.dtype).tiny)
    return size / largest.reshape(-1, *[1] * (size.ndim - 1))


def _in_double(box: InputBox) -> InputBox:
    return InputBox(box.lowest.double(), box.highest.double())
