"""Load ten thousand hostile files as the command line does, and check that each ends well.

Checkpoints in four layouts, gradients, weights, training data, saved data sets and run folders are made from valid
files: damaged bytes, strange tensors and keys, pickles that would run code, archive and header tricks, folders and
pipes in the place of files. Each must give a usable result or an error of one sentence: no other exception, no code
executed, no input file changed, no file left behind. Some cases run the whole command ``exhume audit``.

    PYTHONPATH=src python benchmarks/fuzz.py [--cases 10000] [--first 0] [--only gradient] [--out DIR]

Prints one row per kind of file and every case that failed; ``--first N --cases 1 --only KIND`` repeats one.
"""

import argparse
import contextlib
import copy
import faulthandler
import hashlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_files as hostile
import numpy as np
import torch
from PIL import Image
from torch import nn

from exhume import Dataset, assess, load
from exhume.auditing.run_folder import RunFolder
from exhume.cli import main as command_line
from exhume.cli.options import OwnModel
from exhume.cli.own_model import build_view
from exhume.cli.pipeline import load_examples
from exhume.core.errors import ExhumeError
from exhume.evaluation.data_checks import check_data
from exhume.models.mlp import MLP
from exhume.training import train

MODEL = """
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
"""
SHAPE = "1,2,2"
LONGEST_MESSAGE = 1100
"""Characters of an error message: what the errors allow themselves, some of them escaped."""
MOST_SECONDS = 30
"""Seconds that no case may take; most take milliseconds, a whole audit one or two seconds."""
MOST_MEMORY = 12 * 2**30
"""Bytes of address space: a file that makes a reader allocate more fails its case instead of stopping the machine."""
WHOLE_AUDITS = 40
"""One case in so many runs the whole command."""
EXIT_CODES = (0, 2, 3)
"""Exit codes of the command for these cases: done, bad input, nothing could be tested."""

Content = Any
"""Nested values for a PyTorch file, tensors by name for safetensors, arrays by name for .npz, or bytes."""


@dataclass(frozen=True)
class Kind:
    """One kind of input: its valid files, the step of the command line that reads them, and the command."""

    files: dict[str, Content]
    read: Callable[[Path], object]
    options: Callable[[Path], list[str]] | None = None
    """The options of ``exhume audit`` for these files; None where another command reads them."""


