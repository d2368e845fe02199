"""Certificates against agreement, and beliefs tested on victims they were not learnt from."""

import torch

from exhume.studies.runkel2024.verdicts import Task, Way, check_belief, compare_evidence


def make_cells(victims, seed, shift=0.0):
    """Return cells of victims whose candidates are true with the probability of their agreement, minus a shift."""
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
    fair = check_belief(task, way, make_cells(10, 0))
    assert fair["holding"] >= len(fair["bins"]) - 1
    assert fair["error"] < 0.06
    assert fair["verdicts"]["with_certificate"]["wrong"] == 0
    assert fair["verdicts"]["with_certificate"]["claims"] == fair["tested_on"]["true"]
    misled = check_belief(task, way, [*make_cells(5, 1), *make_cells(5, 2, shift=0.4)])
    assert misled["error"] > 0.15
    assert misled["holding"] < len(misled["bins"]) / 2


def test_comparison_counts_both_kinds_of_candidates():
    found = compare_evidence(make_cells(2, 3), make_cells(1, 4))
    assert found["candidates"] == 360
    assert found["from_own_images"] == 120
    assert found["certificate"]["auc"] == 1.0
    assert 0.6 < found["agreement"]["auc"] < 0.95
