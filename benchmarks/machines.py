"""Attack the demo's network as other machines would: does the certificate depend on instructions and threads?

    PYTHONPATH=src python benchmarks/machines.py [--out DIR] [--seeds 2] [--at-once 2]

Trains the demo's network on 40 faces and runs ``GateCertificate``, once per seed under each of five settings that
change how PyTorch rounds. Each run is a process of its own. Writes ``machines.json``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MACHINES: dict[str, dict[str, str]] = {
    "as it is": {},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "no vector instructions": {"ATEN_CPU_CAPABILITY": "default"},
    "compatible MKL": {"MKL_CBWR": "COMPATIBLE"},
}
"""Environment variables by name; one thread where nothing else is said."""
ATTACK = """
import collections, json, sys, exhume
seed = int(sys.argv[1])
data = exhume.load("faces", size=40, seed=seed)
model = exhume.MLP(width=1024, depth=2)
victim = exhume.train(data, model=model, seed=seed, stop_loss=1e-6, device="cpu")
found = exhume.attacks.GateCertificate().run(victim.view(), seed=seed, device="cpu")
train = exhume.evaluate(found, data).train
print(json.dumps({
    "certified": int(found.certified.sum()),
    "exact": train.exact,
    "certified_but_not_exact": int((found.certified & (train.nearest_errors >= 0.02)).sum()),
    "doubts": dict(collections.Counter(doubt for doubt in found.diagnostics["doubts"] if doubt)),
    "seconds": found.seconds,
}))
"""


def run(machine: str, seed: int) -> dict[str, Any]:
    """Attack in a process of its own and return what it found."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | MACHINES[machine]
    command = [sys.executable, "-c", ATTACK, str(seed)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    row = {"machine": machine, "seed": seed} | json.loads(done.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=1, help="Number of processes at a time.")
    options = parser.parse_args(arguments)
    runs = [(machine, seed) for machine in MACHINES for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.at_once) as pool:
        rows = list(pool.map(lambda one: run(*one), runs))
    options.out.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/machines.py --seeds {options.seeds} --at-once {options.at_once}"
    result = {"command": command, "machine": platform.machine(), "python": platform.python_version(), "rows": rows}
    (options.out / "machines.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
