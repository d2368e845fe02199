"""``distil``: a data set like any other, the same for the same seed, and continued after an interruption."""

import pytest

from exhume import MLP, Dataset, train
from exhume.distillation import RKIP, distil
from exhume.training import accuracy
from tests.distillation.distilled_digits import QUICK, load_digits


def test_a_network_trains_on_a_distilled_set_as_on_any_other(tmp_path):
    digits = load_digits()
    made = distil(digits, RKIP(**QUICK), device="cpu")
    assert len(made.train) == 20
    assert made.train.inputs.shape[1:] == digits.train.inputs.shape[1:]
    assert made.train.labels.bincount().tolist() == [10, 10]
    assert made.holdout == digits.holdout
    victim = train(made, model=MLP(width=256), device="cpu", stop_loss=1e-3)
    assert accuracy(victim, digits.test) > 0.75
    made.save(tmp_path / "made.safetensors")
    assert Dataset.load(tmp_path / "made.safetensors") == made


def test_a_seed_fixes_the_set_and_interrupted_work_continues(tmp_path):
    digits, method = load_digits(), RKIP(size=4, steps=60)

    def stop(stage, done, total, note=""):
        if done >= 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distil(digits, method, device="cpu", progress=stop, checkpoint=tmp_path / "state.safetensors")
    resumed = distil(digits, method, device="cpu", checkpoint=tmp_path / "state.safetensors")
    assert resumed == distil(digits, method, device="cpu")
    assert resumed != distil(digits, method, device="cpu", seed=1)
