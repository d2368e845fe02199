"""Match an embedding in rounds: descend, then move redundant candidates to where an input is missing."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from exhume.attacks.infinite_width.embedding import JITTER, Embedding
from exhume.attacks.infinite_width.missing import find_missing_input
from exhume.core.checkpoint import Checkpoint
from exhume.core.progress import Progress, no_progress, part_of
from exhume.core.settings import settings
from exhume.core.suppression import suppress_neighbours
from exhume.kernels import add_jitter
from exhume.optimise import Adam, Minimum, Variables, minimise
from exhume.records import Outcome

SAME_PLACE = 0.999
"""Cosine of kernel features above which two candidates are in the same place."""
IDLE = 1e-10
"""Squared norm of a candidate's term, relative to the largest, below which the candidate contributes nothing."""
LITTLE_MISSING = 1e-3
"""Missing fraction of the explained norm below which a round starts with a reduced learning rate."""
REDUCED_RATE = 0.1
"""Factor of the learning rate when little is missing, so that candidates in their places stay there."""
FINER_RATES = (1e-2, 1e-4, 1e-6)
"""Learning rates of the later descents of a round, relative to the first.

The kernel has a kink where inputs coincide, so a candidate off by ``ε`` leaves about ``ε`` unexplained, not ``ε²``. An
input with a small contribution is found only once the others are in their places to many digits.
"""


@settings
class Rounds:
    """Settings of a search in rounds."""

    rounds: PositiveInt = 16
    steps: PositiveInt = 200
    """Steps of the first descent per round; each finer descent has a quarter."""
    learning_rate: PositiveFloat = 0.05
    starts: PositiveInt = 24
    """Starting points of a search for a missing input."""
    climbing_steps: PositiveInt = 150
    """Steps of a search for a missing input."""
    floor: NonNegativeFloat = 1e-8
    """Missing fraction of the explained norm at which the search ends."""

    @property
    def descents(self) -> tuple[tuple[float, int], ...]:
        """Relative learning rate and steps of each descent of a round."""
        return (1.0, self.steps), *((rate, max(1, self.steps // 4)) for rate in FINER_RATES)


def match_embedding(
    problem: Embedding,
    start: Variables,
    rounds: Rounds,
    *,
    generator: torch.Generator,
    progress: Progress = no_progress,
    checkpoint: Checkpoint | None = None,
) -> Minimum:
    """Minimise the distance of embeddings, and return the best end of all rounds.

    A descent leaves some candidates on the same image and others far from any image, and neither kind can leave by
    itself. So each round starts from the best end so far, with these candidates moved to where most is missing.

    Args:
        problem: the problem to solve.
        start: free inputs and duals in their unit.
        rounds: the settings of the search.
        generator: draws the starting points of searches for missing inputs.
        progress: a callback for progress reports.
        checkpoint: identifies the files of work under way; each descent has its own.
    """
    best: Minimum | None = None
    variables, missing = start, 1.0
    for number in range(rounds.rounds):
        rate = rounds.learning_rate * (1.0 if missing > LITTLE_MISSING else REDUCED_RATE)
        end = _descend(problem, variables, rounds, number, rate, best, progress, checkpoint)
        if best is None or end.value < best.value or not math.isfinite(best.value):
            best = end
        if end.outcome is Outcome.DIVERGED or number + 1 == rounds.rounds:
            break
        moved = relocate_candidates(problem, best.variables, rounds, generator)
        if moved is None:
            break
        variables, missing = moved
    if checkpoint is not None:
        for number in range(rounds.rounds * len(rounds.descents)):
            _checkpoint_of_descent(checkpoint, number).path.unlink(missing_ok=True)
    assert best is not None
    return best


def _descend(
    problem: Embedding,
    variables: Variables,
    rounds: Rounds,
    number: int,
    first_rate: float,
    best: Minimum | None,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Minimum:
    """Run the descents of one round, each followed by a closed-form fit of the duals."""
    length = sum(steps for _, steps in rounds.descents)
    scale = abs(best.value) if best is not None and best.value else 1.0
    steps_before = number * length
    for place, (rate, steps) in enumerate(rounds.descents):
        end = minimise(
            problem.objective,
            variables,
            Adam(steps=steps, learning_rates=(first_rate * rate,) * 2),
            scale=scale,
            progress=part_of(progress, steps_before, rounds.rounds * length),
            stage="search",
            checkpoint=None
            if checkpoint is None
            else _checkpoint_of_descent(checkpoint, number * len(rounds.descents) + place),
        )
        if end.outcome is Outcome.DIVERGED:
            break
        end = refit_duals(problem, end)
        variables, steps_before = end.variables, steps_before + steps
    return end


def refit_duals(problem: Embedding, end: Minimum) -> Minimum:
    """Replace the duals of a descent, which carry Adam's noise, by the best ones where these are better."""
    free = end.variables[0]
    variables = free, problem.best_duals(free)
    value = float(problem.objective(variables, torch.zeros(()))[0])
    return replace(end, variables=variables, value=value) if value < end.value else end


def _checkpoint_of_descent(whole: Checkpoint, number: int) -> Checkpoint:
    path = whole.path.with_name(f"{whole.path.stem}-{number + 1}{whole.path.suffix}")
    return Checkpoint(path, f"{whole.identity}-{number}", whole.kind)


def relocate_candidates(
    problem: Embedding, variables: Variables, rounds: Rounds, generator: torch.Generator
) -> tuple[Variables, float] | None:
    """Move redundant candidates, or else the few least useful ones, to where most is missing.

    A candidate is redundant when it shares its place with another or contributes nothing. Leaving out any other
    candidate costs ``α²/(K⁻¹)_jj``.

    Returns:
        The new variables, and the missing norm relative to the explained norm; None where nothing is missing.
    """
    free, raw = variables
    count = len(free)
    gram = problem.kernel(problem.inputs(free).double())
    kept = _select_distinct(gram, (problem.dual_unit * raw).double())
    explained = -float(problem.objective(variables, torch.zeros(()))[0])

    def find(present: Tensor) -> tuple[Tensor, float]:
        place, found = find_missing_input(
            problem, present, starts=rounds.starts, steps=rounds.climbing_steps, generator=generator
        )
        return place, found / explained if explained > 0 else math.inf

    place, missing = find(free[kept])
    if len(kept) == count:
        if missing <= rounds.floor:
            return None
        cost = raw.double().square().sum(1) / torch.linalg.inv(add_jitter(gram, JITTER)).diagonal()
        few = 1 + int(torch.randint(min(3, count), (1,), generator=generator))
        kept = cost.argsort(descending=True)[: max(1, count - few)].tolist()
        place, _ = find(free[kept])
    places = torch.cat([free[kept], place])
    while len(places) < count:
        places = torch.cat([places, find(places)[0]])
    return (places[:count], problem.best_duals(places[:count])), missing


def _select_distinct(gram: Float[Tensor, "candidate candidate"], duals: Float[Tensor, "candidate output"]) -> list[int]:
    """Return the candidates that contribute, one per place, the largest contribution first."""
    lengths = gram.diagonal().sqrt()
    cosines = gram / (lengths[:, None] * lengths)
    contribution = duals.square().sum(1) * gram.diagonal()
    used = max(1, int((contribution >= IDLE * contribution.max()).sum()))
    order = contribution.argsort(descending=True)[:used]
    return [kept for kept, _ in suppress_neighbours(order, lambda one: cosines[one] > SAME_PLACE)]
