"""Which device work runs on."""

import torch

from exhume.core.errors import ExhumeError


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn ``auto`` into the best device of this machine, and anything else into itself.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ExhumeError(f"There is no device {device!r}; choose auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ExhumeError("There is no CUDA device on this machine; choose auto or cpu.")
    return chosen


def short_products() -> bool:
    """Tell whether the CPU has instructions for products of bfloat16, several times as fast as those of float32.

    Without them such products are emulated, and slower.
    """
    questions = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # versions of torch have some or none of them
    return any(bool(getattr(torch.cpu, question, bool)()) for question in questions)
