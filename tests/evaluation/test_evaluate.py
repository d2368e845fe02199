"""Evaluations of reconstructions whose quality is known."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import DataError, RecordError
from exhume.data import load
from exhume.evaluation import Finding, evaluate, verdict
from exhume.models.linearised import Linearised
from exhume.models.mlp import MLP
from exhume.records import Evaluation, Outcome, Victim
from tests.evaluation.synthetic_data import SHAPES, make_data, make_found

SIZE = 24


def noise(shape, count, seed=7):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("matching", ["greedy", "optimal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_example_of_a_permuted_copy_is_found_and_no_held_out_one(shape, matching):
    data = make_data(shape, SIZE)
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(1))
    evaluation = evaluate(make_found(data.train.inputs[order]), data, matching=matching)
    assert evaluation.train.exact == evaluation.train.fine == evaluation.train.good == SIZE
    assert evaluation.holdout.exact == evaluation.holdout.fine == evaluation.holdout.good == 0
    assert (order[evaluation.train.pairs[:, 0]] == evaluation.train.pairs[:, 1]).all()
    assert evaluation.calibration.level(0.01).recovered == SIZE
    assert evaluation.calibration.level(0.01).holdout_recovered == 0
    assert evaluation.calibration.auc == 1.0
    assert verdict(evaluation).finding is Finding.RECOVERED
    if len(shape) == 3:
        assert evaluation.train.similar == SIZE
        torch.testing.assert_close(evaluation.train.ssim, torch.ones(SIZE).double())


@pytest.mark.parametrize("name", ["digits", "faces", "breast-cancer"])
def test_near_copies_are_recoveries_and_other_real_data_is_not(name):
    data = load(name, size=40, seed=0)
    blur = 0.002 * torch.randn(data.train.inputs.shape, generator=torch.Generator().manual_seed(0))
    evaluation = evaluate(make_found(data.train.inputs + blur), data)
    assert evaluation.train.exact == 40
    assert evaluation.calibration.level(0.01).recovered == evaluation.relative.level(0.01).recovered == 40
    assert evaluation.calibration.level(0.01).holdout_recovered == 0
    others = load(name, size=40, seed=1)
    known = torch.cat([data.train.inputs, data.holdout.inputs])
    apart = (others.train.inputs[:, None] != known).flatten(2).any(2).all(1)
    evaluation = evaluate(make_found(others.train.inputs[apart]), data)
    assert len(evaluation.found) > 10
    assert evaluation.relative.level(0.01).chance > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_copies_of_held_out_examples_are_no_recovery(shape):
    data = make_data(shape, SIZE)
    evaluation = evaluate(make_found(data.holdout.inputs), data)
    assert evaluation.train.good == 0
    assert evaluation.holdout.exact == SIZE
    assert [level.recovered for level in evaluation.calibration.levels] == [0, 0]
    assert verdict(evaluation).finding is Finding.NOTHING


@pytest.mark.parametrize("candidates", [SIZE // 2, 2 * SIZE])
@pytest.mark.parametrize("shape", SHAPES)
def test_half_copies_and_half_noise_recover_half(shape, candidates):
    data = make_data(shape, SIZE)
    copies = data.train.inputs[: SIZE // 4]
    other = make_data(shape, candidates - len(copies), seed=99).train.inputs
    evaluation = evaluate(make_found(torch.cat([other, copies])), data)
    assert len(evaluation.train.curve) == min(SIZE, candidates)
    assert evaluation.train.good == evaluation.train.exact == SIZE // 4
    assert evaluation.holdout.good == 0
    assert (evaluation.calibration.p_values[: SIZE // 4] == 1 / (SIZE + 1)).all()
    assert sorted(evaluation.train.pairs[: SIZE // 4, 1].tolist()) == list(range(SIZE // 4))


def test_one_image_near_to_everything_does_not_decide_the_threshold():
    data = make_data((1, 8, 8), SIZE)
    data.train.inputs[-1] = data.holdout.inputs[-1] = 0.0
    data.holdout.inputs[-1, 0, 0, 0] = 0.01
    evaluation = evaluate(make_found(data.train.inputs + 0.01), data)
    assert (
        evaluation.calibration.level(0.01).recovered == 0
    )  # a black image that is not in the training set is as near as the copies
    assert evaluation.relative.level(0.01).recovered == SIZE - 1
    assert evaluation.relative.level(0.01).holdout_recovered == 0


def test_neither_of_two_equal_examples_is_claimed():
    data = make_data((1, 8, 8), SIZE)
    data.holdout.inputs[0] = data.train.inputs[0]
    evaluation = evaluate(make_found(data.train.inputs), data)
    assert evaluation.relative.scores[0].isinf()
    assert evaluation.relative.level(0.01).recovered == SIZE - 1


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), candidates=st.integers(1, 20))
def test_no_order_of_the_candidates_changes_a_score(seed, candidates):
    data = make_data((1, 8, 8), 10, seed=seed)
    inputs = noise((1, 8, 8), candidates, seed)
    order = torch.randperm(candidates, generator=torch.Generator().manual_seed(seed))
    first, second = evaluate(make_found(inputs), data), evaluate(make_found(inputs[order]), data)
    torch.testing.assert_close(first.train.curve, second.train.curve)
    torch.testing.assert_close(first.train.ssim, second.train.ssim)
    torch.testing.assert_close(first.calibration.p_values, second.calibration.p_values)


def test_certificates_are_checked_against_the_nearest_training_example():
    data = make_data((1, 8, 8), SIZE)
    inputs = torch.cat(
        [data.train.inputs[:5], data.train.inputs[:1] + 0.03, data.train.inputs[6:7] + 0.03, noise((1, 8, 8), 2)]
    )
    certified = torch.tensor([True] * 8 + [False])
    evaluation = evaluate(make_found(inputs, certified=certified, p_values=torch.full((9,), 1e-13)), data)
    assert evaluation.certified == 8
    assert evaluation.false_certificates == 1
    assert evaluation.certified_examples == 6  # the first training example carries two certificates
    assert evaluation.certified_exact == 5
    result = verdict(evaluation)
    assert result.finding is Finding.PROVEN
    assert result.sentence == (
        f"6 of {SIZE} training images were recovered, and the attacker can prove each without the data."
    )
    assert "Matched exactly: 5." in result.detail
    assert "1 of them matches none of the training images given: either the data given is incomplete" in result.detail


def test_without_data_only_certificates_are_reported():
    found = make_found(
        noise((1, 8, 8), 3),
        certified=torch.tensor([True, True, False]),
        diagnostics={"training_size_estimate": 40, "floor": math.nan},
    )
    evaluation = evaluate(found)
    values = evaluation.to_json()
    assert values["certified"] == 2
    assert values["training_size_estimate"] == 40
    assert values["diagnostics"] == {"training_size_estimate": 40, "floor": None}
    unknown = ("training_size", "curve", "holdout_curve", "recovered_at_fpr", "p_values", "false_certificates")
    assert all(values[key] is None for key in unknown)
    assert verdict(evaluation).sentence == "2 training images were recovered, and the attacker can prove each."
    assert verdict(evaluate(make_found(noise((1, 8, 8), 3)))).finding is Finding.UNPROVEN


def test_a_diverged_attack_is_evaluated():
    data = make_data((1, 8, 8), SIZE)
    broken = make_found(torch.full((4, 1, 8, 8), math.nan), outcome=Outcome.DIVERGED)
    evaluation = evaluate(broken, data)
    assert len(evaluation.train.curve) == 0
    assert evaluation.calibration.level(0.01).recovered == 0
    assert evaluation.train.nearest_examples.tolist() == [-1] * 4
    json.dumps(evaluation.to_json(), allow_nan=False)
    nothing = make_found(torch.zeros(0, 1, 8, 8), outcome=Outcome.NOTHING_FOUND)
    assert verdict(evaluate(nothing, data)).finding is Finding.NOTHING


def test_half_diverged_candidates_do_not_hide_the_others():
    data = make_data((1, 8, 8), SIZE)
    inputs = data.train.inputs.clone()
    inputs[::2, 0, 0, 0] = math.inf
    evaluation = evaluate(make_found(inputs), data)
    assert evaluation.train.exact == SIZE // 2


def test_a_larger_held_out_set_sharpens_the_ranks_and_leaves_the_curve_as_long():
    data = make_data((1, 8, 8), 10, holdout=1500)
    evaluation = evaluate(make_found(data.train.inputs), data)
    assert len(evaluation.holdout.curve) == len(evaluation.train.curve) == 10
    assert evaluation.calibration.level(0.001).bound == pytest.approx(2 / 1501)
    assert evaluation.calibration.p_values.tolist() == pytest.approx([1 / 1501] * 10)


def test_without_held_out_examples_no_ranks_are_claimed():
    data = make_data((1, 8, 8), 10, holdout=0)
    evaluation = evaluate(make_found(data.train.inputs), data)
    assert evaluation.calibration is None
    assert evaluation.train.exact == 10
    assert "no hold-out set" in verdict(evaluation).detail
    proven = make_found(data.train.inputs, certified=torch.ones(10, dtype=torch.bool))
    detail = verdict(evaluate(proven, data)).detail
    assert "Held-out images matched" not in detail
    assert "no hold-out set" in detail


def test_the_confidence_of_an_attacker_is_scored():
    data = make_data((1, 8, 8), SIZE)
    inputs = torch.cat([data.train.inputs[:6], noise((1, 8, 8), 6)])
    assert evaluate(make_found(inputs), data).confidence_auc == 1.0
    assert evaluate(make_found(inputs.flip(0)), data).confidence_auc == 0.0
    assert evaluate(make_found(inputs[:6]), data).confidence_auc is None


def test_shapes_that_differ_are_refused():
    with pytest.raises(DataError, match=r"\(1, 4, 4\).*\(1, 8, 8\)"):
        evaluate(make_found(noise((1, 4, 4), 2)), make_data((1, 8, 8), 4))


def test_the_json_has_the_promised_keys_and_never_a_nan():
    for shape in SHAPES:
        data = make_data(shape, SIZE)
        values = evaluate(make_found(data.train.inputs), data).to_json()
        text = json.dumps(values, allow_nan=False)
        assert json.loads(text) == values
        promised = {"schema_version", "dataset", "attack", "candidates", "training_size", "curve", "holdout_curve"}
        assert promised | {"ssim", "recovered_at_fpr", "seconds"} <= values.keys()
        assert values["recovered_at_fpr"] == {"0.01": SIZE, "0.001": SIZE}
        assert values["tpr_at_fpr"] == {"0.01": 1.0, "0.001": 1.0}
        assert values["attack"] == "Synthetic()"
        assert values["seconds"] == 1.5


def test_every_key_of_the_json_is_documented():
    page = Path(__file__).parents[2].joinpath("docs", "reference", "audit-json.md").read_text()
    for key in evaluate(make_found(noise((30,), 3)), make_data((30,), 3)).to_json():
        assert f"`{key.removeprefix('holdout_').removeprefix('relative_')}`" in page or f"`{key}`" in page


@settings(max_examples=25)
@given(
    shape=st.sampled_from(SHAPES),
    size=st.integers(1, 6),
    candidates=st.integers(0, 8),
    known=st.booleans(),
    spoilt=st.booleans(),
)
def test_a_saved_evaluation_loads_as_an_equal_one(tmp_path_factory, shape, size, candidates, known, spoilt):
    inputs = noise(shape, candidates)
    if spoilt and candidates:
        inputs[0] = math.nan
    found = make_found(
        inputs,
        certified=torch.arange(candidates) % 2 == 0,
        p_values=torch.linspace(0, 1, candidates) if spoilt else None,
        diagnostics={"singular_values": [3.0, 1.0], "training_size_estimate": 1},
    )
    evaluation = evaluate(found, make_data(shape, size) if known else None)
    path = tmp_path_factory.mktemp("audit") / "audit.safetensors"
    evaluation.save(path)
    assert Evaluation.load(path) == evaluation
    assert Evaluation.load(path).to_json() == evaluation.to_json()


def test_a_file_of_another_record_is_refused(tmp_path):
    make_found(noise((30,), 2)).save(tmp_path / "found.safetensors")
    with pytest.raises(RecordError, match="not a saved evaluation"):
        Evaluation.load(tmp_path / "found.safetensors")


@pytest.fixture(scope="module")
def victim():
    data = make_data((1, 8, 8), SIZE)
    architecture = MLP(width=32, depth=1)
    generator = torch.Generator().manual_seed(0)
    module = architecture.build((1, 8, 8), 1, generator)
    initial = {name: weight.clone() for name, weight in module.state_dict().items()}
    targets = 2.0 * data.train.labels[:, None] - 1
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(400):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(module(data.train.inputs), targets).backward()
        optimiser.step()
    return Victim(
        architecture=architecture,
        initial=initial,
        final=module.state_dict(),
        input_shape=(1, 8, 8),
        outputs=1,
        bounds=(0.0, 1.0),
        dataset="synthetic",
        training={"loss": "mse"},
    )


def test_a_victim_adds_accuracy_kernel_distance_and_threat_model(victim):
    data = make_data((1, 8, 8), SIZE)
    values = evaluate(make_found(data.train.inputs), data, victim=victim).to_json()
    assert values["train_accuracy"] == 1.0
    assert 0.0 <= values["test_accuracy"] <= 1.0
    assert 0.0 < values["kernel_distance"] < 1.0
    assert values["threat_model"]["initial weights"] is True
    assert values["threat_model"]["training"] == {"loss": "mse"}
    assert values["threat_model"]["training inputs"] is False
    assert evaluate(make_found(data.train.inputs), data, victim=victim.view()).to_json() == values


def test_a_view_without_initial_weights_has_no_kernel_distance(victim):
    data = make_data((1, 8, 8), SIZE)
    view = replace(victim.view(), initial=None)
    values = evaluate(make_found(data.train.inputs), data, victim=view).to_json()
    assert values["kernel_distance"] is None
    assert values["threat_model"]["initial weights"] is False


def test_a_linearised_network_has_a_kernel_that_never_moves(victim):
    data = make_data((1, 8, 8), SIZE)
    evaluation = evaluate(make_found(data.train.inputs), data, victim=replace(victim, linearised=True))
    assert evaluation.network["kernel_distance"] == 0.0
    expansion = Linearised(victim.view().module(victim.initial))
    expansion.module.load_state_dict(victim.final)
    right = (expansion(data.holdout.inputs)[:, 0] > 0) == (data.holdout.labels == 1)
    assert evaluation.network["test_accuracy"] == right.double().mean().item()
