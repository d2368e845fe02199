"""Data sets that come with exhume's dependencies and need no download.

The libraries are imported on use, because scikit-learn alone takes longer to import than the rest of exhume.
"""

import torch

from exhume.data.idx import DIGITS
from exhume.data.source import Examples, Source, standardise_columns


def read_digits() -> Source:
    """Read scikit-learn's 1797 handwritten digits of 8×8 pixels (Alpaydin and Kaynak 1998)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images)[:, None] / 16  # each value counts the inked pixels of a 4×4 block: 0 to 16
    labels = torch.from_numpy(bunch.target).long()
    return Source(
        name="digits", train=Examples(inputs=images.float(), labels=labels), classes=DIGITS, bounds=(0.0, 1.0)
    )


def read_faces() -> Source:
    """Read scikit-image's 100 faces and 100 patches of background, 25×25 pixels, from LFW (Huang et al. 2007)."""
    from skimage.data import lfw_subset

    images = torch.from_numpy(lfw_subset())[:, None].float()  # type: ignore[no-untyped-call]
    labels = (torch.arange(len(images)) >= 100).long()  # the faces come first
    return Source(
        name="faces", train=Examples(inputs=images, labels=labels), classes=("face", "other"), bounds=(0.0, 1.0)
    )


def read_breast_cancer() -> Source:
    """Read scikit-learn's 569 breast tumours of 30 measurements each (Street et al. 1993), standardised."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return Source(
        name="breast-cancer",
        train=Examples(
            inputs=standardise_columns(torch.from_numpy(bunch.data)).float(),
            labels=torch.from_numpy(bunch.target).long(),
        ),
        classes=tuple(str(name) for name in bunch.target_names),
        bounds=None,
        features=tuple(str(name) for name in bunch.feature_names),
    )
