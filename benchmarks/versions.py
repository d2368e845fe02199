"""Seconds of cells of the studies of final weights with two versions of this project, in one run on one machine.

    git archive --prefix=carried/before/ COMMIT src benchmarks | tar -x
    python benchmarks/versions.py --before carried/before --out DIR --data-dir DIR

Each version measures the same cells with the same seeds, in a process of its own, and the two take turns. Seconds are
those of a whole cell: drawing data, training, the attack, and counting what it recovered. ``--whole`` measures, with
this version alone, every cell that the studies had before, side by side as ``exhume reproduce max-margin`` does.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

CELLS = "cifar/binary,cifar/binary@decay,cifar/ten@decay,weight-decay/0.001,classes/2,exact-size/20,loss/mse@decay"
"""Cells as ``study/label``, with ``@`` for a comma and a space; a semicolon lets the other version take its turn."""
NEW_STUDIES = ("depth", "labels")
"""Studies that the version before did not have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="Folder with src/ and benchmarks/ of the other version.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--whole", type=Path, help="Measure all studies side by side; a folder for finished cells.")
    parser.add_argument("--jobs", type=int, help="Processes of --whole.")
    parser.add_argument("--measure-tree", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_tree is not None:
        measure(arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.whole is not None:
        measure_whole(arguments)
        return
    here = Path(__file__).resolve().parent.parent
    trees = {"now": here} | ({} if arguments.before is None else {"before": arguments.before.resolve()})
    rows: list[dict[str, Any]] = []
    deadline = time.perf_counter() + arguments.seconds
    for group in arguments.cells.split(";"):
        for name, tree in trees.items():
            for row in run_tree(tree, group, arguments, deadline):
                rows.append({"version": name} | row)
                print(json.dumps(rows[-1]), flush=True)
                (arguments.out / "versions.json").write_text(json.dumps({"rows": rows}, indent=1))


def run_tree(tree: Path, group: str, arguments: argparse.Namespace, deadline: float) -> list[dict[str, Any]]:
    """Measure a group of cells with the version in a folder; cells that the time does not suffice for are left out."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    if arguments.data_dir is not None:
        environment["EXHUME_DATA"] = str(arguments.data_dir.resolve())
    command = [sys.executable, __file__, "--measure-tree", str(tree), "--cells", group, "--out", str(arguments.out)]
    command += ["--preset", arguments.preset, "--device", arguments.device, "--seeds", str(arguments.seeds)]
    command += ["--profile"] if arguments.profile else []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        rows = []
        assert process.stdout is not None
        try:
            os.set_blocking(process.stdout.fileno(), True)
            for line in process.stdout:
                if line.startswith("{"):
                    rows.append(json.loads(line))
                else:
                    print(line, end="", flush=True)
                if time.perf_counter() > deadline:
                    break
        finally:
            process.kill()
    return rows


def measure(arguments: argparse.Namespace) -> None:
    """Measure cells with the version of exhume that is on the path, and print a row for each."""
    sys.path[0] = str(arguments.measure_tree / "benchmarks")
    import numerical_only  # noqa: F401 # of that version
    import torch

    from exhume.studies.buzaglo2023 import cases
    from exhume.studies.buzaglo2023.studies import AXES
    from exhume.studies.study import StudyRun

    if torch.cuda.is_available():
        torch.zeros(1).cuda()
    for cell in arguments.cells.split(","):
        study, label = cell.replace("@", ", ").split("/")
        (case,) = (one for one in AXES[study][1][arguments.preset].cases if one.label == label)
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as folder:
                run = StudyRun(folder=Path(folder), device=arguments.device, seed=seed)
                if hasattr(cases, "measure_plans"):
                    plan = cases.Plan(cases=(case,), seeds=1)
                    work = functools.partial(cases.measure_plans, {study: plan}, run)
                else:  # as it was before
                    work = functools.partial(cases.measure_case, case, seed, run)
                started = time.perf_counter()
                found = profiled(work) if arguments.profile else work()
                found = found[study][0] if study in found else found
            row = {"cell": cell, "seed": seed, "seconds": round(time.perf_counter() - started, 2)}
            row |= {key: value for key, value in found.items() if isinstance(value, int | float) and key not in row}
            print(json.dumps(row), flush=True)


def measure_whole(arguments: argparse.Namespace) -> None:
    """Measure the cells of all studies, without those that are new, and print the seconds."""
    import numerical_only  # noqa: F401

    from exhume.studies.buzaglo2023.cases import measure_plans
    from exhume.studies.buzaglo2023.studies import AXES
    from exhume.studies.side_by_side import choose_jobs
    from exhume.studies.study import StudyRun

    if arguments.data_dir is not None:
        os.environ["EXHUME_DATA"] = str(arguments.data_dir.resolve())
    plans = {
        name: replace(plan, seeds=arguments.seeds, cases=tuple(case for case in plan.cases if not is_new(case.label)))
        for name, plan in ((name, presets[arguments.preset]) for name, (_, presets) in AXES.items())
        if name not in NEW_STUDIES
    }
    jobs = arguments.jobs or choose_jobs(arguments.device)
    run = StudyRun(
        folder=arguments.whole, shared=arguments.whole / "shared-cells", device=arguments.device, jobs=jobs,
        progress=print_cells,
    )  # fmt: skip
    started = time.perf_counter()
    rows = measure_plans(plans, run)
    summary = {
        "jobs": jobs, "seconds": round(time.perf_counter() - started, 1), "cells": run.cells,
        "rows": sum(len(part) for part in rows.values()),
    }  # fmt: skip
    print(json.dumps(summary), flush=True)
    (arguments.out / "whole.json").write_text(json.dumps(summary, indent=1))


def print_cells(stage: str, done: int, total: int, note: str = "") -> None:
    """Print which cell is finished."""
    if stage == "cells":
        print(done, total, note, flush=True)


def is_new(label: str) -> bool:
    """Return whether a case was not measured by the version before."""
    return label.endswith("colours")


def profiled(function: Callable[[], Any]) -> Any:
    """Call a function, and print where the time went."""
    import cProfile
    import pstats

    watched = cProfile.Profile()
    result = watched.runcall(function)
    pstats.Stats(watched).sort_stats("cumulative").print_stats("exhume", 45)
    return result


if __name__ == "__main__":
    main()
