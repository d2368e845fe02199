"""The benchmarks: they run, they compare the same mathematics, and their tools measure correctly."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def tools(monkeypatch):
    """The modules beside the benchmarks, as scripts there see them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import measuring
    import plain_torch

    return measuring, plain_torch


@pytest.fixture(scope="module")
def run_all():
    """The one command that measures everything, loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield runpy.run_path(str(FOLDER / "all.py"))["main"]


def test_one_command_measures_everything(tmp_path, run_all, capsys):
    assert run_all(["--preset", "small", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "benchmarks.json").read_text())
    assert "failed" not in results
    kinds = {row["measurement"] for row in results["rows"]}
    assert kinds == {"step", "kernels", "distillation", "restarts", "memory", "growth", "quality", "final-weights"}
    assert all(row["ratio"] is not None and row["ours"] > 0 for row in results["rows"])
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(results["rows"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "step,nothing"], "there is no 'nothing'"),
        (["--only", ","], "choose from step"),
        pytest.param(
            ["--preset", "gpu"],
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(tmp_path, words, message, run_all, capsys):
    with pytest.raises(SystemExit) as left:
        run_all([*words, "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


NUMERICAL_ONLY = """
import importlib.util, sys
known, absent = importlib.util.find_spec, {"pooch", "jinja2", "pydantic"}
importlib.util.find_spec = lambda name: None if name in absent - set(sys.modules) else known(name)
import reproduce, strangers, gate_certificate, all, controls, near_duplicates, ablation, mixed, sample_splitting
import jinja2, pooch, pydantic
assert not hasattr(pooch, "__file__") and not hasattr(pydantic, "__file__")
assert [known(name).name for name in ("pooch", "jinja2", "pydantic")] == ["pooch", "jinja2", "pydantic"]
from exhume.attacks import WeightDifference
assert WeightDifference(steps=7).steps == 7
"""


def test_benchmarks_run_with_stand_ins_for_missing_packages():
    done = subprocess.run(
        [sys.executable, "-c", NUMERICAL_ONLY], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_peak_of_memory_is_the_largest_allocation(tools):
    measuring, _ = tools

    def work():
        first = torch.zeros(2**18)  # a MiB
        second = torch.zeros(2**19)
        del first
        return second, torch.zeros(2**16)

    assert measuring.peak_megabytes(work, "cpu") == pytest.approx(3.0, abs=0.01)


def test_exponents_are_those_of_power_laws(tools):
    measuring, _ = tools
    assert measuring.slope([1, 10, 100], [5.0, 5e1, 5e2]) == pytest.approx(1.0)
    assert measuring.slope([2, 4, 8], [1.0, 8.0, 64.0]) == pytest.approx(3.0)


def test_the_contraction_is_the_kernel_by_hand(tools):
    _, plain_torch = tools
    network = plain_torch.softplus_network(5, 4).double()
    weights = {name: weight.detach() for name, weight in network.state_dict().items()}
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = []
    for one in inputs:
        network.zero_grad()
        network(one[None]).sum().backward()
        rows.append(torch.cat([parameter.grad.flatten() for parameter in network.parameters()]))
    jacobian = torch.stack(rows)
    torch.testing.assert_close(plain_torch.jacobian_contraction(network, weights, inputs), jacobian @ jacobian.T)


def test_start_up_is_measured_as_a_ratio_to_an_empty_process(tmp_path, monkeypatch):
    benchmark = runpy.run_path(str(FOLDER / "start_up.py"))
    commands = benchmark["COMMANDS"]
    for name in ("import torch", "import exhume", "exhume reproduce", "exhume reproduce --help"):
        monkeypatch.delitem(commands, name)
    benchmark["main"](["--repetitions", "1", "--out", str(tmp_path)])
    rows = {row["command"]: row for row in json.loads((tmp_path / "start_up.json").read_text())["rows"]}
    assert list(rows) == ["python -c pass", "exhume --version", "exhume --help"]
    assert rows["python -c pass"]["ratio"] == 1.0
    assert all(row["seconds"] >= row["least"] > 0 for row in rows.values())


@pytest.fixture
def evidence_scripts(monkeypatch):
    """The benchmarks of gradients and of federated updates."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import federated
    import gradients

    return gradients, federated


