"""Attack small convolutional networks where little may be certified: count false certificates and exceptions.

Each kind of control is drawn for one gradient (at the start or after steps of Adam) and for a head trained by SGD above
frozen convolutions, on up to three data sets; trunks, sizes, widths and numbers of steps by seed. A certificate is
false if no input that the network was trained on is within 0.02 of it in every pixel, or of its features, where the
images behind them are not determined. Prints one row per network and a
table per kind, and writes ``deep-controls.json``.

    PYTHONPATH=src python benchmarks/deep_controls.py --data-dir DIR --out DIR [--at-once 16] [--seconds 20]
"""

import argparse
import functools
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import small_victims
import torch
from deep import Residual, train, weights_of
from small_victims import attack, draw_images, run_cases
from torch import Tensor, nn
from torch.nn import functional

from exhume.records import AttackerView

SEEDS = 12
SOURCES = ("digits", "mnist", "cifar-10")
SHRINK = {"digits": 1, "mnist": 2, "cifar-10": 2}
"""Factor by which images are averaged, so that a network takes seconds."""
EVIDENCE = ("gradient", "head")


def strided(channels: int) -> list[nn.Module]:
    """Two convolutions, the second with a stride."""
    return [nn.Conv2d(channels, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU()]


def pooled(channels: int) -> list[nn.Module]:
    """Convolutions with max pooling between them."""
    below = [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return [*below, nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]


def residual(channels: int) -> list[nn.Module]:
    """A residual block with batch normalisation, in evaluation mode."""
    return [nn.Conv2d(channels, 12, 3, padding=1), nn.ReLU(), Residual(12), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU()]


def linear(channels: int) -> list[nn.Module]:
    """A convolution without an activation: every mixture of images has the mixture of their features."""
    return [nn.Conv2d(channels, 16, 3, 1, 1)]


def nearly_linear(channels: int) -> list[nn.Module]:
    """A convolution whose units are nearly all on, because of their biases."""
    layer = nn.Conv2d(channels, 12, 3, padding=1)
    nn.init.constant_(layer.bias, 1.0)
    return [layer, nn.ReLU()]


TRUNKS = {trunk.__name__: trunk for trunk in (strided, strided, pooled, residual, linear, nearly_linear)}


class Draw:
    """Everything random about one control."""

    def __init__(self, source: str, evidence: str, seed: int, data_dir: str | None) -> None:
        self.source, self.evidence, self.seed, self.data_dir = source, evidence, seed, data_dir
        self.random = random.Random(f"{source} {evidence} {seed}")
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))
        self.size, self.width = self.random.randint(5, 16), self.random.choice((128, 256, 512))
        self.trunk = self.random.choice(sorted(TRUNKS))
        self.steps = self.random.choice((0, 20, 100) if evidence == "gradient" else (30, 100, 300))

    def images(self, size: int | None = None, other: int = 0) -> tuple[Tensor, Tensor]:
        """Return images and labels; ``other`` draws other ones."""
        inputs, labels = draw_images(self.source, size or self.size, self.seed + 1000 * other, self.data_dir)
        return functional.avg_pool2d(inputs, SHRINK[self.source]), labels

    def observe(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        weights: Tensor | None = None,
        seen: Tensor | None = None,
        change: Callable[[Tensor], Tensor] = lambda inputs: inputs,
    ) -> tuple[AttackerView, Tensor]:
        """Train a network and return what an attacker holds, and the inputs that it was trained on, flat.

        ``weights`` are those of the examples in the loss; ``change`` changes what every step of a head sees.
        """
        model = self.network(images)
        every = [images if seen is None else seen]
        held: dict[str, Any] = {}
        if self.evidence == "gradient":
            train(model, torch.optim.Adam(model.parameters(), 1e-3), images, labels, self.steps)
            model.eval()
            gradient = self.gradient(model, images, labels, weights)
            held["gradient"] = dict(zip((name for name, _ in model.named_parameters()), gradient, strict=True))
        else:
            held["initial"] = weights_of(model)
            head = nn.Sequential(model.hidden, model.relu, model.out)
            optimiser = torch.optim.SGD(head.parameters(), 0.05)
            for _ in range(self.steps):
                changed = change(images)
                every.append(changed)
                train(head, optimiser, model.trunk(changed).detach(), labels, 1)
        view = AttackerView(
            model=model, final=weights_of(model), input_shape=tuple(images.shape[1:]), bounds=(0.0, 1.0), **held
        )
        return view, torch.cat(every).flatten(1).unique(dim=0)

    def network(self, images: Tensor) -> nn.Sequential:
        """Return a network with its initial weights, in evaluation mode."""
        torch.manual_seed(self.seed)
        trunk = nn.Sequential(*TRUNKS[self.trunk](images.shape[1]), nn.Flatten())
        size = trunk(images[:1]).shape[1]
        parts = OrderedDict(trunk=trunk, hidden=nn.Linear(size, self.width), relu=nn.ReLU())
        return nn.Sequential(parts | {"out": nn.Linear(self.width, 10)}).eval()

    def gradient(self, model: nn.Module, images: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, ...]:
        """Return the gradient of a mean cross-entropy with weights."""
        losses = functional.cross_entropy(model(images), labels, reduction="none")
        loss = losses.mean() if weights is None else (losses * weights).mean()
        return torch.autograd.grad(loss, list(model.parameters()))

    def uniform(self, *shape: int) -> Tensor:
        """Draw between 0 and 1."""
        return torch.rand(*shape, generator=self.generator)


