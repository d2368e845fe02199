"""The uncertainty study: it runs, keeps its cells, and its claims follow from the means."""

import json

import pytest

from exhume.studies import STUDIES
from exhume.studies.runkel2024.starts import PARTITION
from exhume.studies.runkel2024.uncertainty import average_over_seeds, check_claims

FIGURES = {"starts", "pictures", "landscape", "certificate", "roc", "reliability"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uncertainty")
    return folder, STUDIES["uncertainty"].run("smoke", folder, device="cpu")


def test_the_study_writes_numbers_and_figures(smoke):
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


def test_certificates_separate_what_agreement_cannot(smoke):
    found = smoke[1].numbers["proofs"]["digits"]
    assert found["certified"] == [10]
    assert found["false_certificates"] == 0
    assert found["certificate"]["auc"] == 1.0
    assert found["certificate"]["tpr_at_fpr"]["0.01"] == 1.0
    assert found["agreement"]["auc"] < 1.0
    assert found["true_from_own_images"] == 0
    assert found["agreement_from_own_images"] > 0.9, "restarts from the same images agree on what is wrong"


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
    first, second = check_claims(average_over_seeds(rows), [], ["n"])
    assert first["mixtures_are_monotone"]
    assert first["stays_nearer_to_its_start"]
    assert not second["stays_nearer_to_its_start"]
    assert first["partition_distance_fell_by"] == pytest.approx(10.0)
