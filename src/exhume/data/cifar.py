"""Read the binary version of CIFAR: records of label bytes, then a red, a green and a blue plane."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from exhume.core.errors import DataError
from exhume.data.source import Examples, Source
from exhume.data.streams import open_file, read_up_to

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32

CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR_100 = tuple(CIFAR_100_NAMES.split())

LABEL_BYTES = {CIFAR_10: 1, CIFAR_100: 2}  # CIFAR-100 puts the super-class before the class
TEST_FILES = ("test_batch.bin", "test.bin")


def read_cifar_file(path: Path, classes: tuple[str, ...], most_records: int) -> Examples:
    """Read the records of one file, plain or gzip.

    Raises:
        DataError: when the file has more records than ``most_records``, an incomplete record or an impossible label.
    """
    label_bytes = LABEL_BYTES[classes]
    record = label_bytes + PIXELS
    with open_file(path) as stream:
        content = read_up_to(stream, most_records * record + 1)
    if len(content) > most_records * record:
        raise DataError(f"{path} holds more than the {most_records:,} records of the official file.")
    if not content or len(content) % record:
        raise DataError(
            f"{path} is truncated: {len(content):,} bytes are not a whole number of {record}-byte records; "
            "fetch or copy it again."
        )
    records = torch.frombuffer(content, dtype=torch.uint8).reshape(-1, record)
    labels = records[:, label_bytes - 1].long()
    _check_labels(labels, path, len(classes))
    return Examples(inputs=records[:, label_bytes:].reshape(-1, *SHAPE), labels=labels)


def read_cifar(files: Mapping[str, Path], name: str, classes: tuple[str, ...]) -> Source:
    """Read CIFAR-10 or CIFAR-100 from those of its files that are present."""
    most = {file: 50_000 if file == "train.bin" else 10_000 for file in files}
    read = {file: read_cifar_file(path, classes, most[file]) for file, path in sorted(files.items())}
    training = [examples for file, examples in read.items() if file not in TEST_FILES]
    return Source(
        name=name,
        train=Examples(
            inputs=torch.cat([part.inputs for part in training]), labels=torch.cat([part.labels for part in training])
        ),
        test=next(examples for file, examples in read.items() if file in TEST_FILES),
        classes=classes,
        bounds=(0.0, 1.0),
    )


def _check_labels(labels: Tensor, path: Path, classes: int) -> None:
    wrong = (labels >= classes).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise DataError(
            f"{path} is not a CIFAR-{classes} file: record {first} has label {int(labels[first])}, "
            f"and there are only {classes} classes."
        )