def test_every_cell_of_the_gradient_benchmark_hands_out_no_initial_weights(evidence_scripts):
    gradients, _ = evidence_scripts
    batch = gradients.load_batch("digits", 10, 0, None)
    victims = {
        "gradient": gradients.one_gradient(batch, 0, widths=(16,), first_std=0.5),
        "state": gradients.checkpoint(batch, 0, gradients.momentum, size=3, stop_loss=10.0),
    }
    assert all(view.initial is None for view in victims.values())
    assert victims["gradient"].gradient.keys() == victims["gradient"].final.keys()
    assert victims["state"].optimiser_state.optimiser == "SGD"
    moved = gradients.federated_round(batch, 0, epochs=1)
    assert moved.gradient is None
    assert any(not torch.equal(moved.initial[name], moved.final[name]) for name in moved.final)


def test_gradients_are_clipped_and_noised_as_private_training_does(evidence_scripts):
    _, federated = evidence_scripts
    torch.manual_seed(0)
    model, inputs, labels = federated.network(9, 3), torch.randn(4, 1, 3, 3), torch.tensor([0, 1, 2, 0])
    each = federated.per_example(model, inputs, labels)
    torch.nn.functional.cross_entropy(model(inputs), labels, reduction="sum").backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(federated.clipped_sum(each, 1e9)[name], weight.grad)
    alone = federated.clipped_sum({name: part[:1] for name, part in each.items()}, 0.5)
    norm = torch.stack([part.square().sum() for part in alone.values()]).sum().sqrt()
    assert norm.item() == pytest.approx(0.5, rel=1e-5)
    # The analytic Gaussian mechanism needs less noise than the classical bound, and more for a smaller budget.
    assert federated.noise_for(0.5) < (2 * torch.tensor(1.25 / federated.DELTA).log()).sqrt().item() / 0.5
    assert federated.noise_for(100.0) < federated.noise_for(8.0) < federated.noise_for(1.0)


def test_the_change_of_a_client_is_that_of_its_own_training(evidence_scripts):
    gradients, federated = evidence_scripts
    batch = gradients.load_batch("digits", 12, 0, None)
    torch.manual_seed(0)
    model = federated.network(64, 10, 16)
    sent = {name: weight.clone() for name, weight in model.state_dict().items()}
    parts = federated.per_client(model, batch.inputs, batch.labels, 6)
    assert all(torch.equal(weight, sent[name]) for name, weight in model.state_dict().items())
    assert {len(part) for part in parts.values()} == {2}
    assert federated.norms_of(parts).min() > 0
    shortened = federated.clipped_sum({name: part[:1] for name, part in parts.items()}, 1e-3)
    assert float(torch.cat([part.flatten() for part in shortened.values()]).norm()) == pytest.approx(1e-3, rel=1e-4)


def test_gradients_of_several_rounds_belong_to_their_weights(evidence_scripts):
    gradients, _ = evidence_scripts
    batch = gradients.load_batch("digits", 12, 0, None)
    view = gradients.several_gradients(batch, 0, count=3, width=16, apart=2)
    for weights, gradient in [(view.final, view.gradient), *((o.weights, o.gradient) for o in view.more_gradients)]:
        model = view.module(weights).float().requires_grad_()
        gradients.loss_of(model, batch).backward()
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.grad, gradient[name])
    assert len(view.more_gradients) == 2


