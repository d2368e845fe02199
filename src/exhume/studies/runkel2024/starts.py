"""What a start is worth: both attacks that repeat a training, from every start, on networks whose data are known."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.bilevel.bilevel import Bilevel, Match
from exhume.attacks.bilevel.hypergradients import Implicit, Inputs, LowerLevel, TrainingProblem
from exhume.attacks.bilevel.starts import Images, Mixture, Noise, Start, another_partition, ground_truth
from exhume.clues.known_loss import balanced_labels
from exhume.core.devices import resolve_device
from exhume.core.storage import add_prefix, select_prefix
from exhume.data import load
from exhume.evaluation.consensus import are_true, nearest_squares
from exhume.evaluation.distances import UnitScale
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, PublicTraining
from exhume.studies.buzaglo2023.max_margin import shrunk
from exhume.studies.loo2023.distilled import slug
from exhume.studies.study import Bench
from exhume.training import train

AttackName = Literal["bilevel", "stationarity"]
ATTACKS: tuple[AttackName, ...] = ("bilevel", "stationarity")
PARTITION = "another partition"
SHOWN = 8
"""Pictures of each reconstruction that are kept for the figure."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, how it was trained, and how long it is attacked."""

    label: str
    depth: int
    width: int = 32
    size: int = 100
    weight_decay: float = 0.1
    lr: float = 0.005
    train_steps: int = 3000
    steps: int = 120
    learning_rate: float = 0.01
    lower_steps: int = 20
    newton_steps: int = 12
    iterations: int = 250
    precision: Literal["float32", "float64"] = "float64"


@dataclass(frozen=True, kw_only=True)
class Starts:
    """Which networks to attack from which starts, and over how many seeds."""

    networks: tuple[Network, ...]
    source: str = "cifar-10"
    shrink: int = 2
    """The side of the square of pixels that are averaged into one."""
    strangers: int = 400
    seeds: int = 3
    shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Of ground truth in noise; none of it is the start of somebody who knows nothing."""
    partition_shares: tuple[float, ...] = (0.0,)
    """Of ground truth in another partition's images; none of it is the start of somebody who has images of the kind."""
    points: int = 21
    """On every line of the energy landscape."""
    rest_steps: int = 400
    """Of descent from the released weights, after which the distance of a network that is not convex is taken."""


def count_cells(settings: Starts) -> int:
    """Return how many cells the measurement has."""
    starts = len(settings.shares) + len(settings.partition_shares)
    return len(settings.networks) * settings.seeds * (1 + len(ATTACKS) * (starts + 1))


