"""Training: victims whose initial weights, final weights and settings are all known."""

import lazy_loader

# The command line reads the settings alone, which need no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
