"""The summary, table and figure of the defences study."""

from exhume.studies.ours.defence_report import advice, defence_figure, defence_rows


def make_result(accuracy, recovered, certified):
    attacks = {"weight difference": {"recovered": recovered}, "max margin": {"refused": "no decay"}}
    counts = {"recovered": recovered, "certified": certified, "certified_own": certified}
    return {"accuracy": accuracy, "attacks": attacks} | counts


RESULTS = {
    "none": make_result(95.0, 30, 30),
    "float16": make_result(95.0, 29, 20),
    "Adam": make_result(94.0, 1, 0),
    "DP-SGD ε=8": make_result(70.0, 0, 0),
    "KIP": {"skipped": "not installed"},
}


def test_advice_follows_from_the_numbers():
    text = advice(RESULTS, 30)
    assert "reveals 30 of 30" in text
    assert "float16 (29 recovered, 20 certified)" in text
    assert "Adam keeps the most accuracy, 94.0 %" in text
    assert "Only DP-SGD guarantees" in text
    unsafe = {name: RESULTS[name] for name in ("none", "float16")}
    assert "No defence in this comparison protects" in advice(unsafe, 30)
    assert "None of these guarantees" in advice({name: RESULTS[name] for name in ("none", "Adam")}, 30)


def test_rows_name_the_attacks_that_recovered_most():
    rows = {row[0]: row for row in defence_rows(RESULTS)}
    assert rows["none"] == ("none", "95.0", "30", "30", "30", "weight difference")
    assert rows["DP-SGD ε=8"][-1] == "", "nothing was recovered"
    assert rows["KIP"][-1] == "not installed"


def test_skipped_defences_are_not_drawn():
    (axes,) = defence_figure(RESULTS, 30).axes
    names = [text.get_text().partition(":")[0] for text in axes.texts]
    assert sorted(names) == sorted(set(RESULTS) - {"KIP"})
