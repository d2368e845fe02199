"""Attack small networks where nothing, or little, may be certified: count false certificates and exceptions.

Each kind of control is drawn for a weight change, a gradient, the buffer of SGD and both moments of Adam, on up to four
data sets; sizes, widths, depths and learning rates by seed. A certificate is false if no input that the network was
trained on is within 0.02 of it in every pixel; images of which inputs were mixed, or which were put into the evidence
without a training, are counted apart. Prints one row per network and a table per kind, and writes
``controls.json`` with the error bound and the true error of every certificate. Draws the one against the other as
``certified-error.png``.

    PYTHONPATH=src python benchmarks/controls.py --data-dir DIR --out DIR [--at-once 16] [--seconds 5]
        [--attack level-lattice]
    PYTHONPATH=src python benchmarks/controls.py --out DIR --figure docs/results/certified-error.png

The second command draws the figure of a finished run again.
"""

import argparse
import functools
import importlib.util
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import small_victims
import torch
from small_victims import EVIDENCE, FIRST, SOURCES, Held, attack, build_network, draw_images, run_cases, train_network
from torch import Tensor

from exhume.attacks import Attack, GateCertificate, LevelLattice

SEEDS = 20
"""Seeds per kind, evidence and data set: 2 880 controls and 320 ordinary networks."""
ATTACKS: dict[str, Attack] = {"gate-certificate": GateCertificate(), "level-lattice": LevelLattice()}
RATES = (0.003, 0.01, 0.03, 0.1)
WIDTHS = {"cifar-10": (128, 256)}
"""Numbers of units per layer by data set; (128, 256, 512) for others."""
STEPS = {"training": (50, 150, 300), "gradient": (0, 20, 100), "buffer": (20, 60, 150), "adam": (20, 60, 150)}
"""Numbers of steps by evidence; before the gradient, or until the buffer was saved."""


class Draw:
    """Everything random about one control, and an ordinary training with it."""

    def __init__(self, source: str, evidence: str, seed: int, data_dir: str | None) -> None:
        self.source, self.evidence, self.seed, self.data_dir = source, evidence, seed, data_dir
        self.random = random.Random(f"{source} {evidence} {seed}")
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))
        self.size = self.random.randint(6, 20)
        self.width = self.random.choice(WIDTHS.get(source, (128, 256, 512)))
        self.depth = self.random.choice((1, 1, 2))
        self.rate, self.steps = self.random.choice(RATES), self.random.choice(STEPS[evidence])
        self.momentum = 0.9 if evidence == "buffer" else self.random.choice((0.0, 0.9))
        self.adam = {"adam_epsilon": 1e-8, "size": self.random.choice((None, 4))} if evidence == "adam" else {}

    def images(self, size: int | None = None, other: int = 0) -> tuple[Tensor, Tensor]:
        """Return flat inputs and labels; ``other`` draws other ones."""
        inputs, labels = draw_images(self.source, size or self.size, self.seed + 1000 * other, self.data_dir)
        return inputs.flatten(1), labels

    def network(self, values: int, other: int = 0) -> torch.nn.Sequential:
        """Return a network with its initial weights."""
        return build_network(values, (self.width,) * self.depth, 10, self.seed + 1000 * other)

    def train(
        self,
        inputs: Tensor,
        labels: Tensor,
        *,
        other: int = 0,
        batches: Callable[[int], Tensor] | None = None,
        model: torch.nn.Module | None = None,
        **training: Any,
    ) -> Held:
        """Train on given inputs; ``batches`` changes what each step sees."""
        settings = {"evidence": self.evidence, "rate": self.rate, "momentum": self.momentum, "steps": self.steps}
        settings |= self.adam
        network = model or self.network(inputs.shape[1], other)
        return train_network(network, labels, batches or (lambda _: inputs), **settings | training)

    def noise(self, *shape: int) -> Tensor:
        """Draw from the normal distribution."""
        return torch.randn(*shape, generator=self.generator)


def ordinary(draw: Draw) -> Held:
    """Nothing special; not a control, but a source of true certificates."""
    return draw.train(*draw.images())


def other_data(draw: Draw) -> Held:
    """The sum of gradients of one training, with the weights of another."""
    mine, foreign = draw.train(*draw.images()), draw.train(*draw.images(other=1), other=1)
    seen = torch.cat([mine.seen, foreign.seen])
    return replace(mine, total=foreign.total, state=foreign.state, seen=seen)


def shuffled_gates(draw: Draw) -> Held:
    """A part of the units, or all of them, permuted in the sum of gradients against the weights."""
    held = draw.train(*draw.images())
    share = draw.random.choice((0.1, 0.3, 1.0))
    moved = torch.randperm(draw.width, generator=draw.generator)[: max(2, int(share * draw.width))]
    total = dict(held.total)
    for name in FIRST:
        total[name] = total[name].clone()
        total[name][moved] = held.total[name][moved.roll(1)]
    return replace(held, total=total)


