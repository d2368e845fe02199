"""The study of uncertainty: it runs, keeps its cells, and its measures say what they claim to say."""

import json

import pytest
import torch

from exhume.attacks.bilevel.starts import Mixture
from exhume.studies import STUDIES
from exhume.studies.runkel2024.starts import PARTITION, Network, Starts, drawn, half_rise, starts, wells
from exhume.studies.runkel2024.uncertainty import averaged, claims
from exhume.studies.runkel2024.verdicts import Task, Way, checked, compared

FIGURES = {"starts", "pictures", "landscape", "certificate", "roc", "reliability"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uncertainty")
    return folder, STUDIES["uncertainty"].run("smoke", folder, device="cpu")


def test_it_leaves_numbers_and_figures(smoke):
    folder, found = smoke
    numbers = json.loads((folder / "result.json").read_text())["numbers"]
    assert {path.stem for path in folder.glob("*.png")} == FIGURES
    assert len(list(folder.rglob("cells/**/*.safetensors"))) == 2 * (1 + 2 * 5) + 2 + 1 + 2
    assert len(numbers["starts"]) == 2 * 2 * 4
    assert {claim["attack"] for claim in numbers["claims"]} == {"bilevel", "stationarity"}
    assert "hold on networks they were not learnt from" in found.summary
    truth = [row for row in numbers["starts"] if row["start"].startswith("100%")]
    others = [row for row in numbers["starts"] if row["start"].startswith("0%")]
    assert max(row["to_train"]["mean"] for row in truth) < min(row["to_train"]["mean"] for row in others)


def test_certificates_tell_what_agreement_does_not(smoke):
    found = smoke[1].numbers["proofs"]["digits"]
    assert found["certified"] == [10]
    assert found["false_certificates"] == 0
    assert found["certificate"]["auc"] == 1.0
    assert found["certificate"]["tpr_at_fpr"]["0.01"] == 1.0
    assert found["agreement"]["auc"] < 1.0
    assert found["true_from_own_images"] == 0
    assert found["agreement_from_own_images"] > 0.9, "restarts from the same images agree on what is wrong"


def test_every_start_of_the_paper_is_there():
    settings = Starts(networks=(), source="digits", shrink=1, strangers=60, partition_shares=(0.0, 0.5))
    data = drawn(settings, Network(label="", depth=0, size=20), seed=0)
    named = starts(settings, data)
    assert [name for name in named if name.endswith("noise")] == [f"{p}% truth in noise" for p in (0, 25, 50, 75, 100)]
    assert PARTITION in named
    assert f"50% truth in {PARTITION}" in named
    assert all(isinstance(start, Mixture) for start in named.values())
    assert not named[PARTITION].is_oracle
    assert len(data.holdout) == 60


def test_landscapes_are_measured_by_shape_alone():
    steep = [1 - (1 - i / 20) ** 4 for i in range(21)]
    flat = [(i / 20) ** 4 for i in range(21)]
    assert half_rise(steep) < 0.2 < 0.8 < half_rise(flat)
    assert half_rise([7 * value + 1 for value in flat]) == pytest.approx(half_rise(flat))
    assert wells(flat) == wells(steep) == 0
    assert wells([3.0, 1.0, 2.0, 0.5, 4.0]) == 2


def test_claims_follow_from_the_means():
    constant = {"network": "n", "attack": "bilevel", "parameter_distance": 0.1, "parameter_distance_of_start": 1.0}
    constant |= {"to_stranger": 0.05, "to_start": 0.02, "true": 0.0}
    far = {"0% truth in noise": 0.3, "50% truth in noise": 0.2, "100% truth in noise": 0.0, PARTITION: 0.25}
    rows = [
        constant | {"start": name, "seed": seed, "to_train": distance + 0.01 * seed}
        for seed in range(3)
        for name, distance in far.items()
    ]
    rows += [one | {"attack": "stationarity", "to_start": 0.9} for one in rows]
    first, second = claims(averaged(rows), [], ["n"])
    assert first["mixtures_are_monotone"]
    assert first["stays_nearer_to_its_start"]
    assert not second["stays_nearer_to_its_start"]
    assert first["partition_distance_fell_by"] == pytest.approx(10.0)


def synthetic(victims, seed, shift=0.0):
    """Return cells of victims whose candidates are true as often as their agreement says, less a shift."""
    generator = torch.Generator().manual_seed(seed)
    cells = []
    for _ in range(victims):
        agreement = torch.rand(120, generator=generator, dtype=torch.float64)
        truth = torch.rand(120, generator=generator, dtype=torch.float64) < agreement - shift
        cells.append(
            {
                "agreement": agreement,
                "residual": torch.zeros(120).double(),
                "confidence": agreement,
                "proof_distance": torch.where(truth, 0.0, 0.5).double(),
                "proof_p": torch.where(truth, 1e-3, 1.0).double(),
                "run": torch.zeros(120, dtype=torch.long),
                "truth": truth,
                "certified": 5,
                "training_size": 5,
                "false_certificates": 0,
            }
        )
    return cells


def test_beliefs_hold_for_their_own_kind_and_fail_for_another():
    task, way = Task(source="s", classes="all"), Way(attack="weight-difference", kind="agreement")
    fair = checked(task, way, synthetic(10, 0))
    assert fair["holding"] >= len(fair["bins"]) - 1
    assert fair["error"] < 0.06
    assert fair["verdicts"]["with_certificate"]["wrong"] == 0
    assert fair["verdicts"]["with_certificate"]["claims"] == fair["tested_on"]["true"]
    misled = checked(task, way, [*synthetic(5, 1), *synthetic(5, 2, shift=0.4)])
    assert misled["error"] > 0.15
    assert misled["holding"] < len(misled["bins"]) / 2


def test_comparison_counts_both_kinds_of_candidates():
    found = compared(synthetic(2, 3), synthetic(1, 4))
    assert found["candidates"] == 360
    assert found["from_own_images"] == 120
    assert found["certificate"]["auc"] == 1.0
    assert 0.6 < found["agreement"]["auc"] < 0.95
