"""Networks that begin with a convolution, with a dense layer as weight decay leaves it at rest, built without training.

Its rows are sums of the features of the images, and each unit has its edge exactly at some of them.
"""

import torch
from torch import Tensor, nn

from exhume.records import AttackerView

SHAPE = (1, 6, 6)
UNITS = 120
ON_EDGE = 2
"""Images on the edge of each unit, at least."""


def images(count: int = 5, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)).double()


def view_at_rest(inputs: Tensor, *, meet: bool = True, noise: float = 1e-6, pool: bool = False) -> AttackerView:
    """Return the final weights; with ``meet=False`` rows are sums of features too, but no edge lies at any."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        below = [nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), *([nn.AvgPool2d(3)] if pool else []), nn.Flatten()]
        trunk = nn.Sequential(*below).double()
        width = trunk(inputs).shape[1]
        model = nn.Sequential(trunk, nn.Linear(width, UNITS), nn.ReLU(), nn.Linear(UNITS, 3)).double()
        features = nn.functional.pad(trunk(inputs).detach(), (0, 1), value=1.0)
        products = features @ features.T
        rows = []
        for _ in range(UNITS):
            effects = torch.randn(len(inputs)).double()
            if meet:  # products · effects, the pre-activations, vanish at some images
                chosen = torch.randperm(len(inputs))[:ON_EDGE]
                wanted = torch.randn(len(inputs)).double()
                wanted[chosen] = 0
                effects = torch.linalg.solve(products, wanted)
            row = effects @ features
            rows.append(row / row.norm())
        whole = torch.stack(rows)
        whole = whole + noise * torch.randn(whole.shape)
    model[1].weight.data, model[1].bias.data = whole[:, :-1].contiguous(), whole[:, -1].contiguous()
    final = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return AttackerView(model=model, final=final, input_shape=SHAPE, bounds=(0.0, 1.0))