def adam_as_sgd(draw: Draw) -> Held:
    """Steps that Adam rescaled per entry, passed as SGD's: a weight change, or its last step as gradient or buffer."""
    draw.width = 128  # the change has a large rank, and the search takes a minute where that is 200
    inputs, labels = draw.images()
    epsilon = draw.random.choice((1e-8, 1e-5, 1e-3, 1e-1))
    steps = max(draw.steps, 1)
    if draw.evidence == "training":
        return draw.train(inputs, labels, adam_epsilon=epsilon, steps=steps)
    held = draw.train(inputs, labels, adam_epsilon=epsilon, steps=steps, evidence="buffer")
    squares = draw.train(inputs, labels, steps=0, evidence="gradient").total  # the size of a gradient of this network
    scaled = {name: moment / (squares[name].abs() + epsilon) for name, moment in held.total.items()}
    return replace(held, total=scaled, evidence=draw.evidence)


def duplicated_inputs(draw: Draw) -> Held:
    """Some inputs twice, with the same label or another one."""
    inputs, labels = draw.images()
    doubled = torch.arange(draw.random.randint(1, len(inputs) // 2))
    same = draw.random.random() < 0.5
    again = labels[doubled] if same else (labels[doubled] + 1) % 10
    return draw.train(torch.cat([inputs, inputs[doubled]]), torch.cat([labels, again]))


def invisible_examples(draw: Draw) -> Held:
    """Examples with hardly any effect: tiny weights in the loss, or a saturated softmax."""
    inputs, labels = draw.images()
    if draw.random.random() < 0.5:
        weights = torch.ones(len(labels))
        weights[: draw.random.randint(1, len(labels) // 3)] = 10 ** -draw.random.uniform(2, 9)
        return draw.train(inputs, labels, example_weights=weights)
    model = draw.network(inputs.shape[1])
    draw.train(inputs, labels, model=model, steps=draw.random.choice((30, 100, 300)), evidence="training", rate=0.03)
    with torch.no_grad():
        model[-1].weight *= draw.random.choice((2.0, 5.0, 20.0))
    return draw.train(inputs, labels, model=model)


def augmentation(draw: Draw) -> Held:
    """Every step sees noisy, flipped, shifted or darker copies."""
    flat, labels = draw.images()
    shape = draw_images(draw.source, 1, 0, draw.data_dir)[0].shape[1:]
    way, size = draw.random.choice(("noise", "noise", "flip", "shift", "darker")), 10 ** -draw.random.uniform(1.3, 4)

    def change(_: int) -> Tensor:
        images = flat.reshape(-1, *shape)
        if way == "noise":
            return (flat + size * draw.noise(*flat.shape)).clamp(0, 1)
        if way == "darker":
            return flat * (1 - size * torch.rand(len(flat), 1, generator=draw.generator))
        is_changed = (torch.rand(len(flat), generator=draw.generator) < 0.5)[:, None]
        changed = images.flip(-1) if way == "flip" else images.roll(draw.random.choice((-1, 1)), dims=-1)
        return torch.where(is_changed, changed.flatten(1), flat)

    return replace(draw.train(flat, labels, batches=change), made_of=flat)


def near_duplicates(draw: Draw) -> Held:
    """Pairs of one class that differ by noise, or by a small part of another image; some inputs or all have a copy.

    A copy of the second kind lies between two training inputs, so it adds nothing to the rank.
    """
    inputs, labels = draw.images()
    pairs = draw.random.choice((draw.random.randint(1, len(inputs) // 2), len(inputs)))
    epsilon = 10 ** -draw.random.uniform(0.5, 2.5)
    target = draw.noise(*inputs[:pairs].shape) if draw.random.random() < 0.5 else inputs.roll(1, 0)[:pairs]
    is_noise = bool((target < 0).any())
    close = inputs[:pairs] + epsilon * (target if is_noise else target - inputs[:pairs])
    return draw.train(torch.cat([inputs, close.clamp(0, 1)]), torch.cat([labels, labels[:pairs]]))


def low_rank(draw: Draw) -> Held:
    """Fewer directions than examples: mixtures of few images, too few units, or a change cut to a lower rank."""
    way = draw.random.choice(("mixtures", "units", "cut"))
    inputs, labels = draw.images()
    if way == "mixtures":
        shares = torch.rand(draw.random.randint(2, 5), len(inputs), generator=draw.generator).pow(3)
        mixed = (shares / shares.sum(dim=0)).T @ inputs[: len(shares)]
        return replace(draw.train(mixed, labels), made_of=inputs)
    if way == "units":
        draw.width, draw.depth = draw.random.choice((16, 32, 64)), 1
        return draw.train(*draw.images(draw.random.choice((12, 24, 48))))
    held = draw.train(inputs, labels)
    joint = torch.cat([held.total[FIRST[0]], held.total[FIRST[1]][:, None]], dim=1)
    left, strengths, right = torch.linalg.svd(joint, full_matrices=False)
    kept = draw.random.randint(2, len(inputs) - 1)
    joint = (left[:, :kept] * strengths[:kept]) @ right[:kept]
    return replace(held, total=held.total | {FIRST[0]: joint[:, :-1], FIRST[1]: joint[:, -1]})


def random_matrices(draw: Draw) -> Held:
    """A random first-layer change of low rank: dense or sparse effects of noise or of images nobody trained on."""
    held = draw.train(*draw.images())
    foreign, _ = draw.images(other=1)
    inputs = foreign if draw.random.random() < 0.5 else torch.rand(foreign.shape, generator=draw.generator)
    effects = draw.noise(len(inputs), draw.width)
    if draw.random.random() < 0.5:
        effects = effects * (torch.rand(effects.shape, generator=draw.generator) < 0.5)
    joint = (effects.T @ torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)).double()
    joint *= held.total[FIRST[0]].norm() / joint.norm()
    total = held.total | {FIRST[0]: joint[:, :-1], FIRST[1]: joint[:, -1]}
    return replace(held, total=total, seen=held.seen[:0], made_of=inputs)


KINDS: dict[str, Callable[[Draw], Held]] = {
    kind.__name__: kind
    for kind in (
        ordinary,
        other_data,
        shuffled_gates,
        adam_as_sgd,
        duplicated_inputs,
        invisible_examples,
        augmentation,
        near_duplicates,
        low_rank,
        random_matrices,
    )
}


def measure(
    kind: str,
    evidence: str,
    source: str,
    seed: int,
    *,
    data_dir: str | None,
    seconds: float | None,
    by: str = "gate-certificate",
) -> dict[str, Any]:
    """Make one control and attack it."""
    held = KINDS[kind](Draw(source, evidence, seed, data_dir))
    row = attack(held.view(), held.seen, seed=seed, seconds=seconds, by=ATTACKS[by], made_of=held.made_of)
    del row["nearest"]  # thousands where inputs are augmented
    return row


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of each kind, and of all controls.

    Only where all rows are found (``complete``) is the certificate put to the test; elsewhere it certifies nothing.
    """
    groups = {kind: [row for row in rows if row["case"]["kind"] == kind] for kind in KINDS}
    groups["all controls"] = [row for row in rows if row["case"]["kind"] != "ordinary"]
    return [
        {"kind": kind}
        | small_victims.count_outcomes(group)
        | {
            "complete": sum(row["candidates"] == row["rank"] for row in group),
            "of images behind mixtures": sum(row["behind"] for row in group),
        }
        for kind, group in groups.items()
        if group
    ]


def draw_figure(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw the true error of every certified input over the bound that its certificate states."""
    from exhume.report.figures import HELD_OUT, INK, MUTED, TRAINED, create_axes, render

    figure, axes = create_axes()
    for evidence, colour in zip(EVIDENCE, (TRAINED, HELD_OUT, "#7a8b3c", "#8a5a9e"), strict=True):
        pairs = [pair for row in rows if row["case"]["evidence"] == evidence for pair in row["certificates"]]
        bounds, errors = ([max(pair[place], 1e-9) for pair in pairs] for place in (0, 1))
        axes.scatter(bounds, errors, s=4, alpha=0.5, linewidths=0, color=colour, label=f"{evidence}, {len(pairs)}")
    axes.axline((1e-4, 1e-4), slope=1, color=INK, linewidth=0.8)
    axes.axhline(small_victims.EXACT, color=MUTED, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="error bound of the certificate", ylabel="true error, largest pixel")
    axes.legend(fontsize=7, frameon=False, loc="lower right", labelcolor=INK)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(render(figure, "png"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--evidence", default=",".join(EVIDENCE))
    parser.add_argument("--sources", default=",".join(SOURCES), help="Data sets, or files such as faces.npz.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, help="time limit per network")
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    parser.add_argument("--attack", choices=ATTACKS, default="gate-certificate")
    parser.add_argument("--resume", action="store_true", help="Keep the rows of an earlier run in the same folder.")
    parser.add_argument("--figure", type=Path, help="Draw the figure of a finished run into this file.")
    options = parser.parse_args(arguments)
    if options.figure is not None:
        draw_figure(json.loads((options.out / "controls.json").read_text())["rows"], options.figure)
        return
    readable = small_victims.readable_sources(options.sources.split(","), options.data_dir)
    every = itertools.product(range(options.seeds), options.kinds.split(","), options.evidence.split(","), readable)
    cases = [{"kind": kind, "evidence": held, "source": source, "seed": seed} for seed, kind, held, source in every]
    limits = {"data_dir": options.data_dir, "seconds": options.seconds, "by": options.attack}
    rows = run_cases(
        functools.partial(measure, **limits),
        cases,
        at_once=options.at_once,
        file=options.out / "controls.jsonl",
        resume=options.resume,
    )
    small_victims.write_results(options.out / "controls.json", options.seconds, summarise(rows), rows)
    if importlib.util.find_spec("matplotlib") is not None:
        draw_figure(rows, options.out / "certified-error.png")


if __name__ == "__main__":
    main()
