"""Conditions for pipelines, such as ``certified>0``, that fail a build."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exhume.core.errors import ExhumeError
from exhume.evaluation.audit_verdict import gravity
from exhume.evaluation.verdict import Finding, verdict_of_evaluation
from exhume.records import Audit, Dataset, Evaluation

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([a-z_0-9]+(?:\.[0-9.]+)?)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_NUMBERS = (
    "candidates", "training_size_estimate", "certified", "certified_examples", "certified_exact", "false_certificates",
    "good", "fine", "exact", "similar", "auc", "relative_auc", "recovered_at_fpr", "relative_recovered_at_fpr",
    "tpr_at_fpr", "relative_tpr_at_fpr", "chance", "relative_chance", "confidence_auc", "kernel_distance",
)  # fmt: skip
_WITHOUT_DATA = ("finding", "candidates", "training_size_estimate", "certified", "kernel_distance")
"""Names that are known without data to compare with."""


@dataclass(frozen=True)
class Condition:
    """A comparison of one number of ``audit.json``, or of the finding, with a limit."""

    text: str
    key: str
    holds_for: Callable[[Any, Any], bool]
    limit: float

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Read ``certified>0``, ``recovered_at_fpr.0.01>=3`` or ``finding>=traces``.

        >>> Condition.read("certified > 0").key
        'certified'
        """
        parts = _FORM.fullmatch(text)
        if parts is None:
            raise ExhumeError(f"A condition has the form NAME>NUMBER, such as certified>0, not {text!r}.")
        key, sign, limit = parts.groups()
        if key == "finding":
            if limit not in set(Finding):
                raise ExhumeError(f"There is no finding {limit!r}; choose from {', '.join(Finding)}.")
            return cls(text, key, _COMPARISONS[sign], float(gravity(Finding(limit))))
        if key.partition(".")[0] not in _NUMBERS:
            raise ExhumeError(f"There is no number {key!r}; choose from finding, {', '.join(_NUMBERS)}.")
        try:
            return cls(text, key, _COMPARISONS[sign], float(limit))
        except ValueError:
            raise ExhumeError(f"{key} is compared with a number, not {limit!r}.") from None

    def check(self, data: Dataset | None) -> None:
        """Raise :class:`~exhume.core.errors.ExhumeError` when the condition needs data and there is none."""
        if data is None and self.key.partition(".")[0] not in _WITHOUT_DATA:
            raise self._unknown()

    def is_met(self, audit: Audit) -> bool:
        """Return whether any evaluation of the audit meets the condition.

        Raises:
            ExhumeError: when the number needs data that was not given.
        """
        return any(self.is_met_by(evaluation) for evaluation in audit.evaluations.values())

    def is_met_by(self, evaluation: Evaluation) -> bool:
        """Return whether one evaluation meets the condition."""
        if self.key == "finding":
            return self.holds_for(gravity(verdict_of_evaluation(evaluation).finding), self.limit)
        value: Any = evaluation.to_json()
        name, _, rate = self.key.partition(".")
        value = value[name]
        if isinstance(value, Mapping):
            value = value.get(rate or "0.01")
        if not isinstance(value, int | float):
            raise self._unknown()
        return self.holds_for(value, self.limit)

    def _unknown(self) -> ExhumeError:
        return ExhumeError(
            f"{self.key} is not known here, so {self.text!r} cannot be decided; give the data that it needs."
        )
