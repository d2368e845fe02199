"""Evaluations: counts of certificates, files, and files of earlier versions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exhume.core.errors import RecordError
from exhume.core.storage import load_bundle, save_bundle
from exhume.records import Evaluation, Outcome, Reconstruction
from exhume.records.comparison import CERTIFIED_WITHIN, EXACT
from tests.records.test_calibration import make_calibration
from tests.records.test_comparison import make_comparison


def make_evaluation(errors: list[float], certified: list[bool]) -> Evaluation:
    found = Reconstruction(
        inputs=torch.zeros(len(errors), 2, 2),
        certified=torch.tensor(certified),
        confidence=torch.ones(len(errors)),
        outcome=Outcome.PARTIAL,
        diagnostics={"training_size_estimate": 7},
    )
    return Evaluation(
        found=found, train=make_comparison(errors), dataset="made up", classes=("a", "b"), bounds=(0, 1.0)
    )


def test_certificates_are_true_within_the_tolerance_alone() -> None:
    errors = [0.5 * EXACT, 0.5 * CERTIFIED_WITHIN, 2 * CERTIFIED_WITHIN, 0.5 * EXACT]
    evaluation = make_evaluation(errors, [True, True, True, False])
    assert evaluation.certified == 3
    assert evaluation.certified_examples == 2
    assert evaluation.certified_exact == 1
    assert evaluation.false_certificates == 1


def test_two_certificates_of_one_example_count_once() -> None:
    evaluation = make_evaluation([0.5 * EXACT, 0.5 * EXACT], [True, True])
    assert evaluation.train is not None
    twice = replace(evaluation, train=replace(evaluation.train, nearest_examples=torch.tensor([0, 0])))
    assert (twice.certified, twice.certified_examples) == (2, 1)


def test_without_data_only_certificates_are_known() -> None:
    evaluation = replace(make_evaluation([0.1], [True]), train=None)
    assert evaluation.certified == 1
    for name in ("certified_examples", "certified_exact", "false_certificates"):
        assert getattr(evaluation, name) is None
    assert evaluation.training_size_estimate == 7


def test_an_evaluation_survives_its_file(path: Path) -> None:
    evaluation = make_evaluation([0.1, 0.2], [True, False])
    full = replace(evaluation, holdout=evaluation.train, calibration=make_calibration(), relative=make_calibration(1))
    for each in (evaluation, full):
        each.save(path)
        loaded = Evaluation.load(path)
        assert loaded.found == each.found
        assert loaded.calibration == each.calibration
        assert loaded.relative == each.relative
        assert loaded.to_json() == each.to_json()


def test_the_json_holds_every_key_whatever_is_known() -> None:
    known = make_evaluation([0.1], [True])
    full = replace(known, holdout=known.train, calibration=make_calibration(), relative=make_calibration())
    unknown = replace(known, train=None, dataset=None)
    assert list(full.to_json()) == list(unknown.to_json())
    for each in (full, unknown):
        json.dumps(each.to_json(), allow_nan=False)


def test_a_file_of_an_earlier_version_loads_and_another_kind_is_refused(path: Path) -> None:
    evaluation = make_evaluation([0.1], [True])
    evaluation.save(path)
    values, tensors = load_bundle(path, "evaluation")
    save_bundle(path, "audit", values, tensors)
    assert Evaluation.load(path).to_json() == evaluation.to_json()
    save_bundle(path, "victim", values, tensors)
    with pytest.raises(RecordError, match="is not a saved evaluation"):
        Evaluation.load(path)