def test_methods_are_compared_on_the_same_batch(evidence_scripts, tmp_path):
    import gradient_peers

    gradients, _ = evidence_scripts
    batch = gradients.load_batch("digits", 10, 0, None)
    view = gradients.one_gradient(batch, 0, widths=(64,))
    perfect, counts = gradient_peers.compare(batch, batch.inputs.flip(0))
    assert counts == {"exact": 10, "good": 10}
    torch.testing.assert_close(perfect, batch.inputs.float())
    results = {"single units": gradient_peers.compare(batch, gradient_peers.read_single_units(view, batch))}
    results["matching"] = gradient_peers.compare(batch, gradient_peers.match_gradients(view, batch, steps=2))
    results["ICA"] = gradient_peers.compare(batch, gradient_peers.separate_sources(view, batch))
    assert results["matching"][1]["exact"] == 0
    gradient_peers.draw_figure(batch, results, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.fixture
def small(monkeypatch):
    """The benchmarks on small networks: controls, near-duplicates and the ablation."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import ablation
    import controls
    import near_duplicates
    import small_victims

    return small_victims, controls, near_duplicates, ablation


def test_what_an_attacker_holds_is_what_the_training_left(small):
    small_victims, controls, *_ = small
    draw = controls.Draw("digits", "training", 0, None)
    inputs, labels = draw.images()
    model = draw.network(inputs.shape[1])
    held = draw.train(inputs, labels, model=model)
    view = held.view()
    assert all(torch.equal(view.final[name], weight) for name, weight in model.state_dict().items())
    assert any(not torch.equal(view.initial[name], view.final[name]) for name in view.final)
    torch.testing.assert_close(held.seen, inputs.unique(dim=0))
    errors = small_victims.largest_errors(inputs[:2] + 0.25, held.seen)
    assert errors.amin(dim=1).tolist() == pytest.approx([0.25, 0.25])


def test_every_control_can_be_drawn_and_only_random_ones_saw_nothing(small):
    _, controls, *_ = small
    for number, (kind, make) in enumerate(controls.KINDS.items()):
        evidence = controls.EVIDENCE[number % 4]
        draw = controls.Draw("digits", evidence, 3, None)
        draw.steps = min(draw.steps, 20)
        held = make(draw)
        view = held.view()
        has = (view.initial is not None, view.gradient is not None, view.optimiser_state is not None)
        assert has == (evidence == "training", evidence == "gradient", evidence in ("buffer", "adam"))
        assert (len(held.seen) == 0) == (kind == "random_matrices")


def test_controls_count_certificates_of_other_images_as_false(small, tmp_path, capsys):
    small_victims, controls, *_ = small
    held = controls.ordinary(controls.Draw("digits", "gradient", 0, None))
    right = small_victims.attack(held.view(), held.seen, seed=0, seconds=None)
    wrong = small_victims.attack(held.view(), 1 - held.seen, seed=0, seconds=None)
    assert right["certified"] == wrong["certified"] == wrong["false"] > 0 == right["false"]
    words = ["--out", str(tmp_path), "--sources", "digits", "--evidence", "gradient", "--seeds", "1", "--seconds", "5"]
    controls.main([*words, "--kinds", "ordinary"])
    controls.main([*words, "--kinds", "ordinary,adam_as_sgd", "--resume"])
    results = json.loads((tmp_path / "controls.json").read_text())
    assert [line["kind"] for line in results["summary"]] == ["ordinary", "adam_as_sgd", "all controls"]
    assert [line["networks"] for line in results["summary"]] == [1, 1, 1]
    assert len(results["rows"][0]["certificates"]) == results["summary"][0]["certificates"]
    controls.main(["--out", str(tmp_path), "--figure", str(tmp_path / "figure.png")])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| ordinary | 1 |" in capsys.readouterr().out


def test_mixed_victims_are_drawn_from_their_numbers_and_summed_up(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    import mixed

    words = ["--out", str(tmp_path), "--sources", "digits", "--seconds", "5"]
    mixed.main([*words, "--victims", "1"])
    mixed.main([*words, "--victims", "2", "--resume"])
    results = json.loads((tmp_path / "mixed.json").read_text())
    assert [row["case"] for row in results["rows"]] == [mixed.draw_victim(number, ["digits"]) for number in (0, 1)]
    lines = {line["victims"]: line for line in results["summary"]}
    assert lines["all"]["number"] == 2
    assert lines["all"]["exact"] == lines["training"]["exact"] + lines["gradient"]["exact"] > 0
    assert lines["all"]["false"] == lines["all"]["exceptions"] == 0
    assert "| gradient | 1 |" in capsys.readouterr().out


def test_near_duplicates_differ_as_stated_and_are_told_apart(small):
    _, _, near_duplicates, _ = small
    inputs, labels = near_duplicates.make_pairs("digits", "part", 0.3, 0, None, pairs=4)
    smaller, _ = near_duplicates.make_pairs("digits", "part", 0.1, 0, None, pairs=4)
    torch.testing.assert_close(inputs[4:] - inputs[:4], 3 * (smaller[4:] - smaller[:4]))
    assert torch.linalg.matrix_rank(inputs) == 8
    assert torch.equal(labels[:4], labels[4:])
    row = near_duplicates.measure("digits", "part", 0.3, 0, data_dir=None, seconds=20, pairs=4, width=256)
    assert row["images"] == 8
    assert row["told_apart"] <= row["exact"]
    assert row["false"] == 0


def test_the_ablation_knows_every_strategy_of_the_search(small, monkeypatch):
    *_, ablation = small
    for strategy, replaced in ablation.STRATEGIES.items():
        names = [path for path in replaced if "." not in path]
        before = [getattr(ablation.rounds, name) for name in names]
        with ablation.switched_off(strategy):
            assert [getattr(ablation.rounds, name) for name in names] == [replaced[name] for name in names]
        assert [getattr(ablation.rounds, name) for name in names] == before
    monkeypatch.setitem(ablation.STRATEGIES, "renamed", {"no_such_function": ablation.no_rows})
    with pytest.raises(AttributeError, match="no_such_function"), ablation.switched_off("renamed"):
        pass
