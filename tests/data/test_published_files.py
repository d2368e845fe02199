"""The published files of MNIST and CIFAR-10, where EXHUME_DATA has them."""

import hashlib
import os

import pytest
import torch

from exhume.data import available, load
from exhume.data.known_sources import read_source

HERE = {source.name for source in available(os.environ.get("EXHUME_DATA")) if source.present}
needs_mnist = pytest.mark.skipif("mnist" not in HERE, reason="set EXHUME_DATA to a folder that holds mnist/")
needs_cifar = pytest.mark.skipif("cifar-10" not in HERE, reason="set EXHUME_DATA to a folder that holds cifar-10/")


@needs_mnist
def test_mnist_is_mnist() -> None:
    """The published checksums cover header and values; so the values are hashed behind the header they must have."""
    source = read_source("mnist")
    assert source.test is not None
    header = bytes.fromhex("000008030000ea600000001c0000001c")
    values = source.train.inputs.numpy().tobytes()
    assert hashlib.md5(header + values, usedforsecurity=False).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    labels = bytes.fromhex("0000080100002710") + bytes(source.test.labels.tolist())
    assert hashlib.md5(labels, usedforsecurity=False).hexdigest() == "27ae3e4e09519cfbb04c329615203637"


@needs_mnist
def test_mnist_odd_even_is_the_papers_task() -> None:
    data = load("mnist", classes="odd-even", size=100, seed=0)
    assert data.name == "mnist odd-even"
    assert torch.bincount(data.train.labels).tolist() == torch.bincount(data.holdout.labels).tolist() == [50, 50]
    assert data.outputs == 1
    assert data.offset is not None
    assert float(data.offset) == pytest.approx(0.1307, abs=0.015)  # the mean of all of MNIST is 0.1307
    assert data.test is not None
    # Of the 10 000 test digits 5 074 are odd.
    assert torch.bincount(data.test.labels).tolist() == [5074, 4926]


@needs_cifar
def test_cifar_test_images_have_the_labels_animal_and_vehicle() -> None:
    source = read_source("cifar-10")
    data = load("cifar-10", classes="animal-vehicle", size=200)
    assert source.test is not None
    assert data.test is not None
    truck = source.classes.index("truck")
    trucks = source.test.labels == truck
    assert trucks.any()
    assert (data.test.labels[trucks] == data.classes.index("vehicle")).all()
    assert data.offset is not None
    assert data.offset.shape == (3, 1, 1)


@needs_cifar
def test_cifar_images_are_the_right_way_up() -> None:
    """Skies are above: aeroplanes and ships are brighter in the top rows and bluer than they are red."""
    data = load("cifar-10", classes={"sky": ["airplane", "ship"], "ground": ["deer", "frog"]}, size=400)
    sky = data.train.inputs[data.train.labels == 0].mean(dim=0)
    assert sky[:, :8].mean() > sky[:, 24:].mean()
    assert sky[2].mean() > sky[0].mean()
