"""Distilled sets under the names of Loo et al. (2023), Table 1, and the networks trained on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from exhume.attacks.weight_difference import WeightDifference
from exhume.core.devices import resolve_device
from exhume.distillation import KIP, RKIP, RKIPFinite, distil
from exhume.distillation.kip import RELEASED_KERNEL
from exhume.kernels import InfiniteNTK
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset
from exhume.studies.study import StudyRun


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How much work goes into a distilled set, and into the networks trained on it."""

    distilled: int = 20
    """Number of distilled images."""
    width: int = 4096
    kernel: InfiniteNTK | None = RELEASED_KERNEL
    """Kernel to distil with; None: that of the networks trained afterwards."""
    steps: int = 3000
    """Number of steps of RKIP."""
    kip_steps: int = 5000
    kip_rate: float = 0.005
    finite_steps: int = 2000
    """Number of steps of the reconstruction in RKIP-finite."""
    noise: float = 0.05
    noise_std: float | None = 1.0
    training_steps: int = 4000
    stop_loss: float = 1e-5

    @property
    def model(self) -> MLP:
        """The network of the paper: two hidden layers."""
        return MLP(width=self.width, depth=2)

    @property
    def own_kernel(self) -> InfiniteNTK:
        """The kernel of the network in the limit of infinite width."""
        return InfiniteNTK.of(self.model)

    @property
    def distilling_kernel(self) -> InfiniteNTK:
        """The kernel that sets are distilled with, and that predicts at infinite width."""
        return self.own_kernel if self.kernel is None else self.kernel


SMALL = Recipe(distilled=4, width=64, steps=20, kip_steps=20, kip_rate=0.02, finite_steps=10, training_steps=50)
LAPTOP = Recipe(width=512, steps=1200, kip_steps=2000, finite_steps=500, training_steps=2000)
QUICK_GPU = Recipe(steps=1500, kip_steps=2500, finite_steps=1000, training_steps=2000)
FULL = Recipe(
    steps=50_000, kip_steps=50_000, kip_rate=0.001, finite_steps=80_000, training_steps=1_000_000, stop_loss=1e-10
)
"""Section S5 of the paper: Adam at 0.001 for every distillation, trainings of a million steps or to a loss of 1e-10."""


def keep_all(data: Dataset, recipe: Recipe, run: StudyRun, seed: int) -> Dataset:
    """Return the data unchanged."""
    return data


def choose_random_images(data: Dataset, recipe: Recipe, run: StudyRun, seed: int) -> Dataset:
    """Return as many real examples as a distilled set has, balanced by class and centred by their own mean."""
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    classes = len(data.classes)
    share = [order[data.train.labels[order] == label][: -(-recipe.distilled // classes)] for label in range(classes)]
    chosen = torch.stack(share, 1).flatten()[: recipe.distilled]
    images, offset = data.train.take(chosen), data.offset
    if offset is not None:
        offset = images.inputs.mean(0).mean([axis for axis, size in enumerate(offset.shape) if size == 1], keepdim=True)
    return replace(data, train=images, offset=offset)


def distil_kip(data: Dataset, recipe: Recipe, run: StudyRun, seed: int) -> Dataset:
    """Return kernel inducing points."""
    method = KIP(size=recipe.distilled, kernel=recipe.distilling_kernel, steps=recipe.kip_steps,
                 learning_rate=recipe.kip_rate)  # fmt: skip
    return distil(data, method, seed=seed, device=run.device, progress=run.progress)


def distil_rkip(data: Dataset, recipe: Recipe, run: StudyRun, seed: int, **settings: Any) -> Dataset:
    """Return reconstruction inducing points."""
    method = RKIP(size=recipe.distilled, kernel=recipe.distilling_kernel, steps=recipe.steps, **settings)
    return distil(data, method, seed=seed, device=run.device, progress=run.progress)


def distil_rkip_with_noise(data: Dataset, recipe: Recipe, run: StudyRun, seed: int) -> Dataset:
    """Return reconstruction inducing points with some pixels fixed to noise."""
    return distil_rkip(data, recipe, run, seed, noise=recipe.noise, noise_std=recipe.noise_std)


def distil_rkip_finite(data: Dataset, recipe: Recipe, run: StudyRun, seed: int) -> Dataset:
    """Return the result of a reconstruction with too few candidates from one wide network."""
    method = RKIPFinite(
        size=recipe.distilled, model=recipe.model, attack=WeightDifference(balance=0.0, steps=recipe.finite_steps)
    )
    return distil(data, method, seed=seed, device=run.device, progress=run.progress)


Method = Callable[[Dataset, Recipe, StudyRun, int], Dataset]


def _with_own_kernel(method: Method) -> Method:
    """Return the same method with the kernel of the networks trained afterwards."""
    return lambda data, recipe, run, seed: method(data, replace(recipe, kernel=None), run, seed)


METHODS: Mapping[str, Method] = {
    "full data": keep_all,
    "KIP": distil_kip,
    "RKIP": distil_rkip,
    "RKIP 5% noise": distil_rkip_with_noise,
    "RKIP-finite": distil_rkip_finite,
    "random images": choose_random_images,
    "KIP, own kernel": _with_own_kernel(distil_kip),
    "RKIP, own kernel": _with_own_kernel(distil_rkip),
}
DISTILLED = ("KIP", "RKIP", "RKIP 5% noise", "RKIP-finite")
"""The methods of Figures 7 and 8."""


def train_network(data: Dataset, recipe: Recipe, run: StudyRun, seed: int, *, linearised: bool) -> AttackerView:
    """Train a fresh network and return its view on the device of the run."""
    limits: dict[str, Any] = {} if linearised else {"steps": recipe.training_steps, "stop_loss": recipe.stop_loss}
    victim = run.train(data, model=recipe.model, linearised=linearised, seed=1000 + seed, **limits)
    return victim.view().to(resolve_device(run.device))
