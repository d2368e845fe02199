"""Distillation by attack on a network of finite width."""

from exhume import MLP
from exhume.attacks import WeightDifference
from exhume.distillation import RKIPFinite, distil
from tests.distillation.distilled_digits import kernel_accuracy, load_digits


def test_a_reconstruction_of_fewer_images_teaches_more_than_as_many_real_ones():
    method = RKIPFinite(model=MLP(width=512), attack=WeightDifference(within_span=False, steps=300))
    made = distil(load_digits(), method, device="cpu")
    assert made.train.targets.shape == (20, 1)
    assert kernel_accuracy(made, load_digits()) > kernel_accuracy(load_digits(20), load_digits())
