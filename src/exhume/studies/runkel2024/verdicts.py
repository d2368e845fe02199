"""When an attacker can tell: certificates against the agreement of restarts, and beliefs checked on other networks."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.attacks.bilevel import Bilevel
from exhume.attacks.bilevel.starts import Mixture, Noise, another_partition
from exhume.attacks.gates.gate_certificate import GateCertificate
from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.weight_difference import WeightDifference
from exhume.data import load
from exhume.evaluation.belief import Belief, learn_belief, reliability
from exhume.evaluation.calibration import calibrate
from exhume.evaluation.consensus import Evidence, Kind, are_true, gather, memberships
from exhume.models.mlp import MLP
from exhume.records import Dataset, Outcome, Reconstruction, Victim
from exhume.studies.buzaglo2023.max_margin import shrunk
from exhume.studies.study import Bench
from exhume.training import train
from exhume.training.recipes import weight_decay_recipe

PARTS = ("agreement", "residual", "confidence", "proof_distance", "proof_p")
OWN_SHARE = 0.9
"""Of an attacker's own image in each start that is not noise alone."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Where victims of a kind come from."""

    source: str
    classes: str
    size: int = 20
    width: int = 256


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Victims with a known start, victims of which only the final weights are known, and how hard each is attacked."""

    tasks: tuple[Task, ...]
    strangers: int = 400
    victims: int = 20
    """With a known start; the first half teaches the belief, the other tests it."""
    plausible: int = 3
    """Of these, how many are also attacked from an attacker's own images."""
    restarts: int = 4
    steps: int = 500
    plausible_steps: int = 30
    final_only: int = 12
    """Victims of which only the final weights are known, half of them to learn from."""
    final_width: int = 200
    final_shrink: int = 2
    final_train_steps: int = 2500
    final_steps: int = 500


@dataclass(frozen=True, kw_only=True)
class Way:
    """An attack and the evidence it is believed by."""

    attack: Literal["weight-difference", "max-margin"]
    kind: Kind

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        words = {"agreement": "agreement of restarts", "confidence": "its own confidence", "residual": "residual"}
        return f"{self.attack} by {words.get(self.kind, self.kind)}"


WAYS = (
    Way(attack="weight-difference", kind="agreement"),
    Way(attack="weight-difference", kind="confidence"),
    Way(attack="max-margin", kind="confidence"),
)
"""Max-margin's own confidence *is* the agreement of its restarts, which it pools by itself."""


def count_cells(settings: Verdicts) -> int:
    """Return how many cells the measurement has."""
    return len(settings.tasks) * (settings.victims + settings.plausible + settings.final_only)


def measure_verdicts(settings: Verdicts, bench: Bench) -> dict[str, Any]:
    """Attack all victims, compare certificates with agreement, and check every belief on victims it has not seen."""
    proofs, beliefs = {}, []
    for task in settings.tasks:
        cells: dict[str, list[dict[str, Any]]] = {"weight-difference": [], "max-margin": []}
        wrong = []
        for seed in range(bench.seed, bench.seed + settings.victims):
            name = f"verdicts/{task.source}/{seed}"
            work = functools.partial(known_start, settings, task, bench, seed)
            cell = bench.cell(name, work)
            cells["weight-difference"].append(cell)
            if seed - bench.seed < settings.plausible:
                work = functools.partial(own_images, settings, task, bench, seed, cell["proofs"])
                wrong.append(bench.cell(f"{name}-own-images", work))
        for seed in range(bench.seed, bench.seed + settings.final_only):
            work = functools.partial(final_only, settings, task, bench, seed)
            cells["max-margin"].append(bench.cell(f"verdicts/{task.source}/final-{seed}", work))
        known = cells["weight-difference"]
        proofs[task.source] = compared(known[: settings.plausible], wrong) | {
            "certified_of_every_victim": [cell["certified"] for cell in known],
            "false_certificates_of_every_victim": [cell["false_certificates"] for cell in known],
        }
        beliefs += [checked(task, way, cells[way.attack]) for way in WAYS]
    return {"proofs": proofs, "beliefs": beliefs}


