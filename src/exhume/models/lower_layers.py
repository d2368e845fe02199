"""The lower part of a network as a module of its own: from network inputs to what one layer reads."""

from torch import Tensor, nn


class _Reached(Exception):  # noqa: N818 - a signal, not a malfunction
    """Carries what a layer reads out of the network."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


class LowerLayers(nn.Module):
    """The part of a network below a layer, with flat outputs; it works inside transformations of ``torch.func``.

    ``model`` gets a hook that stops it at the layer, so it belongs to this module from then on.
    """

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        self.model = model
        model.get_submodule(layer).register_forward_pre_hook(self._stop)

    @staticmethod
    def _stop(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        raise _Reached(arguments[0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the layer reads for these inputs."""
        try:
            self.model(inputs)
        except _Reached as reached:
            return reached.features.flatten(1)
        raise RuntimeError("The layer was not reached.")
