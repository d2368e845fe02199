"""Callbacks of training libraries: the audit at the end of a training finds what the training data were."""

import importlib.util
import sys

import pytest
import torch
from torch import nn

import exhume
from exhume.auditing.callbacks import AuditRecorder, lightning_callback, trainer_callback
from exhume.core.errors import ExhumeError

LIGHTNING = next((name for name in ("lightning", "pytorch_lightning") if importlib.util.find_spec(name)), None)
STEPS, RATE = 150, 0.1


class Classifier(nn.Module):
    """A module that wraps its network, as users of both libraries write it."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 2))

    def loss(self, inputs, labels):
        return nn.functional.cross_entropy(self.network(inputs), labels)


def digits():
    return exhume.load("digits", classes="odd-even", size=6, test=0, centre=False)


def recorder(folder) -> AuditRecorder:
    return AuditRecorder(
        input_shape=(1, 8, 8), folder=folder, part="network", data=digits(), attacks=[exhume.attacks.GateCertificate()],
        known={"bounds": (0.0, 1.0)},
    )  # fmt: skip


def assert_recovered(made: AuditRecorder, folder) -> None:
    assert made.audited is not None
    found = made.audited.evaluations["gate-certificate"]
    assert found.certified_exact >= 5
    assert found.false_certificates == 0
    assert (folder / "report.html").is_file()


def test_a_plain_loop_is_recorded_and_audited(tmp_path):
    module, made, data = Classifier(), recorder(tmp_path), digits().train
    with pytest.raises(ExhumeError, match="call begin"):
        made.end(module)
    made.begin(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        module.loss(data.inputs, data.labels).backward()
        optimiser.step()
    module.train()
    made.end(module)
    assert_recovered(made, tmp_path)


def test_a_part_that_does_not_exist_is_named(tmp_path):
    made = AuditRecorder(input_shape=(1, 8, 8), folder=tmp_path, part="body")
    with pytest.raises(ExhumeError, match="no part named 'body'"):
        made.begin(Classifier())


@pytest.mark.parametrize(("make", "library"), [(lightning_callback, "lightning"), (trainer_callback, "transformers")])
def test_a_library_that_is_missing_is_named(make, library, tmp_path, monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ExhumeError, match=f"needs {library}, which is not installed"):
        make(recorder(tmp_path))


@pytest.mark.filterwarnings("ignore")  # Lightning comments on loggers, workers and its own imports
@pytest.mark.skipif(LIGHTNING is None, reason="Lightning is not installed")
def test_lightning_audits_at_the_end_of_fit(tmp_path):
    library = importlib.import_module("lightning.pytorch" if LIGHTNING == "lightning" else "pytorch_lightning")
    data = digits().train

    class Module(Classifier, library.LightningModule):
        def training_step(self, batch):
            return self.loss(*batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    batches = torch.utils.data.DataLoader(list(zip(data.inputs, data.labels, strict=True)), batch_size=6)
    made = recorder(tmp_path)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    library.Trainer(max_epochs=STEPS, callbacks=[lightning_callback(made)], **quiet).fit(Module(), batches)
    assert_recovered(made, tmp_path)


@pytest.mark.filterwarnings("ignore")  # transformers comments on its own arguments
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "accelerate")),
    reason="transformers and accelerate are not installed",
)
def test_the_hugging_face_trainer_audits_at_the_end(tmp_path):
    import transformers

    class Model(Classifier):
        def forward(self, inputs, labels):
            return {"loss": self.loss(inputs, labels)}

    data = digits().train
    rows = [{"inputs": image, "labels": label} for image, label in zip(data.inputs, data.labels, strict=True)]
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"), per_device_train_batch_size=6, num_train_epochs=STEPS, optim="sgd",
        learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0.0, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    made = recorder(tmp_path)
    transformers.Trainer(Model(), settings, train_dataset=rows, callbacks=[trainer_callback(made)]).train()
    assert_recovered(made, tmp_path)
