"""Starting points: the images of each, their order, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import exhume
from exhume.attacks.bilevel.starts import Images, Mixture, Noise, another_partition, ground_truth, start_from
from exhume.core.errors import DataError, ExhumeError, Refusal
from exhume.records import AttackerView


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def data():
    return exhume.load("digits", classes="0,1,2", size=9, test=0)


@pytest.fixture(scope="module")
def view(data):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    return AttackerView(model=model, final=model.state_dict(), input_shape=data.input_shape, offset=data.offset)


LABELS = torch.arange(9) % 3


def test_noise_lies_around_what_the_network_sees_as_zero(view):
    drawn = Noise(init_std=0.1).draw(view, LABELS, generator())
    seen = view.to_model(drawn)
    assert drawn.shape == (9, 1, 8, 8)
    assert abs(float(seen.mean())) < 0.02
    assert float(seen.std()) == pytest.approx(0.1, rel=0.1)
    assert torch.equal(drawn, Noise(init_std=0.1).draw(view, LABELS, generator()))
    assert not torch.equal(drawn, Noise(init_std=0.1).draw(view, LABELS, generator(1)))


def test_each_image_is_used_once_in_the_order_of_the_labels(view, data):
    drawn = ground_truth(data).draw(view, LABELS, generator())
    places = [int((data.train.inputs == one).flatten(1).all(1).nonzero()[0, 0]) for one in drawn]
    assert data.train.labels[places].tolist() == LABELS.tolist()
    assert sorted(places) == list(range(9))
    held_out = another_partition(data).draw(view, LABELS, generator())
    assert torch.cdist(held_out.flatten(1), data.train.inputs.flatten(1)).min() > 0


def test_images_without_labels_keep_their_order(view, data):
    images = Images(inputs=data.holdout.inputs)
    assert torch.equal(images.draw(view, LABELS[:4], generator()), data.holdout.inputs[:4])
    with pytest.raises(Refusal, match="holds 9 images, and 10"):
        images.draw(view, torch.zeros(10, dtype=torch.long), generator())


def test_images_that_do_not_fit_are_refused(view, data):
    with pytest.raises(Refusal, match=r"shape \(64,\)"):
        Images(inputs=data.train.inputs.flatten(1)).draw(view, LABELS, generator())
    with pytest.raises(Refusal, match="3 images of class 0, and 9"):
        ground_truth(data).draw(view, torch.zeros(9, dtype=torch.long), generator())


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_mixture_lies_on_the_line_between_its_parts(view, data, share):
    mixed = Mixture(first=ground_truth(data), second=another_partition(data), share=share)
    one, other = (start.draw(view, LABELS, generator()) for start in (ground_truth(data), another_partition(data)))
    drawn = mixed.draw(view, LABELS, generator())
    assert torch.allclose(drawn, share * one + (1 - share) * other, atol=1e-6)
    assert mixed.size == 9
    assert mixed.is_oracle == (share > 0)


def test_mixtures_nest_and_state_whether_an_attacker_could_have_them(data):
    fair = Mixture(first=another_partition(data), second=Noise(), share=0.5)
    assert not fair.is_oracle
    assert Mixture(first=fair, second=ground_truth(data), share=0.9).is_oracle
    assert Mixture(first=Noise(), second=Noise(), share=0.5).size is None
    with pytest.raises(ExhumeError, match="share should be less than or equal to 1"):
        Mixture(first=Noise(), second=Noise(), share=1.5)


def test_a_start_is_named_by_its_repr(data):
    assert repr(Noise(init_std=0.3)) == "Noise(init_std=0.3)"
    assert "'ground truth', 9 of them" in repr(ground_truth(data))
    assert repr(ground_truth(data)) != repr(another_partition(data))
    assert ground_truth(data) == ground_truth(data)
    assert ground_truth(data) != another_partition(data)


def test_images_are_read_from_a_path(tmp_path, view, data):
    path = tmp_path / "mine.npz"
    np.savez(path, x=data.holdout.inputs.numpy(), y=data.holdout.labels.numpy())
    own = start_from(str(path))
    assert not own.is_oracle
    wanted = another_partition(data).draw(view, LABELS, generator())
    assert torch.allclose(own.draw(view, LABELS, generator()), wanted)
    assert start_from("noise") == Noise()
    with pytest.raises(DataError, match="no file or folder"):
        start_from(str(tmp_path / "nothing.npz"))
