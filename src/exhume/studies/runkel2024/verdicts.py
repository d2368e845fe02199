"""How well an attacker can judge reconstructions: certificates, agreement of restarts, and learnt probabilities."""

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
from exhume.evaluation.belief import Belief, learn_belief, reliability
from exhume.evaluation.calibration import calibrate
from exhume.evaluation.consensus import Evidence, Kind, are_true, gather, memberships
from exhume.models.mlp import MLP
from exhume.records import Dataset, Outcome, Reconstruction, Victim
from exhume.studies.study import StudyRun
from exhume.studies.tasks import draw
from exhume.training.recipes import weight_decay_recipe

PARTS = ("agreement", "residual", "confidence", "proof_distance", "proof_p")
OWN_SHARE = 0.9
"""Share of an attacker's own image in each starting point that is not noise alone."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data of one group of victims."""

    source: str
    classes: str
    size: int = 20
    width: int = 256


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Victims with known initial weights, victims with known final weights alone, and the effort of their attacks."""

    tasks: tuple[Task, ...]
    strangers: int = 400
    """Number of held-out examples."""
    victims: int = 20
    """Number of victims with known initial weights; the belief is learnt on the first half and tested on the other."""
    plausible: int = 3
    """Number of these that are also attacked from an attacker's own images."""
    restarts: int = 4
    steps: int = 500
    plausible_steps: int = 30
    final_only: int = 12
    """Number of victims with known final weights alone; the belief is learnt on half of them."""
    final_width: int = 200
    final_shrink: int = 2
    final_train_steps: int = 2500
    final_steps: int = 500


@dataclass(frozen=True, kw_only=True)
class Way:
    """An attack and the kind of evidence for its candidates."""

    attack: Literal["weight-difference", "max-margin"]
    kind: Kind

    @property
    def name(self) -> str:
        """Name in tables and figures."""
        words = {"agreement": "agreement of restarts", "confidence": "its own confidence", "residual": "residual"}
        return f"{self.attack} by {words.get(self.kind, self.kind)}"


WAYS = (
    Way(attack="weight-difference", kind="agreement"),
    Way(attack="weight-difference", kind="confidence"),
    Way(attack="max-margin", kind="confidence"),
)
"""The confidence of max-margin *is* the agreement of its restarts, which it pools by itself."""


def count_verdict_cells(settings: Verdicts) -> int:
    """Return the number of cells of the measurement."""
    return len(settings.tasks) * (settings.victims + settings.plausible + settings.final_only)


def measure_verdicts(settings: Verdicts, run: StudyRun) -> dict[str, Any]:
    """Attack all victims, compare certificates with agreement, and test every belief on other victims."""
    proofs, beliefs = {}, []
    for task in settings.tasks:
        cells: dict[str, list[dict[str, Any]]] = {"weight-difference": [], "max-margin": []}
        wrong = []
        for seed in range(run.seed, run.seed + settings.victims):
            name = f"verdicts/{task.source}/{seed}"
            work = functools.partial(attack_known_start, settings, task, run, seed)
            cell = run.cell(name, work)
            cells["weight-difference"].append(cell)
            if seed - run.seed < settings.plausible:
                work = functools.partial(attack_from_own_images, settings, task, run, seed, cell["proofs"])
                wrong.append(run.cell(f"{name}-own-images", work))
        for seed in range(run.seed, run.seed + settings.final_only):
            work = functools.partial(attack_final_only, settings, task, run, seed)
            cells["max-margin"].append(run.cell(f"verdicts/{task.source}/final-{seed}", work))
        known = cells["weight-difference"]
        proofs[task.source] = compare_evidence(known[: settings.plausible], wrong) | {
            "certified_of_every_victim": [cell["certified"] for cell in known],
            "false_certificates_of_every_victim": [cell["false_certificates"] for cell in known],
        }
        beliefs += [check_belief(task, way, cells[way.attack]) for way in WAYS]
    return {"proofs": proofs, "beliefs": beliefs}


def attack_known_start(settings: Verdicts, task: Task, run: StudyRun, seed: int) -> dict[str, Any]:
    """Attack a victim with known initial weights from several random starting points, and once for certificates."""
    data, victim = train_victim(settings, task, run, seed)
    view = victim.view()
    attack = WeightDifference(steps=settings.steps)
    found = [run.attack(attack, view, seed=restart) for restart in range(settings.restarts)]
    proof = run.attack(GateCertificate(), view, seed=seed)
    false = int((proof.certified & ~are_true(proof.inputs, data)).sum())
    counts = {"certified": int(proof.certified.sum()), "false_certificates": false, "training_size": task.size}
    return counts | {"proofs": proof.inputs[proof.certified]} | pack_evidence(found, data, certificates=(proof,))


