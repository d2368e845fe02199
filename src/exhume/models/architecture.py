"""The base of every architecture: frozen settings that build a module and that files store by name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from exhume.core.errors import ExhumeError, RecordError
from exhume.core.settings import settings
from exhume.core.text import first_sentence

if TYPE_CHECKING:  # settings load without torch, so that the command line starts quickly
    import torch


@settings
class Architecture(ABC):
    """Settings of a network, all but the shapes of its inputs and outputs.

    Fields of a subclass are JSON values. Files refer to a subclass by its class name.
    """

    _kinds: ClassVar[dict[str, type["Architecture"]]] = {}

    def __init_subclass__(cls) -> None:
        Architecture._kinds[cls.__name__] = cls

    @abstractmethod
    def build(
        self, input_shape: tuple[int, ...], outputs: int, generator: "torch.Generator | None" = None
    ) -> "torch.nn.Module":
        """Build a freshly initialised float32 module on the CPU, drawing every weight from ``generator``."""

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON values, with the class name under ``kind``."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_description(description: Mapping[str, Any]) -> "Architecture":
        """Rebuild an architecture from what :meth:`describe` returned.

        Raises:
            RecordError: when the class is unknown or its settings do not fit.
        """
        values = dict(description)
        kind = values.pop("kind", None)
        known = Architecture._kinds.get(str(kind))
        if known is None:
            raise RecordError(
                f"The file names an unknown architecture {kind!r}; known are {sorted(Architecture._kinds)}."
            )
        try:
            return known(**values)
        except ExhumeError as error:
            raise RecordError(f"The settings of {kind} in the file do not fit: {first_sentence(error)}.") from error
