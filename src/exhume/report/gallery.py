"""Draw labelled rows of images."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from exhume.records.record import Bounds
from exhume.report.exhibits import to_pixels
from exhume.report.figures import MUTED, TRAINED


def draw_image_rows(
    rows: Mapping[str, Float[Tensor, "image ..."]],
    bounds: Bounds | None,
    framed: Mapping[str, Sequence[int]] | None = None,
) -> Figure:
    """Draw rows of images by label; ``framed`` lists the positions of framed images per row."""
    tiles = {name: [to_pixels(image, bounds) for image in images] for name, images in rows.items()}
    columns = max(len(row) for row in tiles.values())
    height, width = next(iter(tiles.values()))[0].shape[:2]
    gap = max(1, width // 8)
    canvas = np.full((len(rows) * (height + gap), columns * (width + gap), 4), 255, np.uint8)
    canvas[..., 3] = 0
    for line, row in enumerate(tiles.values()):
        for place, tile in enumerate(row):
            top, left = line * (height + gap), place * (width + gap)
            canvas[top : top + height, left : left + width, :3] = tile
            canvas[top : top + height, left : left + width, 3] = 255
    inches = 9.0 / canvas.shape[1]
    margin = 0.3 + 0.07 * max(map(len, tiles))  # inches for the longest label
    figure = Figure(figsize=(9.0 + margin, canvas.shape[0] * inches + 0.1))
    axes = figure.add_axes((margin / (9.0 + margin), 0.0, 9.0 / (9.0 + margin), 1.0))
    axes.imshow(canvas, interpolation="nearest")
    axes.set_axis_off()
    axes.set(xlim=(-2.5, canvas.shape[1] + 0.5), ylim=(canvas.shape[0] + 0.5, -2.5))  # room for frames
    for line, name in enumerate(tiles):
        middle = line * (height + gap) + height / 2
        axes.text(-0.02 * canvas.shape[1], middle, name, ha="right", va="center", fontsize=8, color=MUTED)
        for place in (framed or {}).get(name, ()):
            corner = place * (width + gap) - 1.0, line * (height + gap) - 1.0
            axes.add_patch(Rectangle(corner, width + 1, height + 1, fill=False, edgecolor=TRAINED, linewidth=1.4))
    return figure
