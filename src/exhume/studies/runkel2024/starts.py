"""What a starting point is worth: two attacks that repeat a training, from several starting points."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.bilevel.bilevel import Bilevel, Match
from exhume.attacks.bilevel.starts import Images, Mixture, Noise, Start, another_partition, ground_truth
from exhume.clues.known_loss import balanced_labels
from exhume.core.devices import resolve_device
from exhume.core.storage import add_prefix, select_prefix
from exhume.evaluation.consensus import are_true, nearest_squares
from exhume.evaluation.distances import UnitScale
from exhume.hypergradients import Implicit, Inputs, LowerLevel, TrainingProblem
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, PublicTraining
from exhume.studies.study import StudyRun, slug
from exhume.studies.tasks import draw

AttackName = Literal["bilevel", "stationarity"]
ATTACKS: tuple[AttackName, ...] = ("bilevel", "stationarity")
PARTITION = "another partition"
SHOWN = 8
"""Number of images per reconstruction that are kept for the figure."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, its training, and the effort of the attack."""

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
    """Which networks to attack from which starting points, with how many seeds."""

    networks: tuple[Network, ...]
    source: str = "cifar-10"
    shrink: int = 2
    """Side of the square of pixels that are averaged into one; 1: none."""
    strangers: int = 400
    """Number of held-out examples."""
    seeds: int = 3
    shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Shares of ground truth in noise; 0 is the starting point of an attacker who knows nothing."""
    partition_shares: tuple[float, ...] = (0.0,)
    """Shares of ground truth in images of another partition; 0 is the starting point of an attacker who has similar
    images."""
    points: int = 21
    """Number of points on every line of the energy landscape."""
    rest_steps: int = 400
    """Number of descent steps from the released weights before the distance is taken, for non-convex networks."""


def count_start_cells(settings: Starts) -> int:
    """Return the number of cells of the measurement."""
    starts = len(settings.shares) + len(settings.partition_shares)
    return len(settings.networks) * settings.seeds * (1 + len(ATTACKS) * (starts + 1))


def measure_starts(settings: Starts, run: StudyRun) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Attack every network from every starting point; return the rows and the energy landscapes."""
    rows, landscapes = [], []
    for network in settings.networks:
        for seed in range(run.seed, run.seed + settings.seeds):
            data = draw_data(settings, network, seed)
            place = f"starts/{slug(network.label)}-{seed}"
            victim = run.cell(f"{place}/victim", functools.partial(train_network, network, data, run, seed))
            view = make_view(network, data, victim).to(resolve_device(run.device))
            for attack in ATTACKS:
                own: list[dict[str, Any]] = []
                for name, start in make_starts(settings, data).items():
                    work = functools.partial(attack_from, settings, network, attack, start, data, view, run, seed)
                    cell = run.cell(f"{place}/{attack}-{slug(name)}", work)
                    own.append({"network": network.label, "attack": attack, "start": name, "seed": seed} | cell)
                rows += own
                wrong = next(row for row in own if row["start"] == PARTITION)
                walk = functools.partial(measure_landscape, settings, network, attack, data, view, wrong["found"])
                landscapes.append(
                    {"network": network.label, "attack": attack, "seed": seed}
                    | run.cell(f"{place}/{attack}-landscape", walk)
                )
    return rows, landscapes


def draw_data(settings: Starts, network: Network, seed: int) -> Dataset:
    """Draw the training set and a hold-out set, part of which is the other partition."""
    return draw(
        settings.source, "all", size=network.size, held_out=settings.strangers, seed=seed, shrink=settings.shrink
    )


def train_network(network: Network, data: Dataset, run: StudyRun, seed: int) -> dict[str, Any]:
    """Train by gradient descent until it comes to rest, and return the weights."""
    victim = run.train(
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
        seed=seed,
    )
    return {"loss": victim.result["loss"], "accuracy": victim.result["accuracy"]} | add_prefix("final", victim.final)


def make_view(network: Network, data: Dataset, cell: Mapping[str, Any]) -> AttackerView:
    """Return the view of the attacker: final weights, the loss and the weight decay."""
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