def ordinary(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Nothing special; not a control, but a source of true certificates."""
    return draw.observe(*draw.images())


def patches(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Images composed of two parts, mostly such that no feature sees both: one of four combinations is missing.

    Its features are then sums and differences of those of the other three.
    """
    images, labels = draw.images(8)
    upper, lower = images.clone(), images.clone()
    height, gap = images.shape[2], 4 if draw.trunk == "strided" else 8
    edge = max(2, (height - gap) // 2)
    upper[:, :, edge:], lower[:, :, : height - edge] = 0, 0
    contrast = draw.random.choice((0.3, 0.5, 1.0))
    upper, lower = (part[:1] + contrast * (part - part[:1]) for part in (upper, lower))
    pairs = [(0, 0), (1, 0), (0, 1), (2, 2), (3, 2), (2, 3), (4, 4), (5, 5)]
    composed = torch.stack([upper[one] + lower[two] for one, two in pairs])
    return draw.observe(composed, labels[: len(pairs)])


def near_duplicates(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Copies that differ by noise or by a part of another image."""
    images, labels = draw.images()
    pairs, size = draw.random.randint(1, len(images) // 2), 10 ** -draw.random.uniform(0.5, 2.5)
    to = draw.uniform(*images[:pairs].shape) if draw.random.random() < 0.5 else images.roll(1, 0)[:pairs]
    close = (images[:pairs] + size * (to - images[:pairs])).clamp(0, 1)
    return draw.observe(torch.cat([images, close]), torch.cat([labels, labels[:pairs]]))


def mixtures(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Inputs are mixtures of few images; these are the inputs, and the images behind them are not."""
    images, labels = draw.images()
    shares = draw.uniform(draw.random.randint(2, 5), len(images)).pow(3)
    flat = (shares / shares.sum(dim=0)).T @ images[: len(shares)].flatten(1)
    return draw.observe(flat.reshape(images.shape), labels)


def hidden_examples(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Some examples of a gradient have hardly any weight; a head sees some of them in its first steps only."""
    images, labels = draw.images()
    count = draw.random.randint(1, len(images) // 3)
    weights = torch.ones(len(images))
    weights[:count] = 10 ** -draw.random.uniform(2, 8)
    calls = itertools.count()
    early = draw.random.randint(1, 3)

    def change(inputs: Tensor) -> Tensor:
        if next(calls) < early:
            return inputs
        return torch.cat([inputs[count : 2 * count], inputs[count:]])

    return draw.observe(images, labels, weights=weights, change=change)


def augmentation(draw: Draw) -> tuple[AttackerView, Tensor]:
    """Every step of a head sees noisy, shifted or darker copies; a gradient is of such copies."""
    images, labels = draw.images()
    way, size = draw.random.choice(("noise", "shift", "darker")), 10 ** -draw.random.uniform(1.3, 4)

    def change(inputs: Tensor) -> Tensor:
        if way == "noise":
            return (inputs + size * (draw.uniform(*inputs.shape) - 0.5)).clamp(0, 1)
        if way == "darker":
            return inputs * (1 - size * draw.uniform(len(inputs), 1, 1, 1))
        is_moved = (draw.uniform(len(inputs)) < 0.5)[:, None, None, None]
        return torch.where(is_moved, inputs.roll(1, dims=-1), inputs)

    if draw.evidence == "gradient":
        images = torch.cat([images, change(images)])
        labels = torch.cat([labels, labels])
    return draw.observe(images, labels, change=change)


def other_data(draw: Draw) -> tuple[AttackerView, Tensor]:
    """The evidence of one training with the weights of another."""
    mine, seen = draw.observe(*draw.images())
    draw.seed += 500
    other, foreign = draw.observe(*draw.images(other=1))
    held: dict[str, Any] = {"final": mine.final, "gradient": other.gradient, "initial": mine.initial}
    if draw.evidence == "head":
        assert mine.initial is not None
        assert other.initial is not None
        head = {name for name in mine.final if not name.startswith("trunk")}
        held["final"] = {
            name: value + (other.final[name] - other.initial[name]) * (name in head)
            for name, value in mine.initial.items()
        }
    view = AttackerView(model=mine.model, input_shape=mine.input_shape, bounds=(0.0, 1.0), **held)
    return view, torch.cat([seen, foreign])


KINDS: dict[str, Callable[[Draw], tuple[AttackerView, Tensor]]] = {
    kind.__name__: kind
    for kind in (ordinary, patches, near_duplicates, mixtures, hidden_examples, augmentation, other_data)
}


def measure(kind: str, evidence: str, source: str, seed: int, *, data_dir: str | None, seconds: float | None) -> Any:
    """Make one control and attack it."""
    draw = Draw(source, evidence, seed, data_dir)
    view, seen = KINDS[kind](draw)
    with torch.no_grad():
        features = view.module(view.final).trunk(seen.reshape(-1, *view.input_shape))
    row = attack(view, seen, seed=seed, seconds=seconds, features=features)
    del row["nearest"]
    return row | {"trunk": draw.trunk, "steps": draw.steps, "size": draw.size, "width": draw.width}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of each kind and evidence, and of all controls."""
    groups = {
        f"{kind}, {held}": [row for row in rows if (row["case"]["kind"], row["case"]["evidence"]) == (kind, held)]
        for kind in KINDS
        for held in EVIDENCE
    }
    groups["all controls"] = [row for row in rows if row["case"]["kind"] != "ordinary"]
    return [{"kind": kind} | small_victims.count_outcomes(group) for kind, group in groups.items() if group]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="time limit per network")
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    parser.add_argument("--resume", action="store_true", help="Keep the rows of an earlier run in the same folder.")
    options = parser.parse_args(arguments)
    readable = small_victims.readable_sources(options.sources.split(","), options.data_dir)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    every = itertools.product(seeds, options.kinds.split(","), options.evidence.split(","), readable)
    cases = [{"kind": kind, "evidence": held, "source": source, "seed": seed} for seed, kind, held, source in every]
    rows = run_cases(
        functools.partial(measure, data_dir=options.data_dir, seconds=options.seconds),
        cases,
        at_once=options.at_once,
        file=options.out / "deep-controls.jsonl",
        resume=options.resume,
    )
    small_victims.write_results(options.out / "deep-controls.json", options.seconds, summarise(rows), rows)


if __name__ == "__main__":
    main()
