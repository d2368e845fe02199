"""What changes of the weights before release cost and save, measured on the audited network itself."""

from collections.abc import Callable

import torch

from exhume.attacks.attack import Attack
from exhume.auditing.budget import Budget
from exhume.core.errors import Refusal
from exhume.core.progress import Progress, no_progress
from exhume.core.run_context import OutOfTime
from exhume.evaluation import evaluate
from exhume.evaluation.network import UNLABELLED
from exhume.records import AttackerView, Dataset, Evaluation, Price
from exhume.records.audit import STATE_DROPPED
from exhume.training.prediction import accuracy
from exhume.training.release import add_relative_noise, drop_optimiser_state, quantise_weights, round_weights

Change = Callable[[AttackerView, torch.Generator], AttackerView]
STOPPED = "The attack was stopped when its share of the budget was spent, so what it would find is not known."
AS_TRAINED = "as trained"
"""The name of no change, which the others are compared with."""

CHANGES: dict[str, Change] = {
    AS_TRAINED: lambda view, _: view,
    "rounded to float16": lambda view, _: round_weights(view, torch.float16),
    "rounded to bfloat16": lambda view, _: round_weights(view, torch.bfloat16),
    "rounded to 8 bits per tensor": lambda view, _: quantise_weights(view),
    "noise of 0.1% of the weights": lambda view, generator: add_relative_noise(view, 1e-3, generator),
    "noise of 1% of the weights": lambda view, generator: add_relative_noise(view, 1e-2, generator),
}


def choose_changes(view: AttackerView) -> dict[str, Change]:
    """Return the changes that make sense for what the attacker holds, by name."""
    dropped: dict[str, Change] = {STATE_DROPPED: lambda view, _: drop_optimiser_state(view)}
    return CHANGES if view.optimiser_state is None else {AS_TRAINED: CHANGES[AS_TRAINED]} | dropped | CHANGES


def price_defences(
    view: AttackerView,
    data: Dataset | None,
    attack: Attack,
    *,
    as_trained: Evaluation | None = None,
    budget: float | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> tuple[Price, ...]:
    """Attack the network again after each change that its owner could make before release.

    An attack that finds less after a change does not prove safety: another attack may need less than this one.

    Args:
        view: what the attacker holds of the network as it was trained.
        data: the examples to measure recoveries and accuracy with; None: only proofs are counted.
        attack: the attack to repeat.
        as_trained: what the attack found without any change, where it has run already.
        budget: minutes for all changes together, shared evenly among those that remain; where it stops an attack,
            nothing is known of the change. None: no limit.
        seed: fixes every random choice.
        device: ``auto`` takes a GPU when there is one.
        progress: a progress callback.
    """
    generator = torch.Generator().manual_seed(seed)
    remaining = Budget.start(budget)
    prices = []
    changes = choose_changes(view)
    for number, (words, change) in enumerate(changes.items()):
        progress("price", number, len(changes), words)
        seconds = remaining.seconds_left() / (len(changes) - number)
        known = as_trained if words == AS_TRAINED else None
        prices.append(_price(change(view, generator), data, attack, words, seed, device, seconds, known))
    progress("price", len(changes), len(changes))
    return tuple(prices)


def _price(
    view: AttackerView,
    data: Dataset | None,
    attack: Attack,
    words: str,
    seed: int,
    device: str | torch.device,
    seconds: float,
    known: Evaluation | None,
) -> Price:
    unseen = None if data is None else data.holdout if data.test is None else data.test
    is_classified = data is not None and data.classes != UNLABELLED
    right = accuracy(view, unseen) if is_classified and unseen is not None and len(unseen) else None
    try:
        evaluation = known if known is not None else _attack_again(view, data, attack, seed, device, seconds)
    except OutOfTime:
        return Price(change=words, certified=None, accuracy=right, note=STOPPED)
    except Refusal as reason:
        return Price(change=words, certified=0, recovered=None if data is None else 0, accuracy=right, note=str(reason))
    good = None if evaluation.train is None else evaluation.train.good
    return Price(change=words, certified=evaluation.certified, recovered=good, accuracy=right)


def _attack_again(
    view: AttackerView, data: Dataset | None, attack: Attack, seed: int, device: str | torch.device, seconds: float
) -> Evaluation:
    if seconds <= 0:
        raise OutOfTime(STOPPED)
    return evaluate(attack.run(view, seed=seed, device=device, seconds=seconds), data, victim=view)
