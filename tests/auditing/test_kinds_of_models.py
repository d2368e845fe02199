"""Networks of different kinds: each ends with a verdict, or with a refusal that a person can act on.

Each is audited in Python and by the command line, which say the same.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from exhume.attacks import GateCertificate, WeightDifference
from exhume.attacks.attack import Attack
from exhume.auditing import audit
from exhume.auditing.catalogue import attack_name
from exhume.cli import main
from exhume.core.errors import ExhumeError
from exhume.evaluation import Finding, verdict
from exhume.records import AttackerView, Audit, Dataset
from tests.auditing import kinds_of_models as kinds
from tests.auditing.audited_networks import digits
from tests.clues.test_subspace import adapted_view

QUICK = WeightDifference(steps=20)


def train_view(
    build: Callable[[], nn.Module],
    inputs: Tensor,
    labels: Tensor,
    *,
    adam: bool = False,
    steps: int = 60,
) -> AttackerView:
    """Train a module by a plain loop, and return what an attacker holds."""
    model = build()
    initial = copy.deepcopy(model.state_dict())
    wanted = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser: torch.optim.Optimizer = torch.optim.Adam(wanted, lr=1e-3) if adam else torch.optim.SGD(wanted, lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        returned = model(inputs)
        outputs = returned["logits"] if isinstance(returned, dict) else returned
        nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.float()).backward()
        optimiser.step()
    final, shape = copy.deepcopy(model.state_dict()), tuple(inputs.shape[1:])
    bounds = (0.0, 1.0) if len(shape) > 1 else None
    return AttackerView(model=model, initial=initial, final=final, input_shape=shape, bounds=bounds)


def digits_view(build: Callable[[], nn.Module], *, adam: bool = False) -> AttackerView:
    return train_view(build, digits().train.inputs, digits().train.labels, adam=adam)


def audit_both_ways(folder: Path, factory: str, view: AttackerView, data: Dataset, attack: Attack = QUICK) -> Audit:
    """Audit in Python and by the command line, which give the same verdict."""
    audited = audit(view, data, attacks=[attack], device="cpu")
    shape = ",".join(map(str, view.input_shape))
    options = [f"--model=tests.auditing.kinds_of_models:{factory}", f"--input-shape={shape}"]
    for name, weights in (("initial", view.initial), ("final", view.final)):
        assert weights is not None
        save_file({key: weight.contiguous() for key, weight in weights.items()}, folder / f"{name}.safetensors")
        options.append(f"--{name}={folder / name}.safetensors")
    for name, split in (("train-data", data.train), ("holdout", data.holdout)):
        np.savez(folder / f"{name}.npz", x=split.inputs.numpy(), y=split.labels.numpy())
        options.append(f"--{name}={folder / name}.npz")
    chosen = [f"--attacks={attack_name(type(attack))}", *(["--set=steps=20"] if attack is QUICK else [])]
    assert main(["audit", *options, *chosen, f"--out={folder / 'out'}", "--device=cpu", "--quiet"]) == 0
    written = json.loads((folder / "out" / "audit.json").read_text())["verdict"]
    assert written["sentence"] == verdict(audited).sentence
    assert verdict(audited).finding is not Finding.UNTESTED or audited.tokens
    return audited


@pytest.fixture(autouse=True)
def same_weights_every_time():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_a_convolutional_network_trained_with_adam(tmp_path: Path):
    audit_both_ways(tmp_path, "convolutional", digits_view(kinds.convolutional, adam=True), digits())


def test_a_residual_network_with_batch_normalisation(tmp_path: Path):
    audited = audit_both_ways(tmp_path, "residual", digits_view(kinds.residual), digits())
    assert any("Batch normalisation" in reason for reason in audited.assessments[0].reasons)


def test_a_table_from_saved_initial_weights(tmp_path: Path):
    bunch = load_breast_cancer()
    records, targets = torch.from_numpy(StandardScaler().fit_transform(bunch.data)).float(), torch.tensor(bunch.target)
    view = train_view(kinds.of_a_table, records[:60], targets[:60], steps=200)
    data = Dataset.from_arrays(
        records[:60], records[60:120], bounds=None, labels=targets[:60], holdout_labels=targets[60:120]
    )
    audited = audit_both_ways(tmp_path, "of_a_table", view, data)
    assert not audited.evaluations["weight-difference"].training_size_is_clear


def test_a_network_that_returns_a_dictionary(tmp_path: Path):
    view = digits_view(kinds.with_dictionary)
    audited = audit_both_ways(tmp_path, "with_dictionary", view, digits(), GateCertificate())
    assert verdict(audited).finding is Finding.PROVEN
    assert QUICK.run(view, seed=0).seconds > 0


def test_a_merged_adapter(tmp_path: Path):
    audited = audit_both_ways(tmp_path, "merged", adapted_view(rank=4, size=8), digits(), GateCertificate())
    assert audited.evaluations["gate-certificate"].training_size_estimate is None
    assert any("adapter" in reason for reason in audited.assessments[0].reasons)
    assert audited.evaluations["gate-certificate"].certified == 0


def test_an_adapter_that_was_not_merged(tmp_path: Path):
    audit_both_ways(tmp_path, "adapted", digits_view(kinds.adapted), digits())


def test_a_network_of_tokens(tmp_path: Path):
    tokens = torch.randint(0, 20, (8, 6), generator=torch.Generator().manual_seed(0))
    view = train_view(kinds.of_tokens, tokens, digits().train.labels)
    data = Dataset.from_arrays(tokens, tokens + 25, bounds=None, labels=digits().train.labels)
    audited = audit_both_ways(tmp_path, "of_tokens", view, data)
    moved = len(tokens.unique())
    assert f"{moved} of 50 rows moved" in verdict(audited).sentence
    with pytest.raises(ExhumeError, match="token ids"):
        WeightDifference(candidates=3).run(view)


def test_a_network_of_tokens_that_did_not_move():
    model = kinds.of_tokens()
    weights = model.state_dict()
    view = AttackerView(model=model, initial=weights, final=weights, input_shape=(6,), bounds=None)
    result = verdict(audit(view))
    assert result.finding is Finding.UNTESTED
    assert "token ids, which exhume does not reconstruct" in result.sentence
