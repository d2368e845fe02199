"""What every architecture is: frozen settings that build a module, and that a file can name."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from exhume.core.errors import ExhumeError, RecordError
from exhume.core.text import first_sentence

if TYPE_CHECKING:  # settings load without torch, so that the command line starts quickly
    import torch


def choose(setting: str, value: str, known: Collection[str]) -> None:
    """Raise unless a setting is one of the known words, which the message lists.

    >>> choose("bias", "some", ("all", "none"))
    Traceback (most recent call last):
    exhume.core.errors.ExhumeError: There is no bias 'some'; choose from all, none.
    """
    if value not in known:
        raise ExhumeError(f"There is no {setting} {value!r}; choose from {', '.join(known)}.")


@dataclass(frozen=True, kw_only=True)
class Architecture(ABC):
    """Settings of a network, complete but for the shapes at its two ends.

    A subclass is a frozen dataclass whose fields are plain JSON values; its name is how files refer to it.
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
        """Return the settings as JSON values, with the name of the kind under ``kind``."""
        return {"kind": type(self).__name__, **asdict(self)}

    @staticmethod
    def from_description(description: Mapping[str, Any]) -> "Architecture":
        """Rebuild an architecture from what :meth:`describe` returned."""
        settings = dict(description)
        kind = settings.pop("kind", None)
        known = Architecture._kinds.get(str(kind))
        if known is None:
            raise RecordError(
                f"The file names an unknown architecture {kind!r}; known are {sorted(Architecture._kinds)}."
            )
        try:
            return known(**settings)
        except TypeError as error:
            raise RecordError(f"The settings of {kind} in the file do not fit: {first_sentence(error)}.") from error
