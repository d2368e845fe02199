"""Cost of one step of the weight-difference attack: seconds, memory, and growth with the size of the problem."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numerical_only  # noqa: F401 # before exhume
import torch
from measuring import peak_megabytes, seconds_of, slope
from plain_torch import double_backpropagation, softplus_network
from presets import Preset, Row

import exhume
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.devices import has_fast_bfloat16
from exhume.optimise import Adam, minimise
from exhume.records import AttackerView

BOX = (-0.5, 0.5)


@dataclass(frozen=True)
class StepCase:
    """A problem of any size for a step of the weight-difference attack."""

    view: AttackerView
    problem: WeightChange
    start: tuple[torch.Tensor, torch.Tensor]
    network: torch.nn.Module
    points: list[dict[str, torch.Tensor]]

    @classmethod
    def of(cls, preset: Preset, *, size: int, candidates: int, width: int, pixels: int) -> "StepCase":
        """Train a network on noise for some steps, and draw candidates."""
        generator, device = torch.Generator().manual_seed(0), preset.device
        images = [torch.rand(size, pixels, generator=generator) - 0.5 for _ in range(2)]
        splits = [exhume.Split(inputs=inputs, labels=torch.arange(size) % 2) for inputs in images]
        data = exhume.Dataset(name="noise", train=splits[0], holdout=splits[1], classes=("odd", "even"), bounds=BOX)
        victim = exhume.train(data, model=exhume.MLP(width=width), steps=preset.training_steps, device=device, seed=0)
        view = victim.view().to(torch.device(device))
        inputs = 0.2 * torch.randn(candidates, pixels, generator=generator)
        duals = (torch.rand(2, candidates, 1, generator=generator) - 0.5) / candidates
        names = list(softplus_network(width, pixels).state_dict())
        points = [dict(zip(names, end.values(), strict=True)) for end in _ends(view)]
        problem = _problem(view, SearchSpace(pixels), candidates)
        network = softplus_network(width, pixels).to(device)
        return cls(view, problem, (inputs.to(device), duals.to(device)), network, points)

    @classmethod
    def usual(cls, preset: Preset, candidates: int | None = None) -> "StepCase":
        """Return the problem of a preset, by default with two candidates per image."""
        candidates = 2 * preset.size if candidates is None else candidates
        return cls.of(preset, size=preset.size, candidates=candidates, width=preset.width, pixels=preset.pixels)

    def inside(self) -> tuple[WeightChange, tuple[torch.Tensor, torch.Tensor]]:
        """Return the problem in the subspace of the inputs, the default of the attack, and a starting point."""
        space = SearchSpace.spanned_by(clues_of(self.view).require_subspace(), torch.float32)
        return _problem(self.view, space, len(self.start[0])), (space.project(self.start[0]), self.start[1])

    def ours(self, steps: int) -> Callable[[], object]:
        """Return work that takes steps of the attack."""
        descent = Adam(steps=steps, learning_rates=(1e-4, 1e-4), decay="none")
        return lambda: minimise(self.problem.objective, self.start, descent)

    def plain(self, steps: int, *, sparing: bool = True) -> Callable[[], torch.Tensor]:
        """Return work that takes the same steps by autograd."""
        given = (self.network, self.points, self.problem.target, self.start, BOX, 0.1, 1e-4)
        return lambda: double_backpropagation(*given, sparing=sparing)(steps)


def _ends(view: AttackerView) -> list[dict[str, torch.Tensor]]:
    assert view.initial is not None
    return [dict(view.initial), dict(view.final)]


def _problem(view: AttackerView, space: SearchSpace, candidates: int) -> WeightChange:
    problem = WeightChange.of(view, _ends(view), space, box_weight=0.1, sharpness=(10.0, 10.0))
    return problem.compacted(candidates)


def compare_step(preset: Preset) -> Iterator[Row]:
    """Compare a step of the attack with double back-propagation: same objective, candidates and Adam."""
    case = StepCase.usual(preset)
    ours, theirs = case.ours(3), case.plain(3)
    assert abs(float(theirs()) / ours().value - 1) < 1e-3, "both must minimise the same objective"  # type: ignore[attr-defined]
    inside, coordinates = case.inside()
    exact = Adam(steps=preset.steps, learning_rates=(1e-4, 1e-4), decay="none")
    coarse = replace(exact, coarse_share=1.0)
    short = torch.bfloat16 if preset.device == "cpu" and has_fast_bfloat16() else torch.float32
    works: dict[str, Callable[[], object]] = {
        "all pixels, float32": case.ours(preset.steps),
        "inside the subspace, float32": lambda: minimise(inside.objective, coordinates, exact),
        f"inside the subspace, {'tf32' if preset.device == 'cuda' else 'bfloat16 products'}": lambda: minimise(
            inside.objective, coordinates, coarse, coarse=inside.rounded(short).objective
        ),
    }
    plain = {
        "autograd": case.plain(preset.steps),
        "autograd as scripts call it, backward()": case.plain(preset.steps, sparing=False),
    }
    seconds = seconds_of(*plain.values(), *works.values(), device=preset.device, rounds=preset.rounds)
    slow, fast = dict(zip(plain, seconds, strict=False)), dict(zip(works, seconds[len(plain) :], strict=True))
    for theirs_label, ours_label in itertools.product(slow, fast):
        yield Row(
            what=f"weight-difference step against {theirs_label}, {ours_label}",
            setting=f"N = {preset.size}, M = {2 * preset.size}, W = {preset.width}, d = {preset.pixels}, both ends",
            ours=1e3 * fast[ours_label] / preset.steps, theirs=1e3 * slow[theirs_label] / preset.steps, unit="ms",
            ratio=slow[theirs_label] / fast[ours_label],
        )  # fmt: skip


def compare_compiled(preset: Preset) -> Iterator[Row]:
    """Compare a step with itself through torch.compile, which needs a C++ compiler (or Triton) and time."""
    case = StepCase.usual(preset)
    inside, coordinates = case.inside()
    descent = Adam(steps=preset.steps, learning_rates=(1e-4, 1e-4), decay="none")
    objective = torch.compile(inside.objective)
    started = time.perf_counter()
    minimise(objective, coordinates, replace(descent, steps=1))
    waited = time.perf_counter() - started
    plain, fused = seconds_of(
        lambda: minimise(inside.objective, coordinates, descent), lambda: minimise(objective, coordinates, descent),
        device=preset.device, rounds=preset.rounds,
    )  # fmt: skip
    yield Row(
        what="weight-difference step against itself through torch.compile",
        setting=f"N = {preset.size}, M = {2 * preset.size}, W = {preset.width}, inside the subspace, float32",
        ours=1e3 * plain / preset.steps, theirs=1e3 * fused / preset.steps, unit="ms", ratio=fused / plain,
        note=f"compiling took {waited:.0f} s",
    )  # fmt: skip


def compare_memory(preset: Preset) -> Iterator[Row]:
    """Compare peak memory with double back-propagation, and as the candidates double, with and without chunks."""
    case = StepCase.usual(preset)
    fast, slow = (peak_megabytes(work, preset.device) for work in (case.ours(2), case.plain(2)))
    setting = f"N = {preset.size}, M = {2 * preset.size}, W = {preset.width}, d = {preset.pixels}"
    yield Row(
        what="peak memory of a step against double back-propagation",
        setting=setting, ours=fast, theirs=slow, unit="MiB", ratio=slow / fast,
    )  # fmt: skip
    at_once, few, many = preset.candidates
    for label, chunk in (("all at once", None), (f"{at_once} at a time", at_once)):
        peaks = [_peak_inside(preset, candidates, chunk) for candidates in (few, many)]
        yield Row(
            what=f"peak memory when candidates double, {label}", setting=f"M = {few} and {many}, W = {preset.width}",
            ours=peaks[0], theirs=peaks[1], unit="MiB", ratio=peaks[1] / peaks[0], note="growth; flat is 1",
        )  # fmt: skip


def _peak_inside(preset: Preset, candidates: int, chunk: int | None) -> float:
    """Return the peak memory of steps inside a subspace, the default of the attack."""
    problem, start = StepCase.usual(preset, candidates).inside()
    descent = Adam(steps=8, learning_rates=(1e-4, 1e-4))
    return peak_megabytes(lambda: minimise(replace(problem, at_once=chunk).objective, start, descent), preset.device)


def fit_growth(preset: Preset) -> Iterator[Row]:
    """Fit exponents to the cost of a step against the number of images, the width and the pixels."""
    base = {"N": preset.size, "W": preset.width, "d": preset.pixels}
    for name, values in (("N", preset.sizes), ("W", preset.widths), ("d", preset.dimensions)):
        seconds = []
        for value in values:
            at = base | {name: value}
            case = StepCase.of(preset, size=at["N"], candidates=2 * at["N"], width=at["W"], pixels=at["d"])
            steps = max(2, preset.steps // 2)
            seconds += seconds_of(case.ours(steps), device=preset.device, rounds=max(1, preset.rounds // 2))
        exponent = slope(values, seconds)
        fixed = ", ".join(f"{other} = {value}" for other, value in base.items() if other != name)
        yield Row(
            what=f"cost of a step as {name} grows", setting=f"{name} = {', '.join(map(str, values))}; {fixed}",
            ours=1e3 * seconds[0] / steps, theirs=1e3 * seconds[-1] / steps, unit="ms", ratio=exponent,
            note=f"fitted exponent: cost ~ {name}^{exponent:.2f}; from the first to the last",
        )  # fmt: skip
