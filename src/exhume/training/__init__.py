"""Training: victims whose start, end and every setting are known."""

import lazy_loader

# The command line reads the settings alone, which need no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
