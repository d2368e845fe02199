"""Searches that are stopped: by a time limit in any step, or by a user. What was not judged by then stays unproven."""

import functools
import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from exhume.attacks import GateCertificate
from exhume.attacks.gates.certificate import Doubt, certify
from exhume.attacks.gates.check import check_rows, read_rows
from exhume.attacks.gates.exchange import exchange_rows
from exhume.attacks.gates.fit import fit_codes
from exhume.attacks.gates.known_inputs import are_trained_on
from exhume.attacks.gates.mixing import may_contain
from exhume.attacks.gates.pool import add_to_pool
from exhume.attacks.gates.precision import fit_families, input_errors
from exhume.attacks.gates.range_ends import touch_range
from exhume.attacks.gates.rows import polish, rows_of_inputs
from exhume.attacks.gates.separation import separate
from exhume.attacks.gates.sums import explain_rows, measure_off_units
from exhume.attacks.levels import are_pinned
from exhume.clues.clues import clues_of
from exhume.core import run_context
from exhume.core.errors import ExhumeError
from exhume.core.run_context import GRACE_SECONDS, GRACE_SHARE, OutOfTime, RunContext
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Outcome, Reconstruction
from tests.attacks.gates.dark_images import dark_images, pose
from tests.attacks.gates.evidence_victims import gradient_view
from tests.attacks.gates.victims import draw, problem_of, random_rows, score, solved_problem, view_of

IN_ROUNDS = GateCertificate(rounds=24, patience=6, starts=4)
"""Few starting points, so that the search takes several rounds."""
BLOCKS = 6
"""Number of parts of the ending that a deadline can stop, each at one more report."""


def digits_view() -> AttackerView:
    return view_of(draw("digits", 12), MLP(width=256))


@functools.cache
def whole_recovery() -> Reconstruction:
    return IN_ROUNDS.run(digits_view(), device="cpu")


def stop() -> None:
    raise OutOfTime


def _touch(tick):
    problem, codes = pose(dark_images(6))
    touch_range(problem, codes, codes[:0], tick)


def _trust(tick):
    problem, codes = pose(dark_images(6))
    are_trained_on(problem, codes, codes, tick=tick)


def _separate(tick):
    view = gradient_view(draw(size=16), MLP(width=256, depth=1))
    separate(view, clues_of(view).require_gate_subspace(), problem_of(view), tick)


def _certify(tick):
    problem, rows, _ = solved_problem()
    checked = check_rows(problem, rows)
    certify(problem, checked, checked.log_p, 1.0, tick=tick)


STEPS = {
    "are_pinned": lambda tick: are_pinned(dark_images(4), dark_images(4), tick),
    "are_trained_on": _trust,
    "certify": _certify,
    "separate": _separate,
    "touch_range": _touch,
}
"""Steps with evidence of their own."""
STEPS_OF_ROWS = {
    "add_to_pool": lambda problem, rows, _, tick: add_to_pool(problem, rows[:0], rows[:0, 0], rows, -1.0, tick),
    "check_rows": lambda problem, rows, _, tick: check_rows(problem, rows[:12], tick),
    "exchange_rows": lambda problem, rows, _, tick: exchange_rows(problem, rows, random_rows(problem, 4), tick),
    "explain_rows": lambda problem, rows, inputs, tick: explain_rows(problem, rows, inputs, tick),
    "fit_codes": lambda problem, rows, _, tick: fit_codes(problem, rows, tick=tick),
    "fit_families": lambda problem, rows, _, tick: fit_families(problem, rows, tick),
    "input_errors": lambda problem, rows, _, tick: input_errors(problem, rows, tick=tick),
    "may_contain": lambda problem, rows, inputs, tick: may_contain(problem, rows, inputs @ problem.basis, tick=tick),
    "measure_off_units": lambda problem, rows, inputs, tick: measure_off_units(problem, rows, inputs, tick),
    "polish": lambda problem, rows, _, tick: polish(problem, rows, tick=tick),
    "rows_of_inputs": lambda problem, _, inputs, tick: rows_of_inputs(problem, inputs @ problem.basis, None, tick=tick),
}
"""Steps that take rows with their inputs."""


