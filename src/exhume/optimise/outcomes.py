"""Results of minimisations: where a run ended, and how its end is judged."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.records import Outcome

Variables = tuple[Tensor, ...]

MAX_RECORDED = 1000
"""Most values of the objective that a result keeps: enough for a plot, and little to save."""


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The end of one run."""

    variables: Variables
    history: Float[Tensor, " recorded"]
    """Values of the objective over the run, thinned to ``MAX_RECORDED``; the last value is always included."""
    steps: int
    value: float
    outcome: Outcome


def judge_outcome(history: Float[Tensor, " step"], scale: float, tolerance: float) -> Outcome:
    """Judge how a minimisation ended from the values of its objective.

    *Diverged*: a value is not finite. *Converged*: the last value is at most ``tolerance * scale``. Otherwise the mean
    of the last tenth of the run is compared with that of the tenth two before it. *Steps exhausted*: the mean fell by
    more than a tenth, so more steps would help. *Stalled*: it did not.

    >>> judge_outcome(torch.linspace(1.0, 0.5, 100), 1.0, 0.05).value
    'steps exhausted'
    """
    if not bool(torch.isfinite(history).all()):
        return Outcome.DIVERGED
    if float(history[-1]) <= tolerance * scale:
        return Outcome.CONVERGED
    tenth = max(1, len(history) // 10)
    late, earlier = history[-tenth:].mean(), history[-3 * tenth :][:tenth].mean()
    return Outcome.STEPS_EXHAUSTED if float(late) < 0.9 * float(earlier) else Outcome.STALLED


def thin_history(history: Float[Tensor, " step"], most: int = MAX_RECORDED) -> Float[Tensor, " recorded"]:
    """Return at most ``most`` values of a history, evenly spaced, the last one included.

    >>> thin_history(torch.arange(10.0), 4)
    tensor([0., 3., 6., 9.])
    """
    if len(history) <= most:
        return history.clone()
    return history[torch.linspace(0, len(history) - 1, most, device=history.device).round().long()]
