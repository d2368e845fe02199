"""Elementwise activations without weights, by the names that settings and PyTorch's functions have for them."""

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "identity": nn.Identity,
}
"""Module of each activation that an architecture can have."""

MODULE_OF_FUNCTION: dict[str, type[nn.Module]] = {
    **{name.replace("-", "_"): module for name, module in ACTIVATIONS.items() if module is not nn.Identity},
    "relu_": nn.ReLU,
    "relu6": nn.ReLU6,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "mish": nn.Mish,
    "hardtanh": nn.Hardtanh,
    "softsign": nn.Softsign,
}
"""Module that does the same as the function of this name in ``torch`` or ``torch.nn.functional``."""