def measure_starts(settings: Starts, bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Attack every network from every start; return the rows, and the landscapes between what was found."""
    rows, landscapes = [], []
    for network in settings.networks:
        for seed in range(bench.seed, bench.seed + settings.seeds):
            data = drawn(settings, network, seed)
            place = f"starts/{slug(network.label)}-{seed}"
            victim = bench.cell(f"{place}/victim", functools.partial(trained, network, data, bench, seed))
            view = view_of(network, data, victim).to(resolve_device(bench.device))
            for attack in ATTACKS:
                own: list[dict[str, Any]] = []
                for name, start in starts(settings, data).items():
                    work = functools.partial(attacked, settings, network, attack, start, data, view, bench, seed)
                    cell = bench.cell(f"{place}/{attack}-{slug(name)}", work)
                    own.append({"network": network.label, "attack": attack, "start": name, "seed": seed} | cell)
                rows += own
                wrong = next(row for row in own if row["start"] == PARTITION)
                walk = functools.partial(walked, settings, network, attack, data, view, wrong["found"])
                landscapes.append(
                    {"network": network.label, "attack": attack, "seed": seed}
                    | bench.cell(f"{place}/{attack}-landscape", walk)
                )
    return rows, landscapes


def drawn(settings: Starts, network: Network, seed: int) -> Dataset:
    """Draw the training set, and strangers of which some are the other partition."""
    few = load(settings.source, classes="all", size=network.size, test=0, seed=seed)
    many = load(settings.source, classes="all", size=max(network.size, settings.strangers), test=0, seed=seed)
    data = replace(few, train=shrunk(few.train, settings.shrink), holdout=shrunk(many.holdout, settings.shrink))
    inputs = data.train.inputs
    return replace(data, offset=inputs.mean(dim=(0, 2, 3)).reshape(-1, 1, 1))


def trained(network: Network, data: Dataset, bench: Bench, seed: int) -> dict[str, Any]:
    """Train by descent to rest, with the trainer everybody uses, and keep the weights."""
    victim = train(
        data,
        model=MLP(depth=network.depth, width=network.width),
        loss="ce",
        weight_decay=network.weight_decay,
        lr=network.lr,
        momentum=0.99,
        steps=network.train_steps,
        stop_loss=0.0,
        patience=0,
        precision="float64",
        device=bench.device,
        seed=seed,
        progress=bench.progress,
    )
    return {"loss": victim.result["loss"], "accuracy": victim.result["accuracy"]} | add_prefix("final", victim.final)


def view_of(network: Network, data: Dataset, cell: Mapping[str, Any]) -> AttackerView:
    """Return what the attacker holds: final weights, the loss and the weight decay."""
    architecture = MLP(depth=network.depth, width=network.width)
    return AttackerView(
        model=architecture.build(data.input_shape, len(data.classes)),
        final=select_prefix({name: value for name, value in cell.items() if isinstance(value, Tensor)}, "final"),
        input_shape=data.input_shape,
        bounds=data.bounds,
        offset=data.offset,
        training=PublicTraining(loss="ce", weight_decay=network.weight_decay),
        architecture=architecture,
    )


def starts(settings: Starts, data: Dataset) -> dict[str, Start]:
    """Return every start by name."""
    truth, other = ground_truth(data), another_partition(data)
    named: dict[str, Start] = {
        f"{share:.0%} truth in noise": Mixture(first=truth, second=Noise(), share=share) for share in settings.shares
    }
    for share in settings.partition_shares:
        name = PARTITION if share == 0 else f"{share:.0%} truth in {PARTITION}"
        named[name] = Mixture(first=truth, second=other, share=share)
    return named


def attack_of(network: Network, attack: AttackName, start: Start) -> Bilevel:
    """Return one of the two attacks; they differ in what the lower level does and in nothing else."""
    return Bilevel(
        candidates=network.size,
        start=start,
        lower="auto" if attack == "bilevel" else "stationary",
        lower_steps=network.lower_steps,
        newton_steps=network.newton_steps,
        iterations=network.iterations,
        steps=network.steps,
        learning_rate=network.learning_rate,
        precision=network.precision,
    )


def attacked(
    settings: Starts,
    network: Network,
    attack: AttackName,
    start: Start,
    data: Dataset,
    view: AttackerView,
    bench: Bench,
    seed: int,
) -> dict[str, Any]:
    """Attack from one start and measure how near the result is to weights, training data, strangers and its start."""
    used = attack_of(network, attack, start)
    found = used.run(view, seed=seed, device=bench.device, progress=bench.progress)
    labels = balanced_labels(network.size, len(data.classes), torch.device("cpu"))
    begun = start.draw(view, labels, torch.Generator().manual_seed(seed))
    scale = UnitScale.of(data)
    problem = used.problem(view, labels)
    return {
        "objective": found.diagnostics["parameter_distance"],
        "parameter_distance": rest_distance(view, problem, found.inputs, settings.rest_steps),
        "parameter_distance_of_start": rest_distance(view, problem, begun, settings.rest_steps),
        "to_train": float(nearest_squares(found.inputs, data.train, scale).sqrt().mean()),
        "to_stranger": float(nearest_squares(found.inputs, data.holdout, scale).sqrt().mean()),
        "to_start": float((scale(found.inputs) - scale(begun)).flatten(1).square().mean(1).sqrt().mean()),
        "start_to_train": float(nearest_squares(begun, data.train, scale).sqrt().mean()),
        "true": float(are_true(found.inputs, data).double().mean()),
        "outcome": found.outcome.value,
        "attack_seconds": found.seconds,
        "found": found.inputs,
    } | ({} if seed != bench.seed else {"begun": begun[:SHOWN], "originals": _originals(data, view, labels)})


def _originals(data: Dataset, view: AttackerView, labels: Tensor) -> Tensor:
    """Return the training images that the first candidates stand for."""
    return ground_truth(data).draw(view, labels, torch.Generator())[:SHOWN]


def rest_distance(
    view: AttackerView, problem: TrainingProblem, pixels: Float[Tensor, "candidate ..."], steps: int
) -> float:
    """Return how far a training on these images, begun at the released weights, comes to rest from them.

    Both attacks are measured by it, whatever they minimise themselves.
    """
    inputs, target = flat(view, problem, pixels), problem.flat(view.final)
    lower: LowerLevel = Implicit()
    if not is_affine(problem):
        lower = Bilevel(candidates=1, lower="unrolled", lower_steps=steps).lower_level(view, problem, inputs)
    with torch.no_grad():
        return Match(problem=problem, lower=lower, origin=target, target=target, unit=target.norm()).distance(inputs)


def is_affine(problem: TrainingProblem) -> bool:
    """Tell whether the network is one layer, so that its training has one place of rest."""
    return sum(len(shape) == 2 for shape in problem.shapes.values()) == 1


def flat(view: AttackerView, problem: TrainingProblem, pixels: Float[Tensor, "candidate ..."]) -> Inputs:
    """Return images as the training problem takes them."""
    return view.to_model(pixels.to(next(problem.model.parameters()))).flatten(1)


def walked(
    settings: Starts,
    network: Network,
    attack: AttackName,
    data: Dataset,
    view: AttackerView,
    found: Float[Tensor, "candidate ..."],
) -> dict[str, Any]:
    """Walk straight lines between training set, other partition and the reconstruction from it; note the energy."""
    labels = balanced_labels(network.size, len(data.classes), torch.device("cpu"))
    nobody = torch.Generator().manual_seed(0)
    corners: dict[str, Tensor] = {
        "training set": ground_truth(data).draw(view, labels, nobody),
        PARTITION: another_partition(data).draw(view, labels, nobody),
        "reconstruction": Images(inputs=found).draw(view, labels, nobody),
    }
    used = attack_of(network, attack, Noise())
    problem = used.problem(view, labels)
    target = problem.flat(view.final)
    # One step length for all of a landscape, or its points could not be compared.
    lower = used.lower_level(view, problem, flat(view, problem, corners["training set"]))
    match = Match(problem=problem, lower=lower, origin=target, target=target, unit=target.norm())
    along = torch.linspace(0, 1, settings.points)
    energies: dict[str, Any] = {}
    for begin, end in (("training set", PARTITION), ("training set", "reconstruction"), (PARTITION, "reconstruction")):
        with torch.no_grad():
            line = [
                match.distance(flat(view, problem, torch.lerp(corners[begin], corners[end], float(place)))) ** 2
                for place in along
            ]
        energies[f"{begin} to {end}"] = line
    to_partition = energies[f"training set to {PARTITION}"]
    return {
        "energies": energies,
        "half_rise": half_rise(to_partition),
        "wells": wells(to_partition),
        "wells_to_reconstruction": wells(energies["training set to reconstruction"]),
    }


def half_rise(energies: Sequence[float]) -> float:
    """Return which part of a line is walked before the energy has risen by half of all it rises by.

    The energy of a parabola is half-way up at ``√½`` of the line; of a narrow well much earlier.

    >>> round(half_rise([(i / 100) ** 2 for i in range(101)]), 2)
    0.71
    """
    low, high = energies[0], max(energies)
    middle = (low + high) / 2
    for place, (before, after) in enumerate(itertools.pairwise(energies)):
        if after >= middle > before:
            return (place + (middle - before) / (after - before)) / (len(energies) - 1)
    return 1.0


def wells(energies: Sequence[float]) -> int:
    """Count local minima inside a line.

    >>> wells([0.0, 2.0, 1.0, 3.0])
    1
    """
    inner = zip(energies, energies[1:], energies[2:], strict=False)
    return sum(before > here * (1 + 1e-9) and here * (1 + 1e-9) < after for before, here, after in inner)
