"""Bundled data sets: images, labels and columns belong together."""

import torch

from exhume.data import load


def test_digits_look_like_their_labels() -> None:
    """A zero has a hole in the middle and a one does not; this fails when labels and images are out of step."""
    data = load("digits", classes=("0", "1"), size=100)
    middle = data.train.inputs[:, 0, 3:5, 3:5].mean(dim=(1, 2))
    assert middle[data.train.labels == 0].mean() < 0.3 < 0.6 < middle[data.train.labels == 1].mean()


def test_faces_come_first_and_the_right_way_up() -> None:
    """In the mean face a dark band of eyes lies between forehead and cheeks, above the middle; background has none."""
    data = load("faces")
    assert len(data.train) == 100
    assert data.classes == ("face", "other")
    assert data.test is None

    def eyes_are_darker_by(label: int) -> float:
        rows = data.train.inputs[data.train.labels == label][:, 0, :, 6:19].mean(dim=(0, 2))
        return float(torch.minimum(rows[2:5].mean(), rows[10:13].mean()) - rows[7:9].mean())

    assert eyes_are_darker_by(0) > 0.1
    assert eyes_are_darker_by(1) < 0.05


def test_a_table_is_standardised_unbounded_and_not_centred() -> None:
    data = load("breast-cancer")
    assert data.bounds is None
    assert data.offset is None
    assert data.classes == ("malignant", "benign")
    assert data.features is not None
    assert len(data.features) == data.input_shape[0] == 30
    every = torch.cat([part.inputs for part in (data.train, data.holdout, data.test) if part is not None])
    assert every.shape == (569, 30)
    torch.testing.assert_close(every.mean(dim=0), torch.zeros(30), atol=1e-5, rtol=0)
    torch.testing.assert_close(every.std(dim=0, correction=0), torch.ones(30))
    # Malignant tumours are larger: labels and rows are in step.
    radius = data.train.inputs[:, data.features.index("mean radius")]
    assert radius[data.train.labels == 0].mean() > 0.5 > radius[data.train.labels == 1].mean()
