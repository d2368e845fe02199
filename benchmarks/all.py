"""One table of ratios, measured in one run: ours against the same in plain PyTorch, the paper's recipe, and itself.

    python benchmarks/all.py [--preset small|cpu|gpu] [--out DIR] [--only step,kernels] [--seed 0]

Rows are printed as they come and kept in ``benchmarks.json`` at once, so a run that is cut short keeps what it had.
"""

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from measuring import clock_for, peak_megabytes, seconds_of, slope
from plain import double_backpropagation, jacobian_contraction, softplus_network
from weight_difference import count

import exhume
from distillation import our_steps, textbook_steps
from exhume.attacks import GateCertificate, Restarted, WeightDifference
from exhume.attacks.weight_difference.problem import WeightChange
from exhume.clues.clues import clues_of
from exhume.clues.search_space import SearchSpace
from exhume.core.devices import has_fast_bfloat16
from exhume.distillation.kernel import KIP, RKIP
from exhume.kernels import InfiniteNTK, empirical_ntk
from exhume.optimise import Adam, minimise
from exhume.records import AttackerView

BOX = (-0.5, 0.5)
TRAINED_STEPS = 300
"""Of a network whose steps are timed. A finished one leaves half as many directions again, and costs little more."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison."""

    what: str
    setting: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float | None = None
    """Theirs over ours, or whatever ``note`` says."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A network trained on so many images."""

    source: str
    size: int
    width: int
    is_certified: bool = True
    """Whether to ask for a certificate, too; beyond its frontier it searches for long and finds little."""
    released: tuple[float, int] | None = None
    """Seconds and good images of the released code of Loo et al. (2023) on one H200."""


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
    """Of the published recipe; fewer than 80 000 are no recipe, and said to be so."""
    our_steps: tuple[int, ...]
    restarts: int
    restart_victim: Victim
    restart_steps: int
    candidates: tuple[int, int, int]
    """At a time, and two numbers of candidates, one twice the other."""


DIGITS = Victim(source="digits", size=20, width=256)
PRESETS = {
    "small": Preset(
        device="cpu", rounds=1, steps=3, size=5, width=32, pixels=64, kernel_size=10, sizes=(4, 8), widths=(16, 32),
        dimensions=(32, 64), victims=(replace(DIGITS, size=6, width=256),), recipe_steps=50, our_steps=(50, 100),
        restarts=2, restart_victim=replace(DIGITS, size=6, width=64), restart_steps=25, candidates=(8, 16, 32),
    ),
    "cpu": Preset(
        device="cpu", rounds=10, steps=4, size=50, width=1024, pixels=784, kernel_size=200, sizes=(25, 50, 100, 200),
        widths=(256, 512, 1024, 2048), dimensions=(196, 784, 3136), victims=(DIGITS,), recipe_steps=80_000,
        our_steps=(100, 200, 300, 500, 1000, 3000), restarts=8, restart_victim=DIGITS, restart_steps=300,
        candidates=(100, 800, 1600),
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
    ),
}  # fmt: skip


@dataclass(frozen=True)
class StepCase:
    """Everything a step of the weight-difference attack needs, of any size."""

    view: AttackerView
    problem: WeightChange
    start: tuple[torch.Tensor, torch.Tensor]
    network: torch.nn.Module
    points: list[dict[str, torch.Tensor]]

    @classmethod
    def of(cls, size: int, candidates: int, width: int, pixels: int, device: str) -> "StepCase":
        """Train a network on noise for a while, and draw first guesses."""
        generator = torch.Generator().manual_seed(0)
        images = [torch.rand(size, pixels, generator=generator) - 0.5 for _ in range(2)]
        splits = [exhume.Split(inputs=inputs, labels=torch.arange(size) % 2) for inputs in images]
        data = exhume.Dataset(name="noise", train=splits[0], holdout=splits[1], classes=("odd", "even"), bounds=BOX)
        victim = exhume.train(data, model=exhume.MLP(width=width), steps=TRAINED_STEPS, device=device, seed=0)
        view = victim.view().to(torch.device(device))
        inputs = 0.2 * torch.randn(candidates, pixels, generator=generator)
        duals = (torch.rand(2, candidates, 1, generator=generator) - 0.5) / candidates
        names = list(softplus_network(width, pixels).state_dict())
        points = [dict(zip(names, end.values(), strict=True)) for end in _ends(view)]
        problem = _problem(view, SearchSpace(pixels), candidates)
        network = softplus_network(width, pixels).to(device)
        return cls(view, problem, (inputs.to(device), duals.to(device)), network, points)

    def inside(self) -> tuple[WeightChange, tuple[torch.Tensor, torch.Tensor]]:
        """Return the problem in the subspace of the inputs, as attacks pose it by default, and a start."""
        space = SearchSpace.spanned_by(clues_of(self.view).require_subspace(), torch.float32)
        return _problem(self.view, space, len(self.start[0])), (space.project(self.start[0]), self.start[1])

    def ours(self, steps: int) -> Callable[[], object]:
        """Return work that takes steps as the attack does."""
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
    posed = WeightChange.of(view, _ends(view), space, box_weight=0.1, sharpness=(10.0, 10.0))
    return posed.compacted(candidates)


