"""The interface of attacks: checks come first, the seed decides, and the result is complete and on the CPU."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from exhume.attacks import Attack
from exhume.core.errors import ExhumeError, Refusal
from exhume.core.run_context import OutOfTime
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Outcome, Reconstruction


@dataclass(frozen=True, kw_only=True)
class RandomGuesses(Attack):
    """Return random inputs."""

    candidates: int = 3

    def check(self, view):
        if self.candidates < 1:
            raise Refusal("There is nothing to guess.")

    def recover(self, view, context):
        for done in range(3):
            context.report("guess", done, 3)
        inputs = torch.rand(self.candidates, *view.input_shape, generator=context.generator)
        return Reconstruction(
            inputs=inputs,
            certified=torch.zeros(len(inputs), dtype=torch.bool),
            confidence=torch.zeros(len(inputs)),
            outcome=Outcome.STALLED,
            message="Guesses only.",
            diagnostics={"checkpoint": str(context.checkpoint)},
        )


@pytest.fixture(scope="module")
def view():
    model = MLP(width=4).build((1, 2, 3), 1)
    return AttackerView(model=model, final=model.state_dict(), input_shape=(1, 2, 3))


def test_the_seed_decides_and_is_recorded_with_the_settings(view):
    one, same, other = (RandomGuesses().run(view, seed=seed, device="cpu") for seed in (5, 5, 6))
    assert torch.equal(one.inputs, same.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert (one.seed, other.seed) == (5, 6)
    assert one.attack == "RandomGuesses(candidates=3)"
    assert one.seconds > 0


def test_progress_and_checkpoint_reach_the_search(view, tmp_path):
    reports = []
    found = RandomGuesses().run(
        view, device="cpu", progress=lambda *report: reports.append(report[:3]), checkpoint=tmp_path / "state"
    )
    assert reports == [("guess", 0, 3), ("guess", 1, 3), ("guess", 2, 3)]
    assert found.diagnostics["checkpoint"] == str(tmp_path / "state")


def test_a_refusal_comes_before_the_search(view):
    def fail(*report):
        raise AssertionError("the search began")

    with pytest.raises(Refusal, match="nothing to guess"):
        RandomGuesses(candidates=0).run(view, device="cpu", progress=fail)


def test_the_attack_stops_when_its_time_is_spent(view):
    reports = []
    with pytest.raises(OutOfTime):
        RandomGuesses().run(view, device="cpu", seconds=0.0, progress=lambda *report: reports.append(report))
    assert len(reports) == 1, "the first report after the limit stops it"
    assert len(RandomGuesses().run(view, device="cpu", seconds=1e6)) == 3


class ReturnsDict(nn.Linear):
    def forward(self, inputs):
        return {"left": super().forward(inputs.flatten(1)), "right": inputs}


@pytest.mark.parametrize(
    ("model", "message"),
    [(ReturnsDict(6, 1), "dict"), (nn.Sequential(nn.Flatten(), nn.Linear(7, 1)), "inputs of shape")],
)
def test_models_that_cannot_be_attacked_are_refused(view, model, message):
    with pytest.raises(ExhumeError, match=message):
        RandomGuesses().run(replace(view, model=model, final=model.state_dict()), device="cpu")