def known_start(settings: Verdicts, task: Task, bench: Bench, seed: int) -> dict[str, Any]:
    """Attack a victim with a known start from several noise starts, and once for certificates."""
    data, victim = posed(settings, task, bench, seed)
    view = victim.view()
    attack = WeightDifference(steps=settings.steps)
    runs = [
        attack.run(view, seed=run, device=bench.device, progress=bench.progress) for run in range(settings.restarts)
    ]
    proof = GateCertificate().run(view, seed=seed, device=bench.device, progress=bench.progress)
    false = int((proof.certified & ~are_true(proof.inputs, data)).sum())
    counts = {"certified": int(proof.certified.sum()), "false_certificates": false, "training_size": task.size}
    return counts | {"proofs": proof.inputs[proof.certified]} | packed(runs, data, certificates=(proof,))


def own_images(
    settings: Verdicts, task: Task, bench: Bench, seed: int, proofs: Float[Tensor, "proof ..."]
) -> dict[str, Any]:
    """Attack the same victim from images that an attacker has: real ones of the same kind, with a little noise.

    The lower level repeats the first steps of the training from its known start. Restarts differ by their noise.
    """
    data, victim = posed(settings, task, bench, seed)
    view = victim.view()
    start = Mixture(first=another_partition(data), second=Noise(), share=OWN_SHARE)
    attack = Bilevel(
        start=start,
        candidates=task.size,
        lower="unrolled",
        lower_start="initial",
        lower_steps=10,
        steps=settings.plausible_steps,
        learning_rate=0.01,
        precision="float32",
    )
    runs = [attack.run(view, seed=run, device=bench.device, progress=bench.progress) for run in range(2)]
    proof = Reconstruction(
        inputs=proofs,
        certified=torch.ones(len(proofs), dtype=torch.bool),
        confidence=torch.ones(len(proofs)),
        outcome=Outcome.PARTIAL,
    )
    distances = [run.diagnostics["parameter_distance"] for run in runs]
    return {"parameter_distances": distances} | packed(runs, data, certificates=(proof,))


def final_only(settings: Verdicts, task: Task, bench: Bench, seed: int) -> dict[str, Any]:
    """Attack the final weights of a training with weight decay on ten classes; nothing else of it is known."""
    data = drawn(settings, replace(task, classes="all"), seed, settings.final_shrink)
    recipe = weight_decay_recipe(
        loss="ce", weight_decay=1e-3, width=settings.final_width, steps=settings.final_train_steps, lr=0.1
    )
    victim = train(data, device=bench.device, progress=bench.progress, seed=seed, **recipe)
    attack = MaxMargin(trials=1, restarts=settings.restarts, steps=settings.final_steps, similar=1.1)
    view = replace(victim.view(), initial=None)
    found = attack.run(view, seed=seed, device=bench.device, progress=bench.progress)
    return packed([found], data)


def posed(settings: Verdicts, task: Task, bench: Bench, seed: int) -> tuple[Dataset, Victim]:
    """Draw data and train a network on them."""
    data = drawn(settings, task, seed)
    model = MLP(width=task.width, depth=1)
    return data, train(data, model=model, device=bench.device, progress=bench.progress, seed=seed)


def drawn(settings: Verdicts, task: Task, seed: int, shrink: int = 1) -> Dataset:
    """Draw a training set and the strangers that candidates are compared with."""
    few = load(task.source, classes=task.classes, size=task.size, test=0, seed=seed)
    many = load(task.source, classes=task.classes, size=max(task.size, settings.strangers), test=0, seed=seed)
    return replace(few, train=shrunk(few.train, shrink), holdout=shrunk(many.holdout, shrink))


def packed(
    runs: Sequence[Reconstruction], data: Dataset, certificates: Sequence[Reconstruction] = ()
) -> dict[str, Any]:
    """Return the evidence of runs and the truth beside it, as a cell keeps them."""
    evidence = gather(runs, bounds=data.bounds, certificates=certificates)
    truth = are_true(evidence.inputs, data)
    return {name: getattr(evidence, name) for name in PARTS} | {"run": evidence.run, "truth": truth}


