"""Run ``exhume reproduce`` from source where only the numerical packages are installed.

    PYTHONPATH=src python benchmarks/reproduce.py max-margin-cifar --preset gpu --out DIR

Studies neither download nor write web pages, so pooch, jinja2 and pydantic may be missing.
"""

import sys

import numerical_only  # noqa: F401 # before exhume

from exhume.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
