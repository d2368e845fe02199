"""Attack networks trained by other code: default initial weights of PyTorch, pixels in [0, 1], a plain loop.

Nine cases (MNIST 3 against 8, CIFAR-10 cat against dog, faces; full-batch squared error, mini-batch cross-entropy,
weight decay), each attacked by the certificate from random starting points. Prints one row per victim and writes
``strangers.json``.

    PYTHONPATH=src python benchmarks/strangers.py --data-dir DIR --out DIR [--cases mnist-mse,faces-ce] [--seeds 0,1]
"""

import argparse
import copy
import json
from pathlib import Path

import numerical_only  # noqa: F401 # before exhume
import torch
from torch import nn
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate

SOURCES = {"mnist": ("mnist", ("3", "8")), "cifar": ("cifar-10", ("cat", "dog")), "faces": ("faces", None)}
LEARNING_RATES = {"mnist": 0.01, "cifar": 0.002, "faces": 0.01}
"""Largest learning rates at which a loop with momentum 0.9 converges; CIFAR-10 has inputs of the largest norm."""
TRAININGS = ("mse", "ce", "wd")
SIZE, WIDTH, STEPS, BATCH = 40, 1024, 3000, 8


def train_in_a_loop(inputs, labels, training, rate, seed):
    """Train without code of exhume; return the module, its initial and final weights, and the loss."""
    torch.manual_seed(seed)
    outputs = 2 if training == "ce" else 1
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs[0].numel(), WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, outputs),
    )
    initial = copy.deepcopy(model.state_dict())
    decay = 1e-3 if training == "wd" else 0.0
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=decay)
    for _ in range(STEPS):
        chosen = torch.randperm(len(inputs))[:BATCH] if training == "ce" else slice(None)
        out = model(inputs[chosen])
        if training == "ce":
            loss = functional.cross_entropy(out, labels[chosen])
        else:
            loss = functional.mse_loss(out[:, 0], 1 - 2 * labels.float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, initial, copy.deepcopy(model.state_dict()), loss.item()


def measure(case, seed, device, data_dir, faces):
    name, training = case.split("-")
    source, classes = SOURCES[name]
    if name == "faces" and faces is not None:
        source = str(faces)
    data = exhume.load(source, classes=classes, size=SIZE, seed=seed, centre=False, test=0, data_dir=data_dir)
    inputs, labels = data.train.inputs, data.train.labels
    model, initial, final, loss = train_in_a_loop(inputs, labels, training, LEARNING_RATES[name], seed)
    view = exhume.AttackerView(
        model=model, initial=initial, final=final, input_shape=data.input_shape, bounds=(0.0, 1.0)
    )
    found = GateCertificate().run(view, seed=seed, device=device)
    errors = (found.inputs.flatten(1)[:, None] - inputs.flatten(1)[None]).abs().amax(dim=2)
    nearest = errors.min(dim=1).values if len(found) else torch.zeros(0)
    return {
        "case": case,
        "seed": seed,
        "loss": loss,
        "certified": int(found.certified.sum()),
        "exact": int((errors < 0.02).any(dim=0).sum()) if len(found) else 0,
        "false": int((found.certified & (nearest >= 0.02)).sum()),
        "seconds": round(found.seconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--faces", type=Path, help="faces as .npz, if the bundled ones cannot be read")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--cases", default=",".join(f"{name}-{how}" for name in SOURCES for how in TRAININGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in options.cases.split(","):
        for seed in options.seeds.split(","):
            rows.append(measure(case, int(seed), options.device, options.data_dir, options.faces))
            print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
            summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
            (options.out / "strangers.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
