"""Figure 6: a few reconstructions teach a network."""

from exhume.studies.loo2023.figure6 import few_images_teach_much
from exhume.studies.study import read_result


def test_the_figure_shows_images_and_both_accuracies(run_smoke):
    folder = run_smoke("figure6")
    result = read_result(folder)
    assert (folder / "figure6.png").stat().st_size > 1000
    for name in ("original_accuracy", "retrained_accuracy", "infinite_accuracy"):
        assert 0 <= result["numbers"][name] <= 100
    assert "The paper finds that 20 reconstructions" in result["summary"]


def test_the_observation_can_turn_out_false():
    assert few_images_teach_much({"retrained_accuracy": 72.0, "original_accuracy": 75.0, "copies": 0}).holds
    assert not few_images_teach_much({"retrained_accuracy": 50.0, "original_accuracy": 75.0, "copies": 0}).holds
