"""Results in words that agree with their numbers."""

import pytest
import torch

import exhume
from exhume.cli.console import CommandConsole
from exhume.cli.summaries import print_attack, print_training
from exhume.records import Outcome, Reconstruction


@pytest.mark.parametrize(("count", "said"), [(1, "converged: 1 candidate ("), (3, "converged: 3 candidates (")])
def test_candidates_are_counted_in_words(count: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = Reconstruction(
        inputs=torch.zeros(count, 4),
        certified=torch.zeros(count, dtype=torch.bool),
        confidence=torch.zeros(count),
        outcome=Outcome.CONVERGED,
    )
    print_attack(CommandConsole(as_json=False, quiet=False), found)
    assert said in capsys.readouterr().out


def test_one_step_is_one_step(capsys: pytest.CaptureFixture[str]) -> None:
    data = exhume.load("digits", classes="odd-even", size=2, test=0)
    victim = exhume.train(data, model=exhume.MLP(width=4, depth=1), device="cpu", steps=1)
    print_training(CommandConsole(as_json=False, quiet=False), data, victim)
    assert "trained in 1 step to a loss" in capsys.readouterr().out
