"""Every example runs as it stands, and recovers the private data of a network that exhume did not train."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run an example as a script and return its ``audit.json``."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert end.value.code == 0
    assert (out / "audit" / "report.html").is_file()
    result: dict[str, Any] = json.loads((out / "audit" / "audit.json").read_text())
    assert result["false_certificates"] == 0
    assert result["holdout_exact"] == 0
    return result


def test_a_plain_training_loop_reveals_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("own_model.py", tmp_path, monkeypatch)
    assert result["training_size_estimate"] == 20
    assert result["exact"] >= 18
    assert result["certified_exact"] >= 16


def test_a_fine_tuned_model_reveals_its_base_and_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("fine_tuned.py", tmp_path, monkeypatch)
    assert result["start"]["candidates"][0]["name"].endswith("base-large.safetensors")
    assert result["start"]["stand_ins"] == ["head.bias", "head.weight"]
    assert result["training_size_estimate"] == 10
    assert result["exact"] >= 9
    assert result["certified_exact"] >= 7


def test_records_are_recovered_after_a_search_for_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("tabular.py", tmp_path, monkeypatch)
    assert result["start"]["candidates"][0]["name"] == "seed 1234"
    assert result["exact"] >= 11
    assert result["certified_exact"] >= 10


def test_a_head_above_frozen_convolutions_reveals_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["frozen_trunk.py", "--out", str(tmp_path), "--size", "6"])
    runpy.run_path(str(EXAMPLES / "frozen_trunk.py"), run_name="__main__")
    assert (tmp_path / "found.safetensors").is_file()
    assert int(capsys.readouterr().out.splitlines()[-1].split()[0]) >= 5


def test_a_federated_round_reveals_the_images_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_example("federated.py", tmp_path, monkeypatch)
    assert result["training_size_estimate"] == 12
    assert result["exact"] >= 11


def test_a_strategy_of_flower_audits_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    import torch
    from federated import fit_locally, network
    from flower_strategy import AuditingFedAvg
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images[:12, None] / 16 - 0.3).float()
    labels = torch.from_numpy(bunch.target[:12])

    class InProcess(Grid):
        """Two clients in this process; the messages, the loop and the averaging are Flower's."""

        run = property(lambda self: None)

        def set_run(self, *_: Any) -> None: ...
        def get_node_ids(self) -> list[int]:
            return [1, 2]

        def get_nodes(self) -> Any: ...
        def create_message(self, *_: Any, **__: Any) -> Any: ...
        def push_messages(self, messages: Any) -> Any: ...
        def pull_messages(self, message_ids: Any) -> Any: ...
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
            return [self.train(message) for message in messages if message.metadata.message_type == "train"]

        def train(self, message: Any) -> Any:
            sent = next(iter(message.content.array_records.values())).to_torch_state_dict()
            part = slice(6 * (message.metadata.dst_node_id - 1), 6 * message.metadata.dst_node_id)
            weights = fit_locally(sent, images[part], labels[part])
            content = {"arrays": ArrayRecord(weights), "metrics": MetricRecord({"num-examples": 6})}
            return Message(content=RecordDict(content), reply_to=message)

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what Flower's launcher sets
    strategy = AuditingFedAvg(fraction_evaluate=0.0)
    torch.manual_seed(0)
    strategy.start(grid=InProcess(), initial_arrays=ArrayRecord(network().state_dict()), num_rounds=1)
    assert len(strategy.verdicts) == 2
    assert all("recovered" in verdict for verdict in strategy.verdicts)


@pytest.mark.parametrize("name", ["own_model.py", "fine_tuned.py", "tabular.py", "federated.py"])
def test_training_code_does_not_use_exhume(name: str) -> None:
    above, line, below = (EXAMPLES / name).read_text().partition("# -----")
    assert line
    assert "import" in above
    assert "train_and_audit" in below
    assert "import exhume" not in above
    assert "from exhume" not in above