def step(preset: Preset) -> Iterator[Row]:
    """A step of the attack against double back-propagation in all pixels: same objective, candidates and Adam."""
    case = StepCase.of(preset.size, 2 * preset.size, preset.width, preset.pixels, preset.device)
    ours, theirs = case.ours(3), case.plain(3)
    assert abs(float(theirs()) / ours().value - 1) < 1e-3, "both must minimise the same"  # type: ignore[attr-defined]
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


def compiled(preset: Preset) -> Iterator[Row]:
    """A step as it is against the same one through torch.compile, which takes a C++ compiler (or Triton) and time."""
    case = StepCase.of(preset.size, 2 * preset.size, preset.width, preset.pixels, preset.device)
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


def memory(preset: Preset) -> Iterator[Row]:
    """Peaks of memory: against double back-propagation, and when the candidates double, with and without chunks."""
    case = StepCase.of(preset.size, 2 * preset.size, preset.width, preset.pixels, preset.device)
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
    """Return the peak of steps inside a subspace, where coordinates are few, as the attack does them by default."""
    problem, start = StepCase.of(preset.size, candidates, preset.width, preset.pixels, preset.device).inside()
    descent = Adam(steps=8, learning_rates=(1e-4, 1e-4))
    return peak_megabytes(lambda: minimise(replace(problem, at_once=chunk).objective, start, descent), preset.device)


def quality(preset: Preset, seed: int) -> Iterator[Row]:
    """Seconds to as many recognisable images as the published recipe ends with; and to a proof of every one."""
    for victim in preset.victims:
        yield from _quality_of(victim, preset, seed)


def _quality_of(victim: Victim, preset: Preset, seed: int) -> Iterator[Row]:
    data, view = _trained(victim, preset, seed)
    setting = f"{victim.source}, N = {victim.size}, W = {victim.width}, standard dynamics"
    recipe = replace(WeightDifference.published(), steps=preset.recipe_steps)
    replace(recipe, steps=30).run(view, seed=seed, device=preset.device)  # nobody pays for the first use of a device
    published = recipe.run(view, seed=seed, device=preset.device)
    reached = count(published, data)
    goals = {
        f"the published recipe ({preset.recipe_steps} steps, this engine)": (published.seconds, reached["good"]),
        **({} if victim.released is None else {"the released code, as measured before": victim.released}),
    }
    precision = "mixed" if preset.device == "cuda" else "float32"
    for steps in preset.our_steps:
        ours = WeightDifference(steps=steps, precision=precision).run(view, seed=seed, device=preset.device)
        got = count(ours, data)
        is_last = steps == preset.our_steps[-1]
        for label, (seconds, good) in list(goals.items()):
            if got["good"] >= good or is_last:
                del goals[label]
                short = "" if got["good"] >= good else "; FALLS SHORT"
                yield Row(
                    what=f"time to the quality of {label}", setting=setting, ours=ours.seconds, theirs=seconds,
                    unit="s", ratio=seconds / ours.seconds,
                    note=f"{good} good; ours {steps} steps, {got['good']} good, {got['fine']} fine, "
                    f"null {got['null']}{short}",
                )  # fmt: skip
        if not goals:
            break
    if victim.is_certified:
        proof = GateCertificate().run(view, seed=seed, device=preset.device)
        exact = f"{int(proof.certified.sum())} certified, {count(proof, data)['fine']} fine"
        for label, other in (("the published recipe", published), ("our search", ours)):
            yield Row(
                what=f"certificate against {label}", setting=setting, ours=proof.seconds, theirs=other.seconds,
                unit="s", ratio=other.seconds / proof.seconds, note=exact,
            )  # fmt: skip


