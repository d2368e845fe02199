"""One case: training with fallback learning rates, and attacks by name."""

import pytest

from exhume.attacks import MaxMargin, Stationarity
from exhume.core.errors import ExhumeError
from exhume.studies.buzaglo2023.cases import LEARNING_RATE_FACTORS, Case, train_case
from exhume.studies.buzaglo2023.noise_in_span import NoiseInSpan
from exhume.studies.study import StudyRun


def test_attacks_are_built_by_name():
    assert isinstance(Case(label="", attack="noise").build_attack(), NoiseInSpan)
    assert Case(label="", settings={"trials": 3}).build_attack() == MaxMargin(trials=3)
    assert Case(label="", attack="tied").build_attack() == Stationarity(multiplier="tied")


class DivergingRun(StudyRun):
    """A run whose trainings diverge above a learning rate."""

    limit: float = 0.0
    tried: tuple[float, ...] = ()

    def train(self, data, *, seed=None, **settings):
        self.tried += (settings["lr"],)
        if settings["lr"] > self.limit:
            raise ExhumeError("The training diverged.")
        return super().train(data, seed=seed, **settings | {"steps": 2})


def test_a_diverging_training_is_repeated_with_a_smaller_learning_rate(tmp_path):
    case = Case(label="", source="digits", size=10, strangers=10, shrink=1, width=4)
    data, run = case.draw(0), DivergingRun(folder=tmp_path, device="cpu")
    run.limit = 0.5 * case.lr
    assert train_case(case, data, 0, run).training["lr"] == 0.3 * case.lr
    assert run.tried == (case.lr, 0.3 * case.lr)
    run.limit, run.tried = 0.0, ()
    with pytest.raises(ExhumeError, match="diverged"):
        train_case(case, data, 0, run)
    assert len(run.tried) == len(LEARNING_RATE_FACTORS)
