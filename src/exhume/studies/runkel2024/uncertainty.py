"""What starting points are worth, and when an attacker can separate true from plausible reconstructions.

Repeats the findings of "Training Data Reconstruction: Privacy due to Uncertainty?" (arXiv 2412.08544) with numbers, and
answers its question. If the initial weights are known, a certificate separates what restarts cannot. If not, a belief
learnt on networks of one's own gives calibrated probabilities.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exhume.studies.metrics import mean_and_std
from exhume.studies.runkel2024 import figures
from exhume.studies.runkel2024.starts import ATTACKS, PARTITION, Network, Starts, count_start_cells, measure_starts
from exhume.studies.runkel2024.verdicts import Task, Verdicts, count_verdict_cells, measure_verdicts
from exhume.studies.study import Study, StudyResult, StudyRun, without_tensors

MEASURES = ("parameter_distance", "parameter_distance_of_start", "to_train", "to_stranger", "to_start", "true")

DRAWN = ("points", "false_positive_rates", "true_positive_rates")
"""Keys that only figures need, too long for ``result.json``."""


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """Settings of both halves of the study."""

    starts: Starts
    verdicts: Verdicts


def measure(settings: Uncertainty, run: StudyRun) -> StudyResult:
    """Measure what starting points are worth, then how well an attacker can judge."""
    run.cells = count_start_cells(settings.starts) + count_verdict_cells(settings.verdicts)
    rows, landscapes = measure_starts(settings.starts, run)
    judged = measure_verdicts(settings.verdicts, run)
    networks = [network.label for network in settings.starts.networks]
    means = average_over_seeds(rows)
    numbers = {
        "starts": means,
        "start_rows": [without_tensors(row) for row in rows],
        "landscapes": [without_tensors(landscape) for landscape in landscapes],
        "claims": check_claims(means, landscapes, networks),
        "proofs": {source: _without(found, DRAWN) for source, found in judged["proofs"].items()},
        "beliefs": [_without(found, DRAWN) for found in judged["beliefs"]],
    }
    return StudyResult(
        numbers=numbers,
        figures={
            "starts": figures.starts_figure(rows, networks),
            "pictures": figures.pictures_figure(rows, networks, run.seed),
            "landscape": figures.landscape_figure(landscapes, networks, run.seed),
            "certificate": figures.certificate_figure(judged["proofs"]),
            "roc": figures.roc_figure(judged["proofs"]),
            "reliability": figures.reliability_figure(judged["beliefs"]),
        },
        table=(("network", "attack", "start", *MEASURES[:1], *MEASURES[2:]), _table(means)),
        summary=_summary(numbers),
    )


def average_over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and deviation over seeds of every measure, for each network, attack and starting point."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["network"], row["attack"], row["start"]), []).append(row)
    return [
        {"network": network, "attack": attack, "start": start, "seeds": len(own)}
        | {name: mean_and_std([row[name] for row in own]) for name in MEASURES}
        for (network, attack, start), own in groups.items()
    ]


def check_claims(
    means: Sequence[Mapping[str, Any]], landscapes: Sequence[Mapping[str, Any]], networks: Sequence[str]
) -> list[dict[str, Any]]:
    """Check the three findings of the paper for every network and attack."""
    found = []
    for network in networks:
        for attack in ATTACKS:
            own = [row for row in means if row["network"] == network and row["attack"] == attack]
            wrong = next(row for row in own if row["start"] == PARTITION)
            mixtures = [row["to_train"]["mean"] for row in own if row["start"].endswith("in noise")]
            flat = [one for one in landscapes if one["network"] == network and one["attack"] == attack]
            found.append(
                {
                    "network": network,
                    "attack": attack,
                    "partition_parameter_distance": wrong["parameter_distance"]["mean"],
                    "partition_distance_fell_by": wrong["parameter_distance_of_start"]["mean"]
                    / max(wrong["parameter_distance"]["mean"], 1e-30),
                    "stays_nearer_to_its_start": wrong["to_start"]["mean"] < wrong["to_train"]["mean"],
                    "stays_nearer_to_strangers": wrong["to_stranger"]["mean"] < wrong["to_train"]["mean"],
                    "mixtures_are_monotone": all(a >= b for a, b in itertools.pairwise(mixtures)),
                    "half_rise": [one["half_rise"] for one in flat],
                    "wells": [one["wells"] + one["wells_to_reconstruction"] for one in flat],
                }
            )
    return found


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the values without some keys, at any depth."""
    return {
        key: _without(value, names) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in names
    }


