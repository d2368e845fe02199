"""One thread a worker: the tests run side by side, and their tensors are small."""

import torch

torch.set_num_threads(1)
