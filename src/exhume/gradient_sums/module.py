"""Gradient sums of any module, through ``torch.func``."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.gradient_sums.interface import Duals, GradientSums, Inputs, Pullback, Sharpness, Sums
from exhume.gradient_sums.smooth_relu import SmoothReLU, with_smooth_relus
from exhume.models.tangent import compute_outputs, split_weights
from exhume.records import AttackerView, Weights


@dataclass(frozen=True)
class ModuleSums(GradientSums):
    """Gradient sums of any module: general, and slower than :class:`~exhume.gradient_sums.dense.DenseSums`."""

    names: tuple[str, ...]
    models: tuple[nn.Module, ...]
    """One per point, with its weights and buffers, and smooth ReLUs where they could be placed."""
    input_shape: tuple[int, ...]

    @classmethod
    def at(
        cls,
        view: AttackerView,
        points: Sequence[Weights],
        dtype: torch.dtype,
        relu: type[SmoothReLU] = SmoothReLU,
    ) -> "ModuleSums":
        """Build one model per point, with ``relu`` in place of its ReLUs."""
        models = tuple(with_smooth_relus(view.module(weights), relu).to(dtype) for weights in points)
        return cls(tuple(name for name, _ in models[0].named_parameters()), models, view.input_shape)

    def __call__(self, inputs: Inputs, duals: Duals, sharpness: Sharpness = None) -> tuple[Sums, Pullback]:
        """Return one sum per parameter (and run), and the pullback to flat ``inputs`` and to ``duals``."""

        def sum_of_run(inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> Sums:
            shaped = inputs.reshape(len(inputs), *self.input_shape)
            each = [_module_sum(model, shaped, dual, sharpness) for model, dual in zip(self.models, duals, strict=True)]
            return tuple(torch.stack([one[name] for one in each]).sum(0) for name in self.names)

        def sums(inputs: Tensor, duals: Tensor) -> Sums:
            if inputs.ndim == 2:
                return sum_of_run(inputs, duals, sharpness)
            is_own = sharpness is not None and sharpness.ndim > 0
            of_runs: Sums = torch.func.vmap(sum_of_run, (0, 1, 0 if is_own else None))(inputs, duals, sharpness)
            return of_runs

        result, pullback = torch.func.vjp(sums, inputs, duals)[:2]
        return result, pullback

    def outputs(self, inputs: Inputs) -> Duals:
        """Return the outputs of the network at every point, with exact ReLUs."""
        shaped = inputs.reshape(-1, *self.input_shape)
        outputs = torch.stack([compute_outputs(model, dict(model.state_dict()), shaped) for model in self.models])
        return outputs.reshape(len(outputs), *inputs.shape[:-1], -1)


def _module_sum(model: nn.Module, inputs: Tensor, duals: Tensor, sharpness: Sharpness) -> dict[str, Tensor]:
    parameters, buffers = split_weights(model, dict(model.state_dict()))
    if sharpness is not None:
        buffers |= {name: sharpness for name in buffers if name.rpartition(".")[2] == "sharpness"}

    def weighted_output(weights: dict[str, Tensor]) -> Tensor:
        return (compute_outputs(model, {**weights, **buffers}, inputs) * duals).sum()

    gradients: dict[str, Tensor] = torch.func.grad(weighted_output)(parameters)
    return gradients
