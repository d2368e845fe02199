"""What defences cost and what they leave to recover, as ``exhume reproduce defences`` measured it."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One defence on the bench."""

    defence: str
    accuracy: float
    """In percent, on data never seen."""
    recovered: int
    """Training examples recovered at 1 % false positives by any attack."""
    certified: int


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All defences on one network and one training set."""

    command: str
    setting: str
    size: int
    """Training examples."""
    measures: tuple[Measure, ...]


def bench() -> Bench:
    """Return the figures that come with this version; ``docs/defences.md`` explains them."""
    read = json.loads((files("exhume.report") / "bench.json").read_text())
    return Bench(**read | {"measures": tuple(Measure(**measure) for measure in read["measures"])})