def make_starts(settings: Starts, data: Dataset) -> dict[str, Start]:
    """Return every starting point by name."""
    truth, other = ground_truth(data), another_partition(data)
    named: dict[str, Start] = {
        f"{share:.0%} truth in noise": Mixture(first=truth, second=Noise(), share=share) for share in settings.shares
    }
    for share in settings.partition_shares:
        name = PARTITION if share == 0 else f"{share:.0%} truth in {PARTITION}"
        named[name] = Mixture(first=truth, second=other, share=share)
    return named


def build_attack(network: Network, attack: AttackName, start: Start) -> Bilevel:
    """Return one of the two attacks; they differ only in their lower level."""
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


def attack_from(
    settings: Starts,
    network: Network,
    attack: AttackName,
    start: Start,
    data: Dataset,
    view: AttackerView,
    run: StudyRun,
    seed: int,
) -> dict[str, Any]:
    """Attack from one starting point and measure the distances of the result.

    Distances are to the weights, the training images, held-out images and the starting point.
    """
    used = build_attack(network, attack, start)
    found = run.attack(used, view, seed=seed)
    labels = balanced_labels(network.size, len(data.classes), torch.device("cpu"))
    begun = start.draw(view, labels, torch.Generator().manual_seed(seed))
    scale = UnitScale.of(data)
    problem = used.problem(view, labels)
    originals = ground_truth(data).draw(view, labels, torch.Generator())
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
    } | ({} if seed != run.seed else {"begun": begun[:SHOWN], "originals": originals[:SHOWN]})


def rest_distance(
    view: AttackerView, problem: TrainingProblem, pixels: Float[Tensor, "candidate ..."], steps: int
) -> float:
    """Return the distance between the released weights and the rest point of a training on these images.

    The training starts at the released weights. Both attacks are measured by this, whatever they minimise.
    """
    inputs, target = to_inputs(view, problem, pixels), problem.flat(view.final)
    lower: LowerLevel = Implicit()
    if not is_affine(problem):
        lower = Bilevel(candidates=1, lower="unrolled", lower_steps=steps).lower_level(view, problem, inputs)
    with torch.no_grad():
        return Match(problem=problem, lower=lower, origin=target, target=target, unit=target.norm()).distance(inputs)


def is_affine(problem: TrainingProblem) -> bool:
    """Return whether the network is one layer, so that its training has a unique minimum."""
    return sum(len(shape) == 2 for shape in problem.shapes.values()) == 1


def to_inputs(view: AttackerView, problem: TrainingProblem, pixels: Float[Tensor, "candidate ..."]) -> Inputs:
    """Return images as inputs of the training problem."""
    return view.to_model(pixels.to(next(problem.model.parameters()))).flatten(1)


def measure_landscape(
    settings: Starts,
    network: Network,
    attack: AttackName,
    data: Dataset,
    view: AttackerView,
    found: Float[Tensor, "candidate ..."],
) -> dict[str, Any]:
    """Measure the energy on straight lines between training set, other partition and the reconstruction from it."""
    labels = balanced_labels(network.size, len(data.classes), torch.device("cpu"))
    unused = torch.Generator().manual_seed(0)
    corners: dict[str, Tensor] = {
        "training set": ground_truth(data).draw(view, labels, unused),
        PARTITION: another_partition(data).draw(view, labels, unused),
        "reconstruction": Images(inputs=found).draw(view, labels, unused),
    }
    used = build_attack(network, attack, Noise())
    problem = used.problem(view, labels)
    target = problem.flat(view.final)
    # One step length for the whole landscape, so that its points can be compared.
    lower = used.lower_level(view, problem, to_inputs(view, problem, corners["training set"]))
    match = Match(problem=problem, lower=lower, origin=target, target=target, unit=target.norm())
    along = torch.linspace(0, 1, settings.points)
    energies: dict[str, Any] = {}
    for begin, end in (("training set", PARTITION), ("training set", "reconstruction"), (PARTITION, "reconstruction")):
        with torch.no_grad():
            line = [
                match.distance(to_inputs(view, problem, torch.lerp(corners[begin], corners[end], float(place)))) ** 2
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
    """Return the position on a line, from 0 to 1, where the energy has risen by half of its total rise.

    A parabola is half-way up at ``√½`` of the line, a narrow well much earlier.

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
