"""Cost and effect of defences, as measured by ``exhume reproduce defences``."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The measurements of one defence."""

    defence: str
    accuracy: float
    """Test accuracy in percent."""
    recovered: int
    """Number of training examples recovered by any attack at 1 % false positives."""
    certified: int


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The measurements of all defences on one network and one training set."""

    command: str
    setting: str
    size: int
    """Number of training examples."""
    measures: tuple[Measure, ...]


def load_bench() -> Bench:
    """Return the measurements that come with this version; see ``docs/defences.md``."""
    read = json.loads((files("exhume.report") / "bench.json").read_text())
    return Bench(**read | {"measures": tuple(Measure(**measure) for measure in read["measures"])})