def unpacked(cells: Sequence[Mapping[str, Any]]) -> tuple[Evidence, Tensor, Tensor]:
    """Return the evidence of several victims, the truth, and the victim of each candidate; pictures stay behind."""
    joined = {name: torch.cat([cell[name] for cell in cells]) for name in (*PARTS, "run", "truth")}
    truth = joined.pop("truth").bool()
    groups = torch.repeat_interleave(torch.arange(len(cells)), torch.tensor([len(cell["run"]) for cell in cells]))
    return Evidence(inputs=torch.zeros(len(truth), 0), **joined), truth, groups


def compared(found: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tell true candidates from plausible ones by the agreement of restarts, and by the certificate."""
    evidence, truth, _ = unpacked([*found, *own])
    restarts, restart_truth, _ = unpacked(found)
    imagined = unpacked(own)[1]
    return {
        "candidates": len(truth),
        "true": int(truth.sum()),
        "true_from_own_images": int(imagined.sum()),
        "from_own_images": len(imagined),
        "agreement_from_own_images": float(unpacked(own)[0].agreement.mean()),
        "certified": [cell["certified"] for cell in found],
        "training_size": found[0]["training_size"],
        "false_certificates": sum(cell["false_certificates"] for cell in found),
        "agreement": scores(evidence, truth, "agreement"),
        "certificate": scores(evidence, truth, "certificate"),
        "agreement_without_own_images": scores(restarts, restart_truth, "agreement"),
        "points": {
            "agreement": evidence.agreement.float(),
            "proof_distance": evidence.proof_distance.float(),
            "truth": truth,
            "own_images": torch.arange(len(truth)) >= len(truth) - len(imagined),
        },
    }


def scores(evidence: Evidence, truth: Tensor, kind: Kind) -> dict[str, Any] | None:
    """Return the ROC of one kind of evidence against the truth; None where all candidates are of one kind."""
    score = -evidence.score(kind)  # where small counts as positive
    found = calibrate(score[truth], score[~truth])
    if found is None:
        return None
    rates = {f"{level.fpr:g}": level.recovered / int(truth.sum()) for level in found.levels}
    return {
        "auc": found.auc,
        "tpr_at_fpr": rates,
        "false_positive_rates": found.false_positive_rates,
        "true_positive_rates": found.true_positive_rates,
    }


def checked(task: Task, way: Way, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Learn a belief from the first half of the victims and check it on the other."""
    half = len(cells) // 2
    evidence, truth, groups = unpacked(cells[:half])
    belief = learn_belief(evidence.score(way.kind), truth, groups)
    others, other_truth, other_groups = unpacked(cells[half:])
    given = others.score(way.kind)
    found = reliability(belief.probability(given), other_truth, other_groups, bars=belief.interval(given))
    return {
        "source": task.source,
        "way": way.name,
        "learnt_from": {"victims": half, "candidates": len(truth), "true": int(truth.sum())},
        "tested_on": {"victims": len(cells) - half, "candidates": len(other_truth), "true": int(other_truth.sum())},
        "belief": belief.to_json(),
        "bins": [vars(one) | {"holds": one.holds} for one in found.bins],
        "error": found.error,
        "holding": found.holding,
        "roc": scores(others, other_truth, way.kind),
        "verdicts": verdicts(others, other_truth, belief, way.kind),
    }


def verdicts(evidence: Evidence, truth: Tensor, belief: Belief, kind: Kind) -> dict[str, Any]:
    """Count what is claimed by belief alone, by belief and certificate, and how many of these claims are wrong."""
    unproven = replace(evidence, proof_distance=torch.full_like(evidence.proof_distance, torch.inf))
    counts: dict[str, Any] = {}
    for name, known in (("by_belief", unproven), ("with_certificate", evidence)):
        claims = [
            (one, bool(real)) for one, real in zip(memberships(known, belief, kind), truth, strict=True) if one.claimed
        ]
        counts[name] = {
            "claims": len(claims),
            "wrong": sum(not real for _, real in claims),
            "error_rate_stated": max((one.error_rate or 0.0 for one, _ in claims), default=None),
        }
    return counts