def main(words: list[str] | None = None) -> int:
    """Run the cases; return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", help="one kind of file")
    parser.add_argument("--out", type=Path, help="folder for fuzz.json")
    given = parser.parse_args(words)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with tempfile.TemporaryDirectory() as place:
        kinds = make_kinds(Path(place) / "valid")
        if given.only is not None and given.only not in kinds:
            parser.error(f"there is no {given.only!r}; choose from {', '.join(kinds)}")
        names = [given.only] if given.only else list(kinds)
        rows = run_cases({name: kinds[name] for name in names}, range(given.first, given.first + given.cases), place)
    print(f"{'kind':<14}{'cases':>8}{'loaded':>8}{'refused':>9}{'failed':>8}{'seconds':>9}")
    for row in rows:
        print(f"{row['kind']:<14}" + "".join(f"{row[key]:>{width}}" for key, width in WIDTHS.items()))
    failed = sum(row["failed"] for row in rows)
    print(f"{sum(row['cases'] for row in rows)} cases, {failed} failed")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "fuzz.json").write_text(json.dumps({"rows": rows, "failed": failed}, indent=2) + "\n")
    return int(failed > 0)


WIDTHS = {"cases": 8, "loaded": 8, "refused": 9, "failed": 8, "seconds": 9}


def run_cases(kinds: dict[str, Kind], numbers: range, place: str) -> list[dict[str, Any]]:
    """Run cases that take turns among the kinds, and return a row of counts per kind."""
    names, counts, seconds = list(kinds), {name: Counter[str]() for name in kinds}, Counter[str]()
    for number in numbers:
        name = names[number % len(names)]
        started = time.process_time()
        try:
            outcome = run_case(kinds[name], name, number, Path(place) / "case")
        except Exception:
            outcome = "failed"
            print(f"FAILED: --only {name} --first {number} --cases 1", traceback.format_exc(), sep="\n", flush=True)
        counts[name][outcome] += 1
        seconds[name] += time.process_time() - started
    return [
        {
            "kind": name,
            "cases": sum(counts[name].values()),
            **{outcome: counts[name][outcome] for outcome in ("loaded", "refused", "failed")},
            "seconds": round(seconds[name], 1),
        }
        for name in names
    ]


def run_case(kind: Kind, name: str, number: int, place: Path) -> str:
    """Make the files of one case, read them, and return ``loaded`` or ``refused``; raise if anything else happened."""
    draw = random.Random(f"{name} {number}")
    shutil.rmtree(place, ignore_errors=True)
    given, mark = place / "given", place / "executed"
    given.mkdir(parents=True)
    write_case(kind, given, mark, draw)
    before = fingerprint(given)
    with time_limit():
        if kind.options is not None and draw.randrange(WHOLE_AUDITS) == 0:
            outcome = run_command(kind.options(given), place / "out", draw)
        else:
            outcome = read_in_process(kind, given)
    assert not mark.exists(), "code in a file was executed"
    assert fingerprint(given) == before, "an input file changed"
    assert {path.name for path in place.iterdir()} <= {"given", "out"}, "a file was left behind"
    return outcome


def read_in_process(kind: Kind, given: Path) -> str:
    """Read the files as a command does; an error must be one sentence that a terminal can show."""
    with warnings.catch_warnings(record=True) as noise:
        warnings.simplefilter("always")
        try:
            kind.read(given)
        except ExhumeError as error:
            check_message(str(error))
            return "refused"
        finally:
            loud = [f"{one.filename}:{one.lineno}: {one.message}" for one in noise if "exhume" in one.filename]
            assert not loud, f"a warning reached the user: {loud}"
    return "loaded"


def run_command(options: list[str], out: Path, draw: random.Random) -> str:
    """Run ``exhume audit`` in this process and check its exit code and what it printed."""
    attack = draw.choice(("weight-difference", "gate-certificate"))
    quick = [f"--attacks={attack}", *(["--set=steps=3", "--set=candidates=4"] if attack == "weight-difference" else [])]
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = command_line(["audit", *options, f"--out={out}", "--device=cpu", *quick])
    assert code in EXIT_CODES, f"exit code {code}: {errors.getvalue()}"
    assert "Traceback" not in errors.getvalue(), errors.getvalue()
    if code == 2:
        check_message(errors.getvalue().strip().splitlines()[-1])
    return "refused" if code == 2 else "loaded"


def check_message(message: str) -> None:
    """Raise AssertionError unless an error message is one printable sentence of moderate length."""
    assert message.strip(), "the message is empty"
    assert message.isprintable(), f"the message has characters that a terminal would obey: {message!r}"
    assert len(message) <= LONGEST_MESSAGE, f"the message has {len(message)} characters: {message[:200]!r}"
    assert message.endswith("."), f"the message is no sentence: {message!r}"


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise TimeoutError in a case that hangs."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"a case took {MOST_SECONDS} seconds")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def fingerprint(folder: Path) -> dict[str, str]:
    """Return a digest of every file below a folder; other kinds of entries by their kind.

    What Python keeps of a module that it imported does not count.
    """
    digests = {}
    for path in sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts):
        is_plain = path.is_file() and not path.is_symlink()
        digests[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if is_plain else oct(path.lstat().st_mode)
    return digests


def write_case(kind: Kind, folder: Path, mark: Path, draw: random.Random) -> None:
    """Write the files of a kind, one or two of them hostile."""
    write_files(kind, folder)
    for name in draw.sample(sorted(kind.files), k=min(len(kind.files), draw.choice((1, 1, 1, 2)))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about some of the tensors
            (folder / name).write_bytes(make_hostile(name, kind.files[name], mark, draw))
        if draw.random() < 0.02:
            hostile.replace_by_another_kind(folder / name, draw)


def write_files(kind: Kind, folder: Path) -> None:
    """Write the valid files of a kind."""
    for name, content in {"models.py": MODEL.encode(), **kind.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_bytes(name, content))


def make_hostile(name: str, content: Content, mark: Path, draw: random.Random) -> bytes:
    """Return a hostile version of a file."""
    valid = to_bytes(name, content)
    way = draw.randrange(5)
    if name.endswith(".csv") and way > 1:
        return hostile.disturb_table(valid, draw)
    if isinstance(content, bytes) and name.endswith(".safetensors") and way > 0:
        return hostile.disturb_record(valid, draw, mark) if way > 1 else hostile.disturb_safetensors(valid, draw)
    if way == 0 or isinstance(content, bytes):
        return hostile.damage_bytes(valid, draw, valid[::-1])
    if name.endswith(".npz"):
        return hostile.disturb_zip(valid, draw, mark) if way == 1 else hostile.disturb_npz(content, draw, mark)
    if way == 1:
        is_plain = name.endswith(".safetensors")
        return hostile.disturb_safetensors(valid, draw) if is_plain else hostile.disturb_zip(valid, draw, mark)
    changed = hostile.change_numbers(content, draw) if way == 2 else hostile.disturb(content, draw, mark)
    save = hostile.save_safetensors if name.endswith(".safetensors") else hostile.save_torch
    return save(changed, draw)


def to_bytes(name: str, content: Content) -> bytes:
    """Return a valid file with this content."""
    if isinstance(content, bytes):
        return content
    if name.endswith(".npz"):
        buffer = io.BytesIO()
        np.savez(buffer, **content)
        return buffer.getvalue()
    if name.endswith(".safetensors"):
        return hostile.serialise(content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def make_kinds(folder: Path) -> dict[str, Kind]:
    """Train a tiny network, and return every kind of file that a training or an audit may leave or need."""
    folder.mkdir(parents=True)
    (folder / "models.py").write_text(MODEL)
    torch.manual_seed(0)
    inputs, labels = torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0])
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    initial = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    final = {name: weight.detach().clone() for name, weight in network.state_dict().items()}
    gradient = {name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None}
    state = optimiser.state_dict()
    arrays = {"x": inputs.numpy(), "y": labels.numpy()}
    others = {"x": torch.rand(3, 1, 2, 2).numpy(), "y": labels.numpy()}
    lightning = {
        "epoch": 1, "global_step": 3, "pytorch-lightning_version": "2.4.0", "loops": {}, "callbacks": {},
        "state_dict": {f"net.{name}": weight for name, weight in final.items()}, "optimizer_states": [state],
    }  # fmt: skip
    trainer = {"epoch": 1.0, "global_step": 3, "log_history": [{"loss": 0.5}], "best_metric": None}
    written = write_records(folder, inputs, labels)

    def audited(given: Path, **own: Any) -> None:
        view, _ = build_view(OwnModel(model=f"{given / 'models.py'}:network", input_shape=SHAPE, **own))
        assess(view)

    def options(given: Path, **own: str) -> list[str]:
        named = [f"--{option}={given / file}" for option, file in own.items()]
        return [f"--model={given / 'models.py'}:network", f"--input-shape={SHAPE}", *named]

    def checkpoint(files: dict[str, Content], at: str = ".") -> Kind:
        return Kind(
            files, lambda given: audited(given, checkpoint=given / at), lambda given: options(given, checkpoint=at)
        )

    def check_examples(given: Path, **places: Path | None) -> None:
        wanted = {"run": None, "data": None, "train_data": None, "holdout": None} | places
        view, _ = build_view(
            OwnModel(model=f"{folder / 'models.py'}:network", input_shape=SHAPE, final=folder / "final.safetensors")
        )
        examples = load_examples(view, **wanted)
        assert examples is not None
        check_data(view, examples)

    (folder / "final.safetensors").write_bytes(hostile.serialise(final))
    kinds = {
        "plain": checkpoint({"last.pt": {"model": final, "optimizer": state, "epoch": 3}}, "last.pt"),
        "lightning": checkpoint({"last.ckpt": lightning}, "last.ckpt"),
        "trainer": checkpoint({
            "model.safetensors": final, "optimizer.pt": state, "trainer_state.json": json.dumps(trainer).encode(),
        }),
        "trainer-old": checkpoint({"pytorch_model.bin": final, "optimizer.pt": state, "trainer_state.json": b"{}"}),
        "accelerate": checkpoint({"model.safetensors": final, "optimizer.bin": state}),
        "shards": checkpoint({
            "model-00001-of-00002.safetensors": dict(list(final.items())[:2]),
            "model-00002-of-00002.safetensors": dict(list(final.items())[2:]), "optimizer.bin": state,
        }),
    }  # fmt: skip
    for suffix in ("safetensors", "pt"):
        first, last, slope = f"before.{suffix}", f"after.{suffix}", f"gradient.{suffix}"
        kinds[f"gradient-{suffix}"] = Kind(
            {last: final, slope: gradient},
            lambda given, last=last, slope=slope: audited(given, final=given / last, gradient=given / slope),
            lambda given, last=last, slope=slope: options(given, final=last, gradient=slope),
        )
        kinds[f"weights-{suffix}"] = Kind(
            {first: initial, last: final},
            lambda given, first=first, last=last: audited(given, final=given / last, initial=[str(given / first)]),
            lambda given, first=first, last=last: options(given, final=last, initial=first),
        )
    kinds["data"] = Kind(
        {"train.npz": arrays, "holdout.npz": others, "final.safetensors": final, "before.safetensors": initial},
        lambda given: check_examples(given, train_data=given / "train.npz", holdout=given / "holdout.npz"),
        lambda given: [
            *options(given, initial="before.safetensors", final="final.safetensors"),
            f"--train-data={given / 'train.npz'}", f"--holdout={given / 'holdout.npz'}",
        ],
    )  # fmt: skip
    kinds["saved-data"] = Kind(
        {"data.safetensors": written["data.safetensors"]},
        lambda given: check_examples(given, data=given / "data.safetensors"),
    )
    kinds["run"] = Kind(written, read_run, lambda given: [str(given)])
    kinds["table"] = Kind(
        {"own.csv": b"a,b,class\n1,2.5,x\n3,4,y\n5,6,x\n7,8,y\n"}, lambda given: load(given / "own.csv", label="class")
    )
    doubled = {"x": np.concatenate([arrays["x"], others["x"]]), "y": np.array([0, 1, 0, 1, 0, 1])}
    tested = doubled | {"x_test": others["x"], "y_test": others["y"]}
    kinds["own-npz"] = Kind({"own.npz": tested}, lambda given: load(given / "own.npz"))
    kinds["pictures"] = Kind(make_pictures(), lambda given: load(given / "pictures"))
    return kinds


def read_run(folder: Path) -> None:
    """Read a run folder as ``exhume audit RUN`` does."""
    run = RunFolder(folder)
    view, data = run.load_victim().view(), run.load_data()
    assess(view)
    if data is not None:
        check_data(view, data)
    run.load_training()


def make_pictures() -> dict[str, bytes]:
    """Return PNG files of two classes."""
    files, values = {}, np.random.default_rng(0)
    for name in ("cat/1", "cat/2", "dog/1", "dog/2"):
        buffer = io.BytesIO()
        Image.fromarray(values.integers(0, 255, (4, 4), dtype=np.uint8)).save(buffer, "png")
        files[f"pictures/{name}.png"] = buffer.getvalue()
    return files


def write_records(folder: Path, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, bytes]:
    """Return the files of a run folder."""
    data = Dataset.from_arrays(inputs, inputs.flip(0) * 0.9, labels=labels, holdout_labels=labels, classes=("a", "b"))
    run = RunFolder(folder / "run")
    run.path.mkdir()
    data.save(run.data)
    train(data, model=MLP(width=5, depth=1), steps=3, device="cpu").save(run.victim)
    return {path.name: path.read_bytes() for path in run.path.iterdir()}


if __name__ == "__main__":
    sys.exit(main())
