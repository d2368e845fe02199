"""Networks of kinds that users have; the functions without arguments are factories for ``exhume audit --model``."""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A block with batch normalisation and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.inside(inputs)


class WithDictionary(nn.Module):
    """A network that returns its logits beside its features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 96), nn.Linear(96, 1)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        features = self.first(inputs.flatten(1)).relu()
        return {"features": features, "logits": self.last(features)}


class Adapter(nn.Module):
    """A frozen dense layer with a low-rank adapter beside it, not merged."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(64, 96), nn.Linear(64, 4, bias=False), nn.Linear(4, 96, bias=False)
        nn.init.zeros_(self.up.weight)
        self.base.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        return self.base(flat) + self.up(self.down(flat))


class MeanOfTokens(nn.Module):
    """An embedding, the mean over a text, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.embedding(tokens).mean(1)))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), Residual(), nn.Flatten(), nn.Linear(144, 1))


def of_a_table() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))


def with_dictionary() -> nn.Module:
    return WithDictionary()


def merged() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1))


def adapted() -> nn.Module:
    return nn.Sequential(Adapter(), nn.ReLU(), nn.Linear(96, 1))


def of_tokens() -> nn.Module:
    return MeanOfTokens()


def _with_dense(*trunk: nn.Module) -> nn.Module:
    """Return a network of ten classes: a trunk, a dense ReLU layer, and an output layer."""
    size = nn.Sequential(*trunk, nn.Flatten())(torch.zeros(2, 1, 8, 8)).shape[1]
    return nn.Sequential(*trunk, nn.Flatten(), nn.Linear(size, 192), nn.ReLU(), nn.Linear(192, 10))


def deep_pool() -> nn.Module:
    return _with_dense(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


def deep_residual() -> nn.Module:
    return _with_dense(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), Residual(), nn.ReLU())


def deep_linear() -> nn.Module:
    """A residual network with one linear layer, whose features are means over pixels."""
    mean = (nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), Residual(), *mean, nn.Linear(16, 10))