def _table(means: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            row["network"],
            row["attack"],
            row["start"],
            *(f"{row[name]['mean']:.3g} ± {row[name]['std']:.1g}" for name in (*MEASURES[:1], *MEASURES[2:])),
        )
        for row in means
    ]


def _summary(numbers: Mapping[str, Any]) -> str:
    nearer = [one for one in numbers["claims"] if one["stays_nearer_to_its_start"]]
    monotone = sum(one["mixtures_are_monotone"] for one in numbers["claims"])
    areas = [
        f"{source}: {found['agreement']['auc']:.3f} by agreement, {found['certificate']['auc']:.3f} by certificate"
        for source, found in numbers["proofs"].items()
        if found["agreement"] is not None
    ]
    bins = sum(len(found["bins"]) for found in numbers["beliefs"])
    holding = sum(found["holding"] for found in numbers["beliefs"])
    return (
        f"Started from another partition, {len(nearer)} of {len(numbers['claims'])} reconstructions stay nearer to "
        f"their start than to the training images; for {monotone} of them, more truth in the start always brings "
        f"the result nearer to the training images. ROC AUC of true against plausible candidates: "
        f"{'; '.join(areas) or 'not measured'}. Of {bins} bins of beliefs, {holding} hold on networks they were not "
        "learnt from."
    )


MNIST = Task(source="mnist", classes="odd-even")
CIFAR = Task(source="cifar-10", classes="animal-vehicle")
AFFINE = Network(label="affine", depth=0, steps=150)
FEW = Network(label="affine, few images", depth=0, size=10, steps=300, learning_rate=0.015)
HIDDEN = Network(
    label="one hidden layer", depth=1, width=32, weight_decay=0.05, lr=0.02, steps=60, learning_rate=0.02,
    lower_steps=20, precision="float32",
)  # fmt: skip

STUDIES = (
    Study(
        name="uncertainty",
        presets={
            "smoke": Uncertainty(
                starts=Starts(
                    source="digits", shrink=1, strangers=60, seeds=1, shares=(0.0, 0.5, 1.0), points=3, rest_steps=3,
                    networks=(
                        Network(
                            label="affine", depth=0, size=10, train_steps=40, steps=2, newton_steps=2, iterations=10,
                        ),
                        Network(label="hidden", depth=1, width=6, size=10, train_steps=40, steps=2, lower_steps=3),
                    ),
                ),
                verdicts=Verdicts(
                    tasks=(Task(source="digits", classes="odd-even", size=10, width=256),),
                    strangers=60, victims=2, plausible=1, restarts=2, steps=40, plausible_steps=3, final_only=2,
                    final_width=24, final_shrink=1, final_train_steps=40, final_steps=20,
                ),
            ),
            "cpu": Uncertainty(starts=Starts(networks=(AFFINE, FEW, HIDDEN)), verdicts=Verdicts(tasks=(MNIST, CIFAR))),
            "gpu": Uncertainty(
                starts=Starts(
                    shrink=1, points=11,
                    networks=(
                        replace(AFFINE, newton_steps=5, iterations=40),
                        replace(FEW, steps=200, newton_steps=5, iterations=40),
                        replace(HIDDEN, width=64, lr=0.005, steps=150, lower_steps=40),
                    ),
                ),
                verdicts=Verdicts(tasks=(MNIST, CIFAR), victims=4, plausible=2, final_only=2),
            ),
        },
        measure=measure,
    ),
)  # fmt: skip
