"""Training inputs from the final weights of a classifier trained far past separation."""

from dataclasses import dataclass

import torch

from exhume.attacks.stationarity.final_weights import FinalWeights
from exhume.attacks.stationarity.multipliers import MarginMultipliers, Multipliers
from exhume.clues.known_loss import balanced_labels
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.models.structure import dense_stack
from exhume.records import AttackerView, count_outputs

PROBES = 8


@dataclass(frozen=True, kw_only=True)
class MaxMargin(FinalWeights):
    """Find inputs whose margins' gradients, with multipliers ``λ ≥ 0``, add up to the weights themselves.

    A homogeneous network trained long enough on a logistic loss or cross-entropy points towards a stationary point of
    the maximal-margin problem (Lyu and Li 2020): ``θ = Σ_i λ_i ∇θ margin_i``, where ``λ_i`` is zero off the margin. The
    attack of Haim et al. (2022) minimises what candidates leave of that equation; the margin is ``y·f`` of one output
    and ``f_y − max_{c≠y} f_c`` of several (Buzaglo et al. 2023). Labels are fixed and balanced.

    Departures from the papers: Adam instead of gradient descent with momentum; inputs are searched in the span that the
    first layer gives away, which also settles their scale; layers that still show their random start do not count;
    inputs are read off exactly where the edges of many units meet; settings are chosen without a look at training
    images, where the released codes choose by one. :meth:`published` has the papers' ranges.
    """

    @classmethod
    def published(cls, **settings: object) -> "MaxMargin":
        """Return the papers' settings: all pixels free, every layer alike, twice as many candidates, their ranges."""
        return cls(
            **{
                "oversampling": 2.0,
                "within_span": False,
                "steps": 50_000,
                "upper_layers": 1.0,
                "edges": False,
                "spread": (1e-6, 0.1),
                "floor": (0.01, 0.5),
                "sharpness": (10.0, 500.0),
                "input_rate": (1e-5, 1.0),
                "multiplier_rate": (1e-5, 1.0),
                **settings,
            }  # type: ignore[arg-type]
        )

    def check(self, view: AttackerView) -> None:
        """Refuse networks that are not homogeneous in their weights, besides what every such attack refuses."""
        degree = homogeneity(view)
        if degree is None:
            raise Refusal(f"MaxMargin needs a homogeneous network; {_culprit(view)}. Try Stationarity.")
        super().check(view)

    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return one multiplier a candidate, under balanced labels."""
        outputs = count_outputs(view.model, view.input_shape)
        return MarginMultipliers(balanced_labels(candidates, outputs, view.device))

    @property
    def natural_unit(self) -> bool:
        """Multipliers are counted in the size they should have."""
        return True


def homogeneity(view: AttackerView) -> int | None:
    """Return the ``L`` of ``f(cθ; x) = c^L·f(θ; x)`` for ``c > 0``, by trying; None where there is none."""
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(PROBES, *view.input_shape, generator=generator, dtype=torch.float64).to(view.device)
    said = []
    for factor in (1.0, 2.0, 4.0):
        weights = {
            name: factor * weight.double() if weight.is_floating_point() else weight
            for name, weight in view.final.items()
        }
        with torch.no_grad():
            said.append(view.module(weights)(probes).flatten())
    plain, double, fourfold = said
    size = plain.norm()
    if not bool(size > 0):
        return None
    degree = torch.log2(double.norm() / size)
    whole = int(degree.round())
    fits = all(
        torch.allclose(grown, factor**whole * plain, rtol=1e-6, atol=1e-9 * factor**whole * float(size))
        for grown, factor in ((double, 2.0), (fourfold, 4.0))
    )
    return whole if fits and whole > 0 else None


def _culprit(view: AttackerView) -> str:
    """Say what keeps a network from being homogeneous, as far as its structure tells."""
    stack = dense_stack(view.model)
    if stack is None:
        return "this one has biases above its first layer, a normalisation, or an activation that bends"
    if stack.activation not in ("relu", "leakyrelu", "identity", None):
        return f"its activation {stack.activation} bends"
    biased = [layer.weight.rpartition(".")[0] for layer in stack.layers[1:] if layer.bias is not None]
    return f"layer {biased[0]!r} has a bias" if biased else "its outputs do not scale with its weights"
