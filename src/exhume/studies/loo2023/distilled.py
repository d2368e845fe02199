"""The distilled sets that several studies measure, by the names the paper gives them (Loo et al. 2023, Table 1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from exhume.attacks.weight_difference import WeightDifference
from exhume.core.devices import resolve_device
from exhume.data import load
from exhume.distillation import KIP, RKIP, RKIPFinite, distil
from exhume.distillation.kernel import RELEASED
from exhume.evaluation.network import accuracy
from exhume.kernels import InfiniteNTK, KernelRegression
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Split
from exhume.studies.study import Bench
from exhume.training.losses import LOSSES
from exhume.training.prediction import classify
from exhume.training.trainer import train


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How much work goes into a distilled set, and into the networks that are trained on it."""

    distilled: int = 20
    width: int = 4096
    kernel: InfiniteNTK | None = RELEASED
    """To distil with; None: that of the networks that are trained afterwards."""
    steps: int = 3000
    """Of RKIP."""
    kip_steps: int = 5000
    kip_rate: float = 0.005
    finite_steps: int = 2000
    """Of the reconstruction behind RKIP-finite."""
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
        """That of the network, in the limit of infinite width."""
        return InfiniteNTK.of(self.model)

    @property
    def distilling_kernel(self) -> InfiniteNTK:
        """The kernel that distilled sets are made with, and predict with at infinite width."""
        return self.own_kernel if self.kernel is None else self.kernel


def full(data: Dataset, recipe: Recipe, bench: Bench, seed: int) -> Dataset:
    """Return the data as they are."""
    return data


def random_images(data: Dataset, recipe: Recipe, bench: Bench, seed: int) -> Dataset:
    """Return as many real examples as a distilled set has, balanced, and centred by themselves as any set is."""
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    classes = len(data.classes)
    share = [order[data.train.labels[order] == label][: -(-recipe.distilled // classes)] for label in range(classes)]
    chosen = torch.stack(share, 1).flatten()[: recipe.distilled]
    inputs, offset = data.train.inputs[chosen], data.offset
    if offset is not None:
        offset = inputs.mean(0).mean([axis for axis, size in enumerate(offset.shape) if size == 1], keepdim=True)
    return replace(data, train=Split(inputs=inputs, labels=data.train.labels[chosen]), offset=offset)


def kip(data: Dataset, recipe: Recipe, bench: Bench, seed: int) -> Dataset:
    """Return kernel inducing points."""
    method = KIP(size=recipe.distilled, kernel=recipe.distilling_kernel, steps=recipe.kip_steps,
                 learning_rate=recipe.kip_rate)  # fmt: skip
    return distil(data, method, seed=seed, device=bench.device, progress=bench.progress)


def rkip(data: Dataset, recipe: Recipe, bench: Bench, seed: int, **settings: Any) -> Dataset:
    """Return reconstruction inducing points."""
    method = RKIP(size=recipe.distilled, kernel=recipe.distilling_kernel, steps=recipe.steps, **settings)
    return distil(data, method, seed=seed, device=bench.device, progress=bench.progress)


def rkip_noise(data: Dataset, recipe: Recipe, bench: Bench, seed: int) -> Dataset:
    """Return reconstruction inducing points with some pixels fixed to noise."""
    return rkip(data, recipe, bench, seed, noise=recipe.noise, noise_std=recipe.noise_std)


def rkip_finite(data: Dataset, recipe: Recipe, bench: Bench, seed: int) -> Dataset:
    """Return what a reconstruction with too few candidates finds in one wide network."""
    method = RKIPFinite(
        size=recipe.distilled, model=recipe.model, attack=WeightDifference(balance=0.0, steps=recipe.finite_steps)
    )
    return distil(data, method, seed=seed, device=bench.device, progress=bench.progress)


Maker = Callable[[Dataset, Recipe, Bench, int], Dataset]


def with_own_kernel(make: Maker) -> Maker:
    """Make the same with the kernel of the networks that will be trained."""
    return lambda data, recipe, bench, seed: make(data, replace(recipe, kernel=None), bench, seed)


METHODS: Mapping[str, Maker] = {
    "full data": full,
    "KIP": kip,
    "RKIP": rkip,
    "RKIP 5% noise": rkip_noise,
    "RKIP-finite": rkip_finite,
    "random images": random_images,
    "KIP, own kernel": with_own_kernel(kip),
    "RKIP, own kernel": with_own_kernel(rkip),
}


def load_task(source: str, size: int, seed: int, test: int | None) -> Dataset:
    """Load a source with the paper's task for it."""
    tasks = {"cifar-10": "animal-vehicle", "digits": "odd-even", "mnist": "odd-even"}
    return load(source, classes=tasks.get(source), size=size, seed=seed, test=test)


def slug(name: str) -> str:
    """Spell a name as part of a file name.

    >>> slug("RKIP 5% noise")
    'rkip-5-noise'
    """
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in name.lower()).split())


def network_trained_on(made: Dataset, recipe: Recipe, bench: Bench, seed: int, *, lazy: bool) -> AttackerView:
    """Train a fresh network on ``made`` and return it on the study's device."""
    settings: dict[str, Any] = {} if lazy else {"steps": recipe.training_steps, "stop_loss": recipe.stop_loss}
    victim = train(
        made, model=recipe.model, linearised=lazy, seed=1000 + seed, device=bench.device, progress=bench.progress,
        **settings,
    )  # fmt: skip
    return victim.view().to(resolve_device(bench.device))


def network_accuracy(view: AttackerView, made: Dataset, test: Split) -> float:
    """Return the accuracy of a network trained on ``made`` on a test split, in per cent."""
    return 100.0 * accuracy(view, made, test)


def infinite_accuracy(made: Dataset, test: Split, kernel: InfiniteNTK, bench: Bench) -> float:
    """Return the test accuracy of kernel regression on ``made``, a network of infinite width, in per cent."""
    where = resolve_device(bench.device)
    inputs, asked = (made.to_model(x).to(where).double() for x in (made.train.inputs, test.inputs))
    targets = LOSSES["mse"].targets(made, made.train).to(where)
    machine = KernelRegression.fit(kernel, inputs, targets)
    return 100.0 * float((classify(machine(asked)).cpu() == test.labels).double().mean())