def _trained(victim: Victim, preset: Preset, seed: int) -> tuple[exhume.Dataset, AttackerView]:
    data = exhume.load(victim.source, classes="odd-even", size=victim.size, test=0, seed=seed)
    model = exhume.MLP(width=victim.width)
    return data, exhume.train(data, model=model, device=preset.device, seed=seed).view()


def restarts(preset: Preset, seed: int) -> Iterator[Row]:
    """Many restarts in one program against one run, and against as many one by one."""
    victim = preset.restart_victim
    _, view = _trained(victim, preset, seed)
    precisions = ("float32", "mixed", "tf32") if preset.device == "cuda" else ("float32",)
    for precision in precisions:
        attack = WeightDifference(steps=preset.restart_steps, precision=precision)  # type: ignore[arg-type]
        seconds: list[float] = []
        once = {"device": preset.device, "rounds": 1}
        for times in (1, preset.restarts):
            work = Restarted(attack, times=times, at_once=times)
            seconds += seconds_of(lambda work=work: work.run(view, seed=seed, device=preset.device), **once)
        yield Row(
            what=f"{preset.restarts} restarts side by side against one, {precision}",
            setting=f"{victim.source}, N = {victim.size}, W = {victim.width}, {preset.restart_steps} steps",
            ours=seconds[1], theirs=seconds[0], unit="s", ratio=seconds[1] / seconds[0],
            note=f"times one run; one by one would be {preset.restarts}",
        )  # fmt: skip


def kernels(preset: Preset) -> Iterator[Row]:
    """Tangent kernels against Jacobians contracted with torch.func."""
    network = exhume.MLP(width=preset.width).build((preset.pixels,), 1, torch.Generator().manual_seed(0))
    network = network.to(preset.device)
    weights = {name: weight.detach() for name, weight in network.state_dict().items()}
    inputs = torch.randn(preset.kernel_size, preset.pixels, generator=torch.Generator().manual_seed(1))
    inputs = inputs.to(preset.device)
    analytic = InfiniteNTK()
    with torch.no_grad():
        fast, slow = empirical_ntk(network, weights, inputs), jacobian_contraction(network, weights, inputs)
        torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-2)
        closed, contraction, infinite = seconds_of(
            lambda: empirical_ntk(network, weights, inputs),
            lambda: jacobian_contraction(network, weights, inputs),
            lambda: analytic(inputs),
            device=preset.device,
            rounds=min(3, preset.rounds),  # a contraction takes seconds
        )
    setting = f"N = {preset.kernel_size}, W = {preset.width}, d = {preset.pixels}"
    for label, seconds in (("empirical", closed), ("analytic", infinite)):
        yield Row(
            what=f"{label} tangent kernel against Jacobian contraction", setting=setting, ours=1e3 * seconds,
            theirs=1e3 * contraction, unit="ms", ratio=contraction / seconds,
        )  # fmt: skip


def distillation(preset: Preset) -> Iterator[Row]:
    """Steps of KIP and RKIP against textbook autograd."""
    generator = torch.Generator().manual_seed(0)
    distilled, size = (4, 10) if preset.pixels < 100 else (20, 500)
    examples = torch.rand(size, preset.pixels, generator=generator).sub(0.3).to(preset.device)
    answers = torch.randn(size, 1, generator=generator).sign().to(preset.device)
    start = (0.2 * torch.randn(distilled, preset.pixels, generator=generator)).to(preset.device)
    targets = (2.0 * (torch.arange(distilled) % 2)[:, None] - 1.0).to(preset.device)
    for method in (KIP(), RKIP()):
        ours, plain = (make(method, start, targets, examples, answers) for make in (our_steps, textbook_steps))
        steps = 10 * preset.steps
        fast, slow = seconds_of(
            lambda ours=ours, steps=steps: ours(steps), lambda plain=plain, steps=steps: plain(steps),
            device=preset.device, rounds=preset.rounds,
        )  # fmt: skip
        yield Row(
            what=f"{type(method).__name__} step against textbook autograd",
            setting=f"{size} → {distilled} images of {preset.pixels} pixels", ours=1e3 * fast / steps,
            theirs=1e3 * slow / steps, unit="ms", ratio=slow / fast,
        )  # fmt: skip


