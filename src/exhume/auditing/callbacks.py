"""Audits at the end of a training by Lightning or the Hugging Face Trainer: record the initial weights, then audit.

Both libraries are optional and are imported only when their callback is made.
"""

import copy
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from exhume.attacks import Attack
from exhume.auditing.orchestrator import audit
from exhume.core.errors import ExhumeError
from exhume.records import AttackerView, Audit, Dataset
from exhume.report import report


@dataclass(kw_only=True)
class AuditRecorder:
    """Records what an audit needs while a network is trained, and audits it at the end.

    For a training loop of your own, call :meth:`begin` before the first step and :meth:`end` after the last one.
    """

    input_shape: tuple[int, ...]
    """The shape of one input."""
    folder: Path | str
    """Folder for the audit and its ``report.html``; it will show training data."""
    part: str = ""
    """Name of the submodule that is the network; empty for the whole module."""
    data: Dataset | None = None
    """Training and held-out examples to compare recoveries with."""
    attacks: Sequence[Attack] | None = None
    """The attacks to run; None for all that apply."""
    budget: float | None = 10.0
    """Limit for all attacks together, in minutes."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the view, such as ``bounds``, ``offset`` or ``training``."""
    audited: Audit | None = None
    """The audit, once the training has ended."""
    _initial: dict[str, Tensor] | None = None

    def begin(self, module: nn.Module) -> None:
        """Record the initial weights."""
        self._initial = _copy_weights(self._select(module))

    def end(self, module: nn.Module) -> Audit:
        """Audit the trained network, write the report, and return the audit.

        Raises:
            ExhumeError: when the initial weights were not recorded, or the network cannot be audited.
        """
        if self._initial is None:
            raise ExhumeError("The initial weights were not recorded; call begin before the first training step.")
        network = copy.deepcopy(self._select(module)).cpu()
        final = _copy_weights(network)
        view = AttackerView(
            model=network, initial=self._initial, final=final, input_shape=self.input_shape, **dict(self.known)
        )
        self.audited = audit(view, self.data, attacks=self.attacks, budget=self.budget, folder=self.folder)
        report(self.audited, Path(self.folder) / "report.html")
        return self.audited

    def _select(self, module: nn.Module) -> nn.Module:
        try:
            return module.get_submodule(self.part)
        except AttributeError as error:
            raise ExhumeError(f"The module has no part named {self.part!r}.") from error


def lightning_callback(recorder: AuditRecorder) -> Any:
    """Return a Lightning callback that audits the network after ``Trainer.fit``.

    Raises:
        ExhumeError: when Lightning is not installed.
    """
    base = _import_class(("lightning.pytorch", "pytorch_lightning"), "Callback", "pip install lightning")

    class LightningAudit(base):  # type: ignore[misc, valid-type]
        def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
            recorder.begin(pl_module)

        def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
            if getattr(trainer, "is_global_zero", True):
                recorder.end(pl_module)

    return LightningAudit()


def trainer_callback(recorder: AuditRecorder) -> Any:
    """Return a callback for the Hugging Face ``Trainer`` that audits the network after ``Trainer.train``.

    Raises:
        ExhumeError: when transformers is not installed.
    """
    base = _import_class(("transformers",), "TrainerCallback", "pip install transformers")

    class TrainerAudit(base):  # type: ignore[misc, valid-type]
        def on_train_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **_: Any) -> None:
            recorder.begin(model)

        def on_train_end(self, args: Any, state: Any, control: Any, *, model: nn.Module, **_: Any) -> None:
            if getattr(state, "is_world_process_zero", True):
                recorder.end(model)

    return TrainerAudit()


def _import_class(modules: tuple[str, ...], name: str, advice: str) -> Any:
    """Import a class from the first of several modules that is installed."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise ExhumeError(f"This callback needs {modules[0].partition('.')[0]}, which is not installed; run {advice}.")


def _copy_weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().cpu().clone() for name, weight in module.state_dict().items()}
