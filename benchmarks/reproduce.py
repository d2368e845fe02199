"""Run ``exhume reproduce`` from source where only the numerical packages are installed.

    PYTHONPATH=src python benchmarks/reproduce.py max-margin-cifar --preset gpu --out DIR

Studies neither download nor write web pages, so pooch and jinja2 may be missing.
"""

import importlib.util
import sys
from unittest.mock import MagicMock

for spare in ("pooch", "jinja2"):
    if importlib.util.find_spec(spare) is None:
        sys.modules[spare] = MagicMock()

from exhume.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
