"""The max-margin attack: training inputs from the final weights of a classifier trained far past separation."""

from typing import Literal

from exhume.attacks.stationarity.final_weights import FinalWeights
from exhume.attacks.stationarity.multipliers import (
    EitherLabelMultipliers,
    MarginMultipliers,
    Multipliers,
    RivalMultipliers,
)
from exhume.clues.clues import clues_of
from exhume.clues.homogeneity import reason_for_inhomogeneity
from exhume.clues.known_loss import balanced_labels
from exhume.clues.subspace import InputSubspace
from exhume.core.errors import Refusal
from exhume.core.settings import settings
from exhume.records import AttackerView, count_outputs


@settings
class MaxMargin(FinalWeights):
    """Find inputs whose margins' gradients, with multipliers ``λ ≥ 0``, add up to the weights themselves.

    A homogeneous network trained long enough on a logistic loss or cross-entropy converges in direction to a stationary
    point of the maximal-margin problem (Lyu and Li 2020): ``θ = Σ_i λ_i ∇θ margin_i``, where ``λ_i`` is zero off the
    margin. The attack of Haim et al. (2022) minimises the residual of that equation; the margin is ``y·f`` for one
    output and ``f_y − max_{c≠y} f_c`` for several (Buzaglo et al. 2023). Labels are fixed and balanced.

    Departures from the papers: Adam instead of gradient descent with momentum; inputs are searched in the span of the
    first layer, which also determines their scale; layers that still show their random start do not count; inputs are
    located exactly where the edges of many units meet; settings are chosen without looking at training images, whereas
    the released code chooses by them. :meth:`published` returns the papers' ranges.
    """

    rivals: Literal["nearest", "all"] = "nearest"
    """Rival classes with a multiplier of their own: the nearest one of each candidate, as in the paper, or all of them.
    The same for two classes."""
    free_labels: bool = False
    """Whether each candidate has a multiplier for either label, instead of a fixed label; for networks with one output.
    """

    @classmethod
    def published(cls, **settings: object) -> "MaxMargin":
        """Return the papers' settings: all pixels free, all layers alike, twice as many candidates, their ranges."""
        return cls(
            **{
                "oversampling": 2.0,
                "within_span": False,
                "steps": 50_000,
                "upper_layers": 1.0,
                "edges": False,
                "init_std": (1e-6, 0.1),
                "floor": (0.01, 0.5),
                "sharpness": (10.0, 500.0),
                "input_rate": (1e-5, 1.0),
                "multiplier_rate": (1e-5, 1.0),
                **settings,
            }  # type: ignore[arg-type]
        )

    def check(self, view: AttackerView) -> None:
        """Refuse networks that are not homogeneous in their weights, and what every such attack refuses."""
        if clues_of(view).degree_of_homogeneity is None:
            raise Refusal(f"MaxMargin needs a homogeneous network; {reason_for_inhomogeneity(view)}. Try Stationarity.")
        if self.free_labels and count_outputs(view.model, view.input_shape) != 1:
            raise Refusal("free_labels needs a network with one output; set rivals='all' for several classes.")
        super().check(view)

    def multipliers(self, view: AttackerView, candidates: int, span: InputSubspace | None) -> Multipliers:
        """Return one multiplier per candidate, or one per candidate and rival, with balanced labels."""
        outputs = count_outputs(view.model, view.input_shape)
        if self.free_labels:
            return EitherLabelMultipliers(balanced_labels(candidates, outputs, view.device), outputs)
        family = RivalMultipliers if self.rivals == "all" and outputs > 2 else MarginMultipliers
        return family(balanced_labels(candidates, outputs, view.device), outputs)

    @property
    def natural_unit(self) -> bool:
        """True: margins fix no scale of multipliers."""
        return True