@pytest.mark.parametrize("name", [*STEPS, *STEPS_OF_ROWS])
def test_every_long_step_can_be_stopped(name):
    with pytest.raises(OutOfTime):
        STEPS[name](stop) if name in STEPS else STEPS_OF_ROWS[name](*solved_problem(), stop)


def test_rows_that_are_only_read_are_those_that_are_checked():
    problem, rows, _ = solved_problem()
    checked, read = check_rows(problem, rows), read_rows(problem, rows)
    assert read.inputs.equal(checked.inputs)
    assert read.log_p.equal(checked.log_p)
    assert not read_rows(problem, rows[:12]).is_complete


def end_at_once(context):
    return replace(context, deadline=-math.inf, is_ending=True)


def test_without_time_to_judge_inputs_are_found_and_none_is_certified(monkeypatch):
    monkeypatch.setattr(RunContext, "with_grace", end_at_once)
    found = IN_ROUNDS.run(digits_view(), device="cpu", keep_partial=True)
    assert len(found) == 12
    assert score(found, draw("digits", 12).train.inputs).recovered >= 10
    assert not bool(found.certified.any())
    assert found.outcome is Outcome.NOTHING_FOUND
    assert set(found.diagnostics["doubts"]) == {Doubt.TIME}
    assert "stopped_at" in found.diagnostics


def test_what_was_not_judged_is_judged_later_without_another_search(tmp_path, monkeypatch):
    file, notes = tmp_path / "rows.safetensors", []
    for keep_partial in (True, False):
        with monkeypatch.context() as without_grace:
            without_grace.setattr(RunContext, "with_grace", end_at_once)
            if keep_partial:
                IN_ROUNDS.run(digits_view(), device="cpu", checkpoint=file, keep_partial=True)
            else:
                with pytest.raises(OutOfTime):
                    IN_ROUNDS.run(digits_view(), device="cpu", checkpoint=file)
        assert file.is_file()
        resumed = IN_ROUNDS.run(
            digits_view(), device="cpu", checkpoint=file, progress=lambda *report: notes.append(report[3])
        )
        assert set(notes) == {"certify"}
        assert replace(resumed, seconds=0.0) == replace(whole_recovery(), seconds=0.0)


def test_an_interrupted_search_ends_the_same(tmp_path, monkeypatch):
    view, whole = digits_view(), whole_recovery()
    monkeypatch.setattr("exhume.core.checkpoint.SAVE_SECONDS", 0.0)

    class StopError(Exception):
        pass

    def stop_at_round(number):
        def progress(stage, done, total, note):
            if note == f"round {number}":
                raise StopError

        return progress

    file = tmp_path / "rows.safetensors"
    for number in (1, 2):
        with pytest.raises(StopError):
            IN_ROUNDS.run(view, device="cpu", checkpoint=file, progress=stop_at_round(number))
    resumed = IN_ROUNDS.run(view, device="cpu", checkpoint=file)
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    with pytest.raises(ExhumeError, match="other settings"):
        IN_ROUNDS.run(view, seed=1, device="cpu", checkpoint=file)


@pytest.mark.parametrize("report", [1, 3])
def test_a_search_that_is_stopped_saves_its_state_however_short_it_was(tmp_path, report):
    view, file, seen = digits_view(), tmp_path / "rows.safetensors", []

    def stop(stage, done, total, note):
        seen.append(note)
        if seen.count("round 2") == report:  # a round reports more than once
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        IN_ROUNDS.run(view, device="cpu", checkpoint=file, progress=stop)
    assert file.is_file()
    notes = []
    resumed = IN_ROUNDS.run(view, device="cpu", checkpoint=file, progress=lambda *report: notes.append(report[3]))
    assert notes[0] == "round 2"
    assert replace(resumed, seconds=0.0) == replace(whole_recovery(), seconds=0.0)


@pytest.mark.parametrize("seconds", [0, 3, 40, 200, 260, 1000])
def test_a_limit_at_any_report_is_kept_and_certifies_nothing_false(monkeypatch, seconds):
    clock = itertools.count()  # a second per report
    monkeypatch.setattr(run_context, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    found = IN_ROUNDS.run(digits_view(), device="cpu", seconds=float(seconds), keep_partial=True)
    assert next(clock) <= (1 + GRACE_SHARE) * seconds + GRACE_SECONDS + BLOCKS + 3
    assert score(found, draw("digits", 12).train.inputs).false == 0
