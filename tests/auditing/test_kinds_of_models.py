"""Networks of different kinds: each ends with a verdict, or with a refusal that a person can act on."""

import copy

import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from exhume.attacks import GateCertificate, WeightDifference
from exhume.attacks.attack import Attack
from exhume.auditing import audit
from exhume.core.errors import ExhumeError
from exhume.evaluation import Finding, verdict
from exhume.records import AttackerView, Dataset
from tests.auditing.audited_networks import digits
from tests.clues.test_subspace import adapted_view

QUICK: list[Attack] = [WeightDifference(steps=20)]


class Residual(nn.Module):
    """A block with batch normalisation and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.inside(inputs)


class WithDictionary(nn.Module):
    """A network that returns its logits beside its features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 96), nn.Linear(96, 1)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        features = self.first(inputs.flatten(1)).relu()
        return {"features": features, "logits": self.last(features)}


class Adapter(nn.Module):
    """A frozen dense layer with a low-rank adapter beside it, not merged."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(64, 96), nn.Linear(64, 4, bias=False), nn.Linear(4, 96, bias=False)
        nn.init.zeros_(self.up.weight)
        self.base.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        return self.base(flat) + self.up(self.down(flat))


def train_view(model: nn.Module, *, adam: bool = False, steps: int = 60) -> AttackerView:
    """Train a module on digits by a plain loop, and return what an attacker holds."""
    split, initial = digits().train, copy.deepcopy(model.state_dict())
    wanted = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser: torch.optim.Optimizer = torch.optim.Adam(wanted, lr=1e-3) if adam else torch.optim.SGD(wanted, lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        returned = model(split.inputs)
        outputs = returned["logits"] if isinstance(returned, dict) else returned
        nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], split.labels.float()).backward()
        optimiser.step()
    final = copy.deepcopy(model.state_dict())
    return AttackerView(model=model, initial=initial, final=final, input_shape=(1, 8, 8))


@pytest.fixture(autouse=True)
def same_weights_every_time():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_a_convolutional_network_trained_with_adam():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))
    assert verdict(audit(train_view(model, adam=True), digits(), attacks=QUICK)).finding is not Finding.UNTESTED


def test_a_residual_network_with_batch_normalisation():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), Residual(), nn.Flatten(), nn.Linear(144, 1))
    audited = audit(train_view(model), digits(), attacks=QUICK)
    assert verdict(audited).finding is not Finding.UNTESTED
    assert any("Batch normalisation" in reason for reason in audited.assessments[0].reasons)


def test_a_table_from_saved_initial_weights():
    bunch = load_breast_cancer()
    records = torch.from_numpy(StandardScaler().fit_transform(bunch.data)).float()
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))
    initial = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        targets = torch.from_numpy(bunch.target[:60]).float()
        nn.functional.binary_cross_entropy_with_logits(model(records[:60])[:, 0], targets).backward()
        optimiser.step()
    view = AttackerView(model=model, initial=initial, final=model.state_dict(), input_shape=(30,), bounds=None)
    data = Dataset.from_arrays(records[:60], records[60:120], bounds=None, features=bunch.feature_names)
    audited = audit(view, data, attacks=QUICK)
    assert verdict(audited).finding is not Finding.UNTESTED
    assert not audited.evaluations["weight-difference"].training_size_is_clear


def test_a_network_that_returns_a_dictionary():
    audited = audit(train_view(WithDictionary()), digits(), attacks=[GateCertificate()])
    assert verdict(audited).finding is Finding.PROVEN


def test_a_merged_and_an_unmerged_adapter():
    merged = audit(adapted_view(rank=4, size=8), digits(), attacks=[GateCertificate()])
    assert merged.evaluations["gate-certificate"].training_size_estimate is None
    assert any("adapter" in reason for reason in merged.assessments[0].reasons)
    assert merged.evaluations["gate-certificate"].certified == 0
    unmerged = train_view(nn.Sequential(Adapter(), nn.ReLU(), nn.Linear(96, 1)))
    assert verdict(audit(unmerged, digits(), attacks=QUICK)).finding is not Finding.UNTESTED


def test_a_network_of_tokens():
    model = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(48, 1))
    weights = model.state_dict()
    view = AttackerView(model=model, initial=weights, final=weights, input_shape=(6,), bounds=None)
    result = verdict(audit(view))
    assert result.finding is Finding.UNTESTED
    assert "token ids, which exhume does not reconstruct" in result.sentence
    with pytest.raises(ExhumeError, match="token ids"):
        WeightDifference(candidates=3).run(view)
