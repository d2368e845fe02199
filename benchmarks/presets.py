"""What the benchmarks compare, and how much of it: rows of a table, victims and presets."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison."""

    what: str
    setting: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float | None = None
    """Theirs over ours, unless ``note`` states otherwise."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A network and the size of its training set."""

    source: str
    size: int
    width: int
    is_certified: bool = True
    """Whether to run the certificate too; on networks that are too narrow it searches for long and finds little."""
    released: tuple[float, int] | None = None
    """Seconds and good images of the released code of Loo et al. (2023) on one H200."""


@dataclass(frozen=True, kw_only=True)
class FinalWeightsCase:
    """The size of a problem of final weights."""

    size: int
    """Number of training images, which is the dimension of their span."""
    width: int
    pixels: int
    outputs: int
    runs: int
    upper_layers: float = 1.0
    """Weight of the layers above the first, as in the attacks."""

    @property
    def candidates(self) -> int:
        """Two per training image."""
        return 2 * self.size

    @property
    def setting(self) -> str:
        """The sizes, for a table."""
        layers = "" if self.upper_layers else ", first layer"
        return (
            f"N = {self.size}, M = {self.candidates}, W = {self.width}, d = {self.pixels}, {self.outputs} outputs, "
            f"{self.runs} runs{layers}"
        )


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How much to measure."""

    device: str
    rounds: int
    steps: int
    size: int
    width: int
    pixels: int
    kernel_size: int
    sizes: tuple[int, ...]
    widths: tuple[int, ...]
    dimensions: tuple[int, ...]
    victims: tuple[Victim, ...]
    """Networks whose images are recovered."""
    recipe_steps: int
    """Number of steps of the published recipe, which has 80 000; the table states the number."""
    our_steps: tuple[int, ...]
    """Numbers of steps of our attack, tried in turn until it is as good as the recipe."""
    restarts: int
    restart_victim: Victim
    restart_steps: int
    candidates: tuple[int, int, int]
    """Candidates per chunk, and two numbers of candidates, one twice the other."""
    final_weights: tuple[FinalWeightsCase, ...]
    training_steps: int = 300
    """Training steps of the network whose attack is timed. A full training shows half as many directions again, at
    little more cost per step."""


DIGITS = Victim(source="digits", size=20, width=256)
PRESETS = {
    "small": Preset(
        device="cpu", rounds=1, steps=3, size=5, width=32, pixels=64, kernel_size=10, sizes=(4, 8), widths=(16, 32),
        dimensions=(32, 64), victims=(replace(DIGITS, size=4, width=128),), recipe_steps=50, our_steps=(50, 100),
        restarts=2, restart_victim=replace(DIGITS, size=6, width=64), restart_steps=25, candidates=(8, 16, 32),
        training_steps=50, final_weights=(FinalWeightsCase(size=5, width=32, pixels=64, outputs=2, runs=3),),
    ),
    "cpu": Preset(
        device="cpu", rounds=10, steps=4, size=50, width=1024, pixels=784, kernel_size=200, sizes=(25, 50, 100, 200),
        widths=(256, 512, 1024, 2048), dimensions=(196, 784, 3136), victims=(DIGITS,), recipe_steps=80_000,
        our_steps=(100, 200, 300, 500, 1000, 3000), restarts=8, restart_victim=DIGITS, restart_steps=300,
        candidates=(100, 800, 1600),
        final_weights=(
            FinalWeightsCase(size=20, width=200, pixels=196, outputs=10, runs=6),
            FinalWeightsCase(size=60, width=300, pixels=3072, outputs=1, runs=3),
        ),
    ),
    "gpu": Preset(
        device="cuda", rounds=5, steps=100, size=50, width=1024, pixels=784, kernel_size=200, sizes=(50, 100, 200, 400),
        widths=(512, 1024, 2048, 4096), dimensions=(784, 3072, 12288), recipe_steps=80_000,
        victims=(
            Victim(source="mnist", size=100, width=1024, released=(48.9, 89)),
            Victim(source="mnist", size=200, width=1024, released=(59.1, 135), is_certified=False),
        ),
        our_steps=(1000, 3000, 10_000, 20_000), restarts=32, restart_steps=1000,
        restart_victim=Victim(source="mnist", size=50, width=1024), candidates=(300, 2400, 4800),
        final_weights=(
            FinalWeightsCase(size=500, width=1000, pixels=3072, outputs=1, runs=16),
            FinalWeightsCase(size=500, width=1000, pixels=3072, outputs=1, runs=16, upper_layers=0.0),
            FinalWeightsCase(size=500, width=1000, pixels=3072, outputs=10, runs=16),
            FinalWeightsCase(size=20, width=200, pixels=196, outputs=10, runs=64),
        ),
    ),
}  # fmt: skip