def growth(preset: Preset) -> Iterator[Row]:
    """How the cost of a step grows with the number of images, the width and the pixels: fitted exponents."""
    base = {"N": preset.size, "W": preset.width, "d": preset.pixels}
    for name, values in (("N", preset.sizes), ("W", preset.widths), ("d", preset.dimensions)):
        seconds = []
        for value in values:
            at = base | {name: value}
            case = StepCase.of(at["N"], 2 * at["N"], at["W"], at["d"], preset.device)
            steps = max(2, preset.steps // 2)
            seconds += seconds_of(case.ours(steps), device=preset.device, rounds=max(1, preset.rounds // 2))
        exponent = slope(values, seconds)
        fixed = ", ".join(f"{other} = {value}" for other, value in base.items() if other != name)
        yield Row(
            what=f"cost of a step as {name} grows", setting=f"{name} = {', '.join(map(str, values))}; {fixed}",
            ours=1e3 * seconds[0] / steps, theirs=1e3 * seconds[-1] / steps, unit="ms", ratio=exponent,
            note=f"fitted exponent: cost ~ {name}^{exponent:.2f}; from the first to the last",
        )  # fmt: skip


MEASUREMENTS: dict[str, Callable[..., Iterator[Row]]] = {
    "step": step,
    "kernels": kernels,
    "distillation": distillation,
    "restarts": restarts,
    "memory": memory,
    "growth": growth,
    "quality": quality,
    "compiled": compiled,
}
USUAL = [name for name in MEASUREMENTS if name != "compiled"]
"""All but what takes a compiler."""


def chosen(words: str) -> list[str]:
    """Read names of measurements, between commas."""
    names = [word.strip() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in MEASUREMENTS:
            raise argparse.ArgumentTypeError(f"there is no {name!r}; choose of {', '.join(MEASUREMENTS)}")
    if not names:
        raise argparse.ArgumentTypeError(f"choose of {', '.join(MEASUREMENTS)}")
    return names


WHAT, SETTING = 112, 58
"""Columns of the table that is printed."""


def show(row: Row) -> None:
    theirs = "" if row.theirs is None else f"{row.theirs:10.3g}"
    ratio = "" if row.ratio is None else f"{row.ratio:8.2f}"
    print(
        f"{row.what:{WHAT}} {row.setting:{SETTING}} {row.ours:10.3g} {theirs} {row.unit:4} {ratio}  {row.note}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and keep; return 1 where a measurement failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--preset", choices=PRESETS, default="cpu")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/benchmarks")))
    parser.add_argument("--only", type=chosen, default=USUAL, help=f"comma-separated, of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    preset = PRESETS[options.preset]
    cuda = preset.device == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("there is no CUDA device on this machine; choose --preset cpu or small")
    only = "" if options.only == USUAL else f" --only {','.join(options.only)}"
    account: dict[str, Any] = {
        "command": f"python benchmarks/all.py --preset {options.preset}{only} --seed {options.seed}",
        "machine": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "clock": clock_for(preset.device).__name__,
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
        "rows": [],
    }
    print(account["machine"], f"torch {torch.__version__}, {account['threads']} threads, load {account['load']:.1f}")
    print(f"{'':{WHAT}} {'':{SETTING}} {'ours':>10} {'theirs':>10} {'':4} {'ratio':>8}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        measure = MEASUREMENTS[name]
        try:
            for row in measure(preset, options.seed) if name in ("quality", "restarts") else measure(preset):
                show(row)
                account["rows"].append({"measurement": name, **asdict(row)})
                (options.out / "benchmarks.json").write_text(json.dumps(account, indent=2) + "\n")
        except Exception as error:  # one measurement that fails must not cost the others
            print(f"{name} failed: {type(error).__name__}: {error}", flush=True)
            account.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
            (options.out / "benchmarks.json").write_text(json.dumps(account, indent=2) + "\n")
    return 1 if "failed" in account else 0


if __name__ == "__main__":
    sys.exit(main())
