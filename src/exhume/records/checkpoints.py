"""What a training checkpoint gives an attacker: the weights, and the optimiser's memory of the last gradients."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from exhume.core.errors import WeightsError
from exhume.core.text import count_noun
from exhume.core.training_checkpoints import TrainingCheckpoint, read_training_checkpoint
from exhume.core.weight_files import check_plain
from exhume.records.optimiser_state import OptimiserState, read_torch_state
from exhume.records.weights import Weights, weight_shapes


@dataclass(frozen=True, kw_only=True)
class CheckpointContent:
    """The content of a checkpoint by the names of a model."""

    weights: Weights
    optimiser_state: OptimiserState | None
    sentence: str
    """What the file holds, in words."""


def read_checkpoint(path: Path | str, model: nn.Module) -> CheckpointContent:
    """Read a training checkpoint of ``model``: a PyTorch file, a Lightning checkpoint, or a folder of Hugging Face.

    Raises:
        WeightsError: with one sentence, where the file is missing, damaged, foreign, or would execute code.
    """
    raw = read_training_checkpoint(path, weight_shapes(model).keys())
    state, reason = _read_states(Path(path), raw, model)
    total = sum(1 for _ in model.parameters())
    if state is not None:
        owner = f"{state.optimiser}'s" if state.optimiser else "an optimiser's"
        found = f"{owner} first moment for {len(state.first_moment)} of {count_noun(total, 'parameter')}"
        steps = "" if state.steps is None else f" after {count_noun(state.steps, 'step')}"
        sentence = f"This {raw.layout} holds the weights and {found}{steps}."
    else:
        sentence = f"This {raw.layout} holds the weights and no sum of gradients: {reason}"
    return CheckpointContent(weights=_fill_shared(raw.weights, model), optimiser_state=state, sentence=sentence)


def _read_states(path: Path, raw: TrainingCheckpoint, model: nn.Module) -> tuple[OptimiserState | None, str]:
    """Return the state that covers most parameters, or None and the reason why there is none."""
    states, reasons = [], []
    for content in raw.optimisers:
        try:
            state = read_torch_state(content, model)
            for which, moments in (("first", state.first_moment), ("second", state.second_moment)):
                for name, moment in moments.items():
                    check_plain(path, f"the {which} moment of {name}", moment)
        except WeightsError as error:
            reasons.append(str(error))
        else:
            states.append(state)
    if states:
        return max(states, key=lambda state: len(state.first_moment)), ""
    return None, reasons[0] if reasons else "it has no optimiser's state."


def _fill_shared(weights: dict[str, Tensor], model: nn.Module) -> Weights:
    """Add the weights that a file leaves out because the model shares them with others under another name."""
    every = dict(model.named_parameters(remove_duplicate=False))
    missing = [name for name in every if name not in weights]
    twins = {
        name: weights[other] for name in missing for other in every if other in weights and every[other] is every[name]
    }
    return weights | twins
