"""The end that the examples share: train in a folder, then run one audit command on the files that training left."""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path


def train_and_audit(train: Callable[[Path, int], None], command: str, *, script: str, size: int) -> None:
    """Run an example and exit with the exit code of its audit.

    Args:
        train: trains on so many private examples and writes weights and data into a folder.
        command: the audit; ``{script}`` and ``{out}`` stand for the example's file and its folder.
        script: the example's file.
        size: default number of private examples.
    """
    parser = argparse.ArgumentParser(prog=Path(script).name)
    parser.add_argument("--out", type=Path, default=Path("out") / Path(script).stem.replace("_", "-"))
    parser.add_argument("--size", type=int, default=size, help="number of private training examples")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train(options.out, options.size)

    words = [word.format(script=script, out=options.out) for word in shlex.split(command)]
    print(shlex.join(words))
    from exhume.cli import main

    sys.exit(main(words[1:]))
