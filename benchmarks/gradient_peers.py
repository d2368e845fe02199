"""One gradient, one batch, one column per method: what each of them recovers of the same images.

The peers are short implementations of published ideas, written here; what their authors report is in
``docs/benchmarks.md``. Prints one row per method, draws ``gradient_peers.png`` and writes ``gradient_peers.json``.

    PYTHONPATH=src python benchmarks/gradient_peers.py --data-dir DIR --out DIR [--source cifar-10] [--size 64]
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numerical_only  # noqa: F401 # before exhume
import torch
from gradients import EXACT, Batch, load_batch, one_gradient
from torch import Tensor
from torch.nn import functional

import exhume
from exhume.attacks import GateCertificate

GOOD = 0.01
"""Largest mean squared error of a good image."""
SHOWN = 6
"""Number of images in the picture, evenly spread over the batch."""
Method = Callable[[exhume.AttackerView, Batch], Tensor]
"""From a view, and a batch of which only the labels and the size may be used, to candidate images."""


def read_single_units(view: exhume.AttackerView, batch: Batch) -> Tensor:
    """Divide the gradient of each unit's weights by that of its bias: exact where one image alone fired the unit."""
    weights, bias = _first_layer(view)
    fired = bias.abs() > 1e-12
    return (weights[fired] / bias[fired, None]).clamp(0, 1).reshape(-1, *batch.shape)


def separate_sources(view: exhume.AttackerView, batch: Batch) -> Tensor:
    """Separate the gradient into independent images, as CPA begins (Kariyappa et al. 2023); the batch size is known."""
    from sklearn.decomposition import FastICA

    weights, _ = _first_layer(view)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ICA says when it stops before it has converged
        made = FastICA(len(batch.inputs), whiten="unit-variance", max_iter=500, random_state=0)
        sources = torch.from_numpy(made.fit_transform(weights.double().T.numpy())).T
    both = torch.cat([sources, -sources])  # the sign of a source is not known, nor is its range
    low, high = (both.quantile(share, dim=1, keepdim=True) for share in (0.01, 0.99))
    return ((both - low) / (high - low)).clamp(0, 1).float().reshape(-1, *batch.shape)


def match_gradients(view: exhume.AttackerView, batch: Batch, steps: int = 1000) -> Tensor:
    """Search images with the same gradient: cosine and total variation (Geiping et al. 2020); labels are known."""
    model = view.module(view.final).float().requires_grad_()
    assert view.gradient is not None
    target = [view.gradient[name].float() for name, _ in model.named_parameters()]
    images = torch.rand(batch.inputs.shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rule = torch.optim.Adam([images], lr=0.05)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(rule, steps)
    for _ in range(steps):
        rule.zero_grad()
        loss = functional.cross_entropy(model(images), batch.labels)
        made = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        dot = torch.stack([(mine * theirs).sum() for mine, theirs in zip(made, target, strict=True)]).sum()
        sizes = [torch.stack([part.square().sum() for part in parts]).sum().sqrt() for parts in (made, target)]
        rough = sum(images.diff(dim=axis).abs().mean() for axis in (-1, -2))
        (1 - dot / (sizes[0] * sizes[1]) + 1e-4 * rough).backward()
        images.grad = images.grad.sign()  # type: ignore[union-attr]
        rule.step()
        rate.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    return images.detach()


def certify(view: exhume.AttackerView, batch: Batch) -> Tensor:
    """Recover every image with the gate certificate; neither labels nor the batch size are used."""
    return GateCertificate().run(view, seed=0, device="cpu").inputs


METHODS: dict[str, Method] = {
    "single units": read_single_units,
    "ICA": separate_sources,
    "gradient matching\n(labels known)": match_gradients,
    "exhume": certify,
}


def _first_layer(view: exhume.AttackerView) -> tuple[Tensor, Tensor]:
    assert view.gradient is not None
    weights, bias = list(view.gradient.values())[:2]
    return weights, bias


def compare(batch: Batch, candidates: Tensor) -> tuple[Tensor, dict[str, int]]:
    """Return the nearest candidate of each image, and how many images are good and exact."""
    images, found = batch.inputs.flatten(1).float(), candidates.flatten(1).float()
    nearest = found[torch.cdist(images, found).argmin(dim=1)]
    errors = nearest - images
    exact = int((errors.abs().amax(dim=1) < EXACT).sum())
    good = int((errors.square().mean(dim=1) < GOOD).sum())
    return nearest.reshape(batch.inputs.shape), {"exact": exact, "good": good}


def draw_figure(batch: Batch, results: dict[str, tuple[Tensor, dict[str, int]]], path: Path) -> None:
    """Draw one column per method."""
    from matplotlib.figure import Figure

    size = len(batch.inputs)
    chosen = torch.linspace(0, size - 1, min(SHOWN, size)).round().long()
    columns = {f"original\n{size} in the batch": batch.inputs} | {
        f"{name}\n{counts['exact']} exact" if "\n" not in name else f"{name}: {counts['exact']} exact": images
        for name, (images, counts) in results.items()
    }
    figure = Figure(figsize=(1.45 * len(columns), 1.15 * len(chosen) + 0.6), layout="constrained")
    grid = figure.subplots(len(chosen), len(columns), squeeze=False)
    for column, (title, images) in enumerate(columns.items()):
        grid[0, column].set_title(title, fontsize=8)
        for row, which in enumerate(chosen.tolist()):
            image = images[which].clamp(0, 1).movedim(0, -1).numpy()
            image = image[..., 0] if image.shape[-1] == 1 else image
            grid[row, column].imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            grid[row, column].set_axis_off()
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    """Attack one gradient by every method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="cifar-10")
    parser.add_argument("--data-dir")
    parser.add_argument("--size", type=int, default=64, help="images in the batch")
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    batch = load_batch(options.source, options.size, options.seed, options.data_dir)
    view = one_gradient(batch, options.seed, widths=(options.width,))
    results: dict[str, tuple[Tensor, dict[str, int]]] = {}
    rows: list[dict[str, Any]] = []
    for name, method in METHODS.items():
        started = time.perf_counter()
        candidates = method(view, batch)
        seconds = round(time.perf_counter() - started, 1)
        results[name] = compare(batch, candidates)
        rows.append({"method": name.replace("\n", " "), **results[name][1], "images": options.size, "seconds": seconds})
        print("| " + " | ".join(str(value) for value in rows[-1].values()) + " |", flush=True)
    summary = {"torch": torch.__version__, "source": options.source, "seed": options.seed, "rows": rows}
    (options.out / "gradient_peers.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw_figure(batch, results, options.out / "gradient_peers.png")


if __name__ == "__main__":
    main()
