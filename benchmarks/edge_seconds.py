"""Time the search for points where edges meet, and its proof: 20 MNIST images, d-400-400-10, weight decay, three seeds.

    EXHUME_DATA=DIR OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/edge_seconds.py

Prints the seconds of the whole attack without edges, with them, and with the proof. With PYTHONPATH of another checkout
it times another version; run both at the same time for a ratio.
"""

import json
import time
from dataclasses import replace

import torch

from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.studies.tasks import draw
from exhume.training import train
from exhume.training.recipes import weight_decay_recipe


def main() -> None:
    """Train and attack three networks."""
    torch.set_num_threads(1)
    for seed in range(3):
        data = draw("mnist", "all", size=20, held_out=20, seed=seed, shrink=2)
        recipe = weight_decay_recipe(loss="ce", weight_decay=1e-3, width=400, depth=2, steps=3000)
        view = replace(train(data, device="cpu", seed=seed, **recipe).view(), initial=None)
        seconds = {}
        for name, edges, prove in (("without edges", False, False), ("edges", True, False), ("proof", True, True)):
            attack = MaxMargin(
                trials=4, trial_steps=150, winners=1, restarts=4, steps=800, edges=edges, prove=prove
            )  # the settings of the cpu preset
            started = time.perf_counter()
            attack.run(view, seed=seed, device="cpu")
            seconds[name] = round(time.perf_counter() - started, 1)
        print(json.dumps({"seed": seed} | seconds), flush=True)


if __name__ == "__main__":
    main()
