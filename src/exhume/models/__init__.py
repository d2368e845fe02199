"""Networks: settings that build modules, and what can be read off a module's structure."""

from exhume.models.convnet import ConvNet
from exhume.models.mlp import MLP
from exhume.models.resnet import ResNet

__all__ = ["MLP", "ConvNet", "ResNet"]
