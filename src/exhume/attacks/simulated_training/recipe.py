"""The recipe of a training, as an attacker repeats it: with fewer and longer steps where there were many."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from exhume.core.errors import Refusal
from exhume.hypergradients import AdamRule, MomentumRule, Rule, Unrolled
from exhume.records import PublicTraining

Optimiser = Literal["sgd", "adam", "adamw"]
BETAS = (0.9, 0.999)
"""Decay rates of Adam where the view states none: PyTorch's defaults."""
STATISTICS_DECAY = 0.9
"""Part of the running statistics that one step of a training keeps: PyTorch's default."""
DOUBLINGS = 30
"""Most doublings or halvings on the way to a fitted rate."""
BISECTIONS = 8
"""Halvings of the interval of a fitted rate; 2^(1/256) is the relative error after them."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The steps of a simulated training."""

    lower: Unrolled
    weight_decay: float
    """Weight decay that is part of the gradient."""
    is_repeated: bool
    """Whether the recipe is repeated step by step; otherwise the length of its steps is fitted."""
    assumptions: tuple[str, ...]
    """What the attack takes for granted and the view does not state, in sentences."""


def plan_recipe(
    training: PublicTraining,
    *,
    candidates: int,
    simulated_steps: int,
    optimiser: Optimiser | None = None,
    follows_statistics: bool = False,
) -> Recipe:
    """Return the steps that simulate a training.

    A training of no more than ``simulated_steps`` with a stated learning rate is repeated step by step. A longer one is
    simulated in ``simulated_steps`` that cover the same time: with ``k`` real steps per simulated one, the momentum is
    ``β^k`` and a step is ``k·(1 − β^k)/(1 − β)`` times as long (for Adam ``k`` times).

    Raises:
        Refusal: when the optimiser is none of SGD, Adam and AdamW.
    """
    assumptions = []
    name = optimiser or _read_optimiser(training.optimiser)
    if optimiser is None and training.optimiser is None:
        assumptions.append("The optimiser is taken to be SGD.")
    steps = count_steps(training, candidates)
    ratio = max(1.0, steps / simulated_steps) if steps else 1.0
    if training.batch_size is not None and training.batch_size < candidates:
        assumptions.append(
            f"The order of mini-batches of {training.batch_size} is unknown, so a simulated step sees all candidates."
        )
    if ratio > 1:
        assumptions.append(f"{steps} steps are simulated in {simulated_steps}, whose length is fitted.")
    elif steps is None or training.lr is None:
        missing = "the learning rate" if training.lr is None else "the number of steps"
        assumptions.append(f"The view does not state {missing}, so the length of the simulated steps is fitted.")
    decay = float(training.weight_decay or 0.0)
    rule, rate = _choose_rule(name, training, ratio, decay)
    return Recipe(
        lower=Unrolled(
            steps=min(steps or simulated_steps, simulated_steps),
            rate=rate,
            rule=rule,
            statistics_decay=STATISTICS_DECAY**ratio if follows_statistics else None,
        ),
        weight_decay=0.0 if name == "adamw" else decay,
        is_repeated=ratio == 1 and steps is not None and training.lr is not None,
        assumptions=tuple(assumptions),
    )


def count_steps(training: PublicTraining, examples: int) -> int | None:
    """Return the number of steps of a training on so many examples; None where the view does not state it."""
    if training.steps is not None:
        return max(1, round(training.steps))
    if training.epochs is None:
        return None
    return max(1, round(training.epochs * math.ceil(examples / (training.batch_size or examples))))


def fit_rate(measure: Callable[[float], float], wanted: float, guess: float) -> float:
    """Return the rate at which a simulated training changes the weights as much as the real one did.

    Args:
        measure: the norm of the simulated change at a rate; not finite where the training diverges.
        wanted: the norm of the real change.
        guess: the rate to begin at.

    >>> round(fit_rate(lambda rate: 3 * rate, 6.0, 0.1), 2)
    2.0
    """

    def is_too_long(rate: float) -> bool:
        norm = measure(rate)
        return not math.isfinite(norm) or norm > wanted

    low = high = guess
    for _ in range(DOUBLINGS):
        if is_too_long(high):
            break
        low, high = high, 2 * high
    else:
        return low
    for _ in range(DOUBLINGS):
        if low < high and not is_too_long(low):
            break
        low /= 2
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_too_long(middle) else (middle, high)
    return low


def _read_optimiser(stated: str | None) -> Optimiser:
    name = (stated or "sgd").lower()
    for known in get_args(Optimiser):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise Refusal(
        f"SimulatedTraining repeats SGD, Adam and AdamW, and the network was trained with {stated}; "
        "set optimiser to the nearest of them."
    )


def _choose_rule(name: Optimiser, training: PublicTraining, ratio: float, decay: float) -> tuple[Rule, float]:
    """Return the rule of a simulated step that stands for ``ratio`` real steps, and its rate."""
    lr = float(training.lr or 0.0) or 1e-2  # a guess, from which the fit begins
    if name == "sgd":
        momentum = min(float(training.momentum or 0.0), 1 - 1e-6)
        lasting = momentum**ratio
        return MomentumRule(momentum=lasting), lr * ratio * (1 - lasting) / (1 - momentum)
    mean = BETAS[0] if training.momentum is None else float(training.momentum)
    return (
        AdamRule(
            mean_decay=mean**ratio, square_decay=BETAS[1] ** ratio, decoupled_decay=decay if name == "adamw" else 0.0
        ),
        lr * ratio,
    )
