"""A trial: trained, attacked and measured once for each setting."""

from dataclasses import replace

from exhume.core.checkpoint import fingerprint
from exhume.studies.grid import Effort
from exhume.studies.study import StudyRun
from exhume.studies.trial import Trial


def test_a_trial_is_measured_once_per_setting(tmp_path):
    trial = Trial(source="digits", size=4, width=16, attack=Effort(steps=5).attack(4), stop_loss=1e-2)
    run = StudyRun(folder=tmp_path, device="cpu")
    first = trial.run(run)
    assert trial.run(run)["seconds"] == first["seconds"]
    assert first["kernel_distance"] > 0
    assert len(first["curve"]) == len(first["null_curve"]) == 4
    replace(trial, seed=1).run(run)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


def test_cells_of_earlier_versions_are_found_again():
    attack = Effort(steps=60).attack(8)
    trial = Trial(source="digits", size=8, width=64, attack=attack, stop_loss=1e-4, pictures=5)
    assert fingerprint({"about": trial.identity})[:8] == "4b875413", "as written before within_subspace was renamed"
