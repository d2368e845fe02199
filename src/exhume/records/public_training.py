"""The facts about a training that an attacker may know: what a model card states."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from exhume.core.errors import ExhumeError
from exhume.core.settings import settings

Number = Annotated[int | float, Field(ge=0)]

SECRETS: dict[str, str] = {
    "seed": "the attacker could draw the initial weights again from it",
    "dataset": "an attack must not depend on knowing the data",
    "result": "it is measured on the training data",
}
"""Facts that a view never holds, each with the reason."""
SPELLINGS = {"optimizer": "optimiser", "random_seed": "seed", "data_set": "dataset", "data": "dataset"}
"""Other spellings of names."""


@settings
class PublicTraining:
    """What is publicly known about a training; None: not stated.

    There is no field for a seed, the name of a data set or a result, so a view cannot hold any of them.
    """

    loss: str | None = None
    optimiser: str | None = None
    lr: Number | None = None
    momentum: Number | None = None
    batch_size: PositiveInt | None = None
    training_size: PositiveInt | None = None
    """Number of training examples."""
    weight_decay: Number | None = None
    steps: Number | None = None
    epochs: Number | None = None
    precision: str | None = None
    augmentation: str | bool | int | None = None
    epsilon: Number | None = None
    """Privacy budget of private training, with :attr:`delta`."""
    delta: Number | None = None
    clip: Number | None = None
    """Largest norm of the gradient of one example in private training."""
    noise_multiplier: Number | None = None
    """Standard deviation of the noise of private training, in units of :attr:`clip`."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Further facts by name, as JSON values."""

    def __post_init__(self) -> None:
        for name in self.other:
            secret = SPELLINGS.get(name, name)
            if secret in SECRETS:
                raise ExhumeError(f"A view does not hold the {name} of a training: {SECRETS[secret]}; omit it.")
            if secret in FACTS:
                raise ExhumeError(f"{name} is a fact of its own about a training; state it as {secret}.")

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "PublicTraining":
        """Return what a user states by name; names without a field go to :attr:`other`.

        Raises:
            ExhumeError: when a fact must not be public, such as a seed, or its value does not fit.
        """
        named = {SPELLINGS.get(name, name): value for name, value in facts.items()}
        return cls(
            **{name: value for name, value in named.items() if name in FACTS},
            other={name: value for name, value in named.items() if name not in FACTS},
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "PublicTraining":
        """Return the public part of a complete training record; everything without a field is left out.

        The learning rate has one digit: the fast schedule fits it to the initial weights and the data, so that all of
        its digits would confirm a guess of either.
        """
        public = {name: value for name, value in record.items() if name in FACTS}
        if isinstance(public.get("lr"), float):
            public["lr"] = float(f"{public['lr']:.0e}")
        return cls(**public)

    def facts(self) -> dict[str, Any]:
        """Return the stated facts by name, as JSON values; :meth:`from_facts` is the inverse."""
        stated = {name: getattr(self, name) for name in FACTS}
        return {name: value for name, value in stated.items() if value is not None} | dict(self.other)


FACTS = tuple(f.name for f in fields(PublicTraining) if f.name != "other")
"""Names of the facts that have a field."""
