"""The data of studies: reproducible draws whose held-out images are no training images."""

import torch

from exhume.data.known_sources import available
from exhume.studies.tasks import average_pixels, draw, first_available, load_task


def test_the_first_present_source_is_chosen():
    present = [source.name for source in available() if source.present]
    assert first_available("digits") == "digits"
    assert first_available("mnist or digits") == ("mnist" if "mnist" in present else "digits")
    assert first_available("nowhere or faces") == "faces"


def test_tasks_have_two_classes_or_all():
    assert len(load_task("digits", 10, 0).classes) == 2
    assert len(load_task("digits", 10, 0, all_classes=True).classes) == 10
    assert load_task("digits", 10, 0, 20).test is not None


def test_held_out_images_are_no_training_images():
    data = draw("digits", "all", size=20, held_out=60, seed=1, shrink=2)
    assert data.input_shape == (1, 4, 4)
    assert len(data.holdout) == 60
    assert torch.cdist(data.train.inputs.flatten(1), data.holdout.inputs.flatten(1)).min() > 0


def test_the_training_set_does_not_depend_on_the_hold_out_set():
    few, many = (draw("digits", "all", size=20, held_out=held_out, seed=1) for held_out in (60, 100))
    assert torch.equal(few.train.inputs, many.train.inputs)
    assert torch.equal(few.train.labels, many.train.labels)


def test_the_offset_is_the_mean_of_the_shrunk_training_images():
    data = draw("digits", "all", size=20, held_out=20, seed=0, shrink=4)
    torch.testing.assert_close(data.offset.flatten(), data.train.inputs.mean().reshape(1))


def test_pixels_are_averaged_in_squares():
    split = load_task("digits", 4, 0).train
    small = average_pixels(split, 4)
    assert torch.equal(small.labels, split.labels)
    torch.testing.assert_close(small.inputs[0, 0, 0, 0], split.inputs[0, 0, :4, :4].mean())
    assert average_pixels(split, 1) is split
