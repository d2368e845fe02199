"""Read CSV files with a header, one column of labels, and numbers in all other columns."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import torch

from exhume.core.errors import DataError
from exhume.data.labels import encode_labels, sort_classes
from exhume.data.source import LARGEST_SOURCE, Examples, Source, standardise_columns

SEPARATORS = ",;\t"


def read_csv(path: Path, label: str | None) -> Source:
    """Read a CSV file; column ``label`` holds the classes, and the other columns are standardised."""
    if label is None:
        raise DataError(f"Name the column of {path} that holds the classes, as in load({path.name!r}, label='target').")
    rows = _rows(path)
    _, header = next(rows, (1, []))
    position = _column(header, label, path)
    features = (*header[:position], *header[position + 1 :])
    labels: list[str] = []
    table: list[list[float]] = []
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} values where the header names {len(header)} columns.")
        labels.append(row.pop(position).strip())
        if not labels[-1]:
            raise DataError(f"{path}, line {line}: no label in column {label!r}; fill it in or drop the row.")
        table.append(
            [_number(text, f"{path}, line {line}, column {name!r}") for name, text in zip(features, row, strict=True)]
        )
    if not table:
        raise DataError(f"{path} has a header and no rows.")
    classes = sort_classes(labels)
    inputs = standardise_columns(torch.tensor(table, dtype=torch.float64)).float()
    return Source(
        name=path.stem,
        train=Examples(inputs=inputs, labels=encode_labels(labels, classes, str(path))),
        classes=classes,
        bounds=None,
        features=features,
    )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    if path.stat().st_size > LARGEST_SOURCE:
        raise DataError(f"{path} is larger than {LARGEST_SOURCE:,} bytes; use fewer rows.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline(2**16)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(SEPARATORS, key=header.count), strict=True)
            for row in reader:
                if row:  # skip blank lines
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason}); export it again as CSV in UTF-8.") from error
    except csv.Error as error:
        raise DataError(f"{path} is not a readable CSV file ({error}).") from error


def _column(header: list[str], label: str, path: Path) -> int:
    header[:] = [name.strip() for name in header]
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise DataError(f"{path} names the column {min(twice)!r} twice; give every column its own name.")
    if label not in header:
        raise DataError(f"{path} has no column {label!r}; its columns are {', '.join(header[:20]) or 'none'}.")
    if len(header) == 1:
        raise DataError(f"{path} has only the label column {label!r}; there is nothing to learn from.")
    return header.index(label)


def _number(text: str, where: str) -> float:
    try:
        value = float(text.replace("_", "?"))  # Python reads 1_000 as a number, CSV files do not
    except ValueError:
        shown = f"{text[:40]!r} is not a number" if text.strip() else "the value is missing"
        raise DataError(f"{where}: {shown}; encode the column as numbers or drop it.") from None
    if not math.isfinite(value) or abs(value) > torch.finfo(torch.float32).max:
        raise DataError(f"{where}: {text.strip()} is not a finite number; fill it in or drop the row.")
    return value