def attack_from_own_images(
    settings: Verdicts, task: Task, run: StudyRun, seed: int, proofs: Float[Tensor, "proof ..."]
) -> dict[str, Any]:
    """Attack the same victim from real images of the same kind that an attacker owns, with a little noise.

    The lower level repeats the first steps of the training from its initial weights. Restarts differ by their noise.
    """
    data, victim = train_victim(settings, task, run, seed)
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
    found = [run.attack(attack, view, seed=restart) for restart in range(2)]
    proof = Reconstruction(
        inputs=proofs,
        certified=torch.ones(len(proofs), dtype=torch.bool),
        confidence=torch.ones(len(proofs)),
        outcome=Outcome.PARTIAL,
    )
    distances = [one.diagnostics["parameter_distance"] for one in found]
    return {"parameter_distances": distances} | pack_evidence(found, data, certificates=(proof,))


def attack_final_only(settings: Verdicts, task: Task, run: StudyRun, seed: int) -> dict[str, Any]:
    """Attack the final weights alone of a training with weight decay on ten classes."""
    data = draw_data(settings, replace(task, classes="all"), seed, settings.final_shrink)
    recipe = weight_decay_recipe(
        loss="ce", weight_decay=1e-3, width=settings.final_width, steps=settings.final_train_steps, lr=0.1
    )
    victim = run.train(data, seed=seed, **recipe)
    attack = MaxMargin(trials=1, restarts=settings.restarts, steps=settings.final_steps, similar=1.1)
    view = replace(victim.view(), initial=None)
    return pack_evidence([run.attack(attack, view, seed=seed)], data)


def train_victim(settings: Verdicts, task: Task, run: StudyRun, seed: int) -> tuple[Dataset, Victim]:
    """Draw data and train a network on them."""
    data = draw_data(settings, task, seed)
    model = MLP(width=task.width, depth=1)
    return data, run.train(data, model=model, seed=seed)


def draw_data(settings: Verdicts, task: Task, seed: int, shrink: int = 1) -> Dataset:
    """Draw a training set and the hold-out set that candidates are compared with."""
    return draw(task.source, task.classes, size=task.size, held_out=settings.strangers, seed=seed, shrink=shrink)


def pack_evidence(
    found: Sequence[Reconstruction], data: Dataset, certificates: Sequence[Reconstruction] = ()
) -> dict[str, Any]:
    """Return the evidence of several runs and which candidates are true, as values of a cell."""
    evidence = gather(found, bounds=data.bounds, certificates=certificates)
    truth = are_true(evidence.inputs, data)
    return {name: getattr(evidence, name) for name in PARTS} | {"run": evidence.run, "truth": truth}


def unpack_evidence(cells: Sequence[Mapping[str, Any]]) -> tuple[Evidence, Tensor, Tensor]:
    """Return the evidence of several victims, which candidates are true, and the victim of each; without images."""
    values = {name: torch.cat([cell[name] for cell in cells]) for name in (*PARTS, "run", "truth")}
    truth = values.pop("truth").bool()
    groups = torch.repeat_interleave(torch.arange(len(cells)), torch.tensor([len(cell["run"]) for cell in cells]))
    return Evidence(inputs=torch.zeros(len(truth), 0), **values), truth, groups


def compare_evidence(found: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Separate true from plausible candidates by the agreement of restarts, and by the certificate."""
    evidence, truth, _ = unpack_evidence([*found, *own])
    restarts, restart_truth, _ = unpack_evidence(found)
    own_truth = unpack_evidence(own)[1]
    return {
        "candidates": len(truth),
        "true": int(truth.sum()),
        "true_from_own_images": int(own_truth.sum()),
        "from_own_images": len(own_truth),
        "agreement_from_own_images": float(unpack_evidence(own)[0].agreement.mean()),
        "certified": [cell["certified"] for cell in found],
        "training_size": found[0]["training_size"],
        "false_certificates": sum(cell["false_certificates"] for cell in found),
        "agreement": score_evidence(evidence, truth, "agreement"),
        "certificate": score_evidence(evidence, truth, "certificate"),
        "agreement_without_own_images": score_evidence(restarts, restart_truth, "agreement"),
        "points": {
            "agreement": evidence.agreement.float(),
            "proof_distance": evidence.proof_distance.float(),
            "truth": truth,
            "own_images": torch.arange(len(truth)) >= len(truth) - len(own_truth),
        },
    }


def score_evidence(evidence: Evidence, truth: Tensor, kind: Kind) -> dict[str, Any] | None:
    """Return the ROC of one kind of evidence against the truth; None if all candidates are true, or none is."""
    score = -evidence.score(kind)  # small values count as positive
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


def check_belief(task: Task, way: Way, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Learn a belief on the first half of the victims and test it on the other."""
    half = len(cells) // 2
    evidence, truth, groups = unpack_evidence(cells[:half])
    belief = learn_belief(evidence.score(way.kind), truth, groups)
    others, other_truth, other_groups = unpack_evidence(cells[half:])
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
        "roc": score_evidence(others, other_truth, way.kind),
        "verdicts": count_claims(others, other_truth, belief, way.kind),
    }


def count_claims(evidence: Evidence, truth: Tensor, belief: Belief, kind: Kind) -> dict[str, Any]:
    """Count the claims by belief alone and by belief and certificate, and how many of them are wrong."""
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
