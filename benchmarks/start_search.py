"""Measure the time to try one seed, and how clearly the right seed stands out, on MNIST.

EXHUME_DATA=data PYTHONPATH=src python benchmarks/start_search.py --seeds 200
"""

import argparse
import json
import time
from dataclasses import asdict

import torch
from torch import nn

import exhume
from exhume.auditing import draw_weights
from exhume.auditing.start_search import SAMPLED_WEIGHTS, Resemblance

SECRET = 4321


def build_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def train_in_a_loop(size: int) -> exhume.AttackerView:
    data = exhume.load("mnist", size=size, centre=False)
    torch.manual_seed(SECRET)
    model = build_network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data.train.inputs), data.train.labels).backward()
        optimiser.step()
    final = {name: weight.detach() for name, weight in model.state_dict().items()}
    return exhume.AttackerView(model=build_network(), final=final, input_shape=(1, 28, 28))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--size", type=int, default=200, help="training images")
    options = parser.parse_args()
    view = train_in_a_loop(options.size)
    glance = Resemblance.of(view.final, view.final, most=SAMPLED_WEIGHTS)
    started = time.process_time()
    for seed in range(options.seeds):
        glance(draw_weights(build_network, seed))
    each = (time.process_time() - started) / options.seeds
    found = exhume.find_seed(view, lambda seed: draw_weights(build_network, seed), [*range(options.seeds), SECRET])
    print(json.dumps({"cpu_seconds_a_seed": each, "evidence": asdict(found.evidence)}, indent=2))
