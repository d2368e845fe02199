"""Draw a distilled data set beside the nearest training examples."""

from matplotlib.figure import Figure

from exhume.evaluation.copies import Copies
from exhume.records import Dataset
from exhume.report.gallery import draw_image_rows

ACROSS = 20
"""Number of images per row."""


def draw_beside_nearest(made: Dataset, data: Dataset, copies: Copies) -> Figure | None:
    """Draw distilled images above the nearest training images, framed where they copy one; None for tables."""
    images = made.train.inputs
    if images.ndim not in (3, 4) or min(images.shape[-2:]) < 2:
        return None
    showing = set(copies.shown[:, 0].tolist())
    rows, framed = {}, {}
    for first in range(0, len(images), ACROSS):
        some = images[first : first + ACROSS]
        name = "distilled" if first == 0 else f"distilled, from {first + 1}"
        rows[name] = some
        rows[name.replace("distilled", "nearest")] = data.train.inputs[copies.nearest[first : first + ACROSS]]
        framed[name] = [place for place in range(len(some)) if first + place in showing]
    return draw_image_rows(rows, data.bounds, framed)
