"""Inputs that explain the evidence: near the true ones, by the attack that was asked for, where one applies."""

from dataclasses import replace

import pytest
import torch

from exhume.attacks.gates.compression import compress_values
from exhume.attacks.gates.explaining import explanations
from exhume.attacks.gates.rounds import RowSearch, no_tick
from exhume.attacks.gates.rows import polish
from exhume.clues.clues import clues_of
from exhume.core.run_context import OutOfTime, RunContext
from exhume.models.lower_layers import LowerLayers
from exhume.models.mlp import MLP
from tests.attacks.gates.conv_victims import conv_network, weight_change_view
from tests.attacks.gates.test_gate_certificate import Given
from tests.attacks.gates.victims import cosines, draw, problem_of, true_rows, unit_rows, view_of, with_constant


def source_of(view, warm_start=None, **context):
    problem = problem_of(view)
    compressed, columns = compress_values(problem)
    subspace = clues_of(view).require_gate_subspace()
    ended = RunContext.start(seed=0, **context)
    explain = explanations(view, subspace, columns @ compressed.basis, warm_start, ended, problem.search)
    return compressed, columns, explain


def none(problem):
    return problem.rows.new_zeros(0, problem.rank)


def hits(found, rows):
    return int((cosines(found, rows).amax(dim=0) > 1 - 1e-4).sum())


@pytest.fixture(scope="module")
def crowded():
    """A network with five units per example, in which random inputs find few rows."""
    data = draw("digits", 24, classes="all")
    return data, view_of(data, model=MLP(width=128, depth=2))


def test_inputs_that_explain_the_evidence_find_more_rows_than_random_ones(crowded):
    data, view = crowded
    problem, _, explain = source_of(view)
    rows = true_rows(view, data.train.inputs)
    search = RowSearch(problem=problem, generator=torch.Generator().manual_seed(0), starts=None)
    explained = polish(problem, search._rows_of(explain(0, none(problem), no_tick)))
    random = torch.randn(48, problem.rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_chance = polish(problem, search._rows_of(problem.strengths * random))
    assert hits(explained, rows) >= 8
    assert hits(explained, rows) > 2 * hits(by_chance, rows)


def test_known_rows_leave_an_easier_problem(crowded):
    data, view = crowded
    problem, _, explain = source_of(view)
    rows = true_rows(view, data.train.inputs)
    search = RowSearch(problem=problem, generator=torch.Generator().manual_seed(0), starts=None)
    known, missing = rows[:12], rows[12:]
    inputs = explain(0, known, no_tick)
    assert len(inputs) == 2 * len(missing)
    assert hits(polish(problem, search._rows_of(inputs)), missing) >= 10


def test_the_attack_that_was_asked_for_is_asked_first(crowded):
    data, view = crowded
    images = tuple(data.train.inputs)
    problem, columns, explain = source_of(view, warm_start=Given(images=images))
    given = with_constant(view, data.train.inputs)
    torch.testing.assert_close(explain(0, none(problem), no_tick), given @ columns @ problem.basis)
    assert len(explain(0, none(problem), no_tick)) == 2 * problem.rank


def test_the_deadline_ends_an_explanation(crowded):
    _, view = crowded
    problem, _, explain = source_of(view, seconds=0.0)
    with pytest.raises(OutOfTime):
        explain(0, none(problem), no_tick)


def test_the_callback_can_stop_an_explanation(crowded):
    _, view = crowded

    def stop():
        raise KeyboardInterrupt

    problem, _, explain = source_of(view)
    with pytest.raises(KeyboardInterrupt):
        explain(0, none(problem), stop)


def test_an_attack_that_refuses_is_not_asked(crowded):
    _, view = crowded
    gradient = {name: view.final[name] - view.initial[name] for name in ("layer1.weight", "layer1.bias")}
    assert source_of(replace(view, initial=None, gradient=gradient))[2] is None


def test_features_that_explain_the_evidence_find_rows_of_a_head():
    data = draw("digits", 24)
    view = weight_change_view(conv_network(width=384), data, frozen=True, steps=10, lr=0.05)
    problem, _, explain = source_of(view)
    features = LowerLayers(view.module(view.final), "hidden")(data.to_model(data.train.inputs)).double()
    read = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
    subspace = clues_of(view).require_gate_subspace()
    rows = unit_rows(torch.linalg.lstsq(read.T, subspace.layer.change).solution, subspace.rows)
    search = RowSearch(problem=problem, generator=torch.Generator().manual_seed(0), starts=None)
    explained = polish(problem, search._rows_of(explain(0, none(problem), no_tick)))
    assert hits(explained, rows) >= 8
    assert hits(explained, rows) > 2 * hits(search._rows_by_silence(), rows)
    known, missing = rows[:12], rows[12:]
    assert hits(polish(problem, search._rows_of(explain(0, known, no_tick))), missing) >= 8
