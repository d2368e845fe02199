"""Ten thousand hostile files: each loader returns a result or raises one clear sentence, and leaves no file behind.

No other exception, hang or incomplete file is allowed. The files are valid ones with damaged bytes, and files with
unusual names, shapes, types and values. Every case runs in this process.
"""

import importlib
import io
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import Tensor, nn

from exhume.auditing import Condition
from exhume.auditing.kept_results import load_kept
from exhume.auditing.run_folder import RunFolder
from exhume.cli.attack_settings import build_all_attacks
from exhume.cli.own_model import parse_seeds
from exhume.core.checkpoint import Checkpoint
from exhume.core.errors import ExhumeError
from exhume.core.settings_from_text import parse_value
from exhume.core.weight_files import load_weights
from exhume.data.csv_files import read_csv
from exhume.data.idx import read_idx
from exhume.data.npz_files import read_npz
from exhume.data.own_files import read_own_files
from exhume.evaluation import evaluate
from exhume.models.mlp import MLP
from exhume.records import AttackerView, Dataset, Evaluation, Outcome, Reconstruction, Split, Victim

MOST_CPU_SECONDS = 60.0
"""CPU time that no case may take: a case takes milliseconds, and a file that unpacks to gigabytes takes minutes.

Not wall-clock time, so that a busy machine changes nothing.
"""


@contextmanager
def allow_clear_errors(folder: Path) -> Iterator[None]:
    """Let a clear error pass, and nothing else; no file may appear or vanish, and no case may take long."""
    before, started = sorted(folder.iterdir()), time.process_time()
    try:
        yield
    except ExhumeError as error:
        message = str(error).strip()
        assert message, "an error has a message"
        assert "\n" not in message, f"an error is one sentence, not {message!r}"
    assert sorted(folder.iterdir()) == before
    assert time.process_time() - started < MOST_CPU_SECONDS


KINDS = ("cut", "flip", "set", "drop", "repeat", "insert", "swap", "length", "zeros")


def draw_damages(case: int) -> list[tuple[str, float, int, int]]:
    """Draw up to three damages: how, where, a byte and a length; without Hypothesis, which takes too long."""
    draw = random.Random(case)
    return [
        (draw.choice(KINDS), draw.random(), draw.randrange(256), draw.choice((0, 1, 2, 8, draw.randrange(400))))
        for _ in range(draw.randint(1, 3))
    ]


def damaged(content: bytes, damages: list[tuple[str, float, int, int]]) -> bytes:
    """Return the content with a few places damaged, half of them near the beginning, where headers are."""
    data = bytearray(content)
    for how, where, value, count in damages:
        if not data:
            break
        place = int(where * (min(len(data), 400) if value % 2 else len(data)))
        if how == "cut":
            del data[place:]
        elif how == "flip":
            data[place] ^= 1 << value % 8
        elif how == "set":
            data[place] = value
        elif how == "drop":
            del data[place : place + count]
        elif how == "repeat":
            data[place:place] = data[place : place + count]
        elif how == "insert":
            data[place:place] = bytes([value]) * count
        elif how == "swap":
            data[place : place + count] = data[place : place + count][::-1]
        elif how == "length":
            data[:8] = (value << 8 * (count % 8)).to_bytes(8, "little")
        else:
            data[place : place + count] = bytes(len(data[place : place + count]))
    return bytes(data)


seeds = torch.Generator().manual_seed(0)


def weights() -> dict[str, Tensor]:
    return {"1.weight": torch.randn(6, 4, generator=seeds), "1.bias": torch.randn(6, generator=seeds)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One valid file of every kind, as bytes."""
    place = tmp_path_factory.mktemp("valid")
    split = Split(inputs=torch.rand(4, 1, 3, 3, generator=seeds), labels=torch.tensor([0, 1, 0, 1]))
    others = Split(inputs=torch.rand(4, 1, 3, 3, generator=seeds), labels=split.labels)
    data = Dataset(name="tiny", train=split, holdout=others, classes=("a", "b"), bounds=(0.0, 1.0))
    network = MLP(width=5, depth=1)
    start = network.build((1, 3, 3), 1, torch.Generator().manual_seed(0)).state_dict()
    victim = Victim(
        architecture=network, initial=start, final={name: weight + 1 for name, weight in start.items()},
        input_shape=(1, 3, 3), outputs=1, bounds=(0.0, 1.0), dataset="tiny",
    )  # fmt: skip
    found = Reconstruction(
        inputs=split.inputs[:2],
        certified=torch.tensor([True, False]),
        confidence=torch.tensor([1.0, 0.5]),
        outcome=Outcome.PARTIAL,
    )
    data.save(place / "dataset")
    victim.save(place / "victim")
    victim.view().save(place / "view")
    found.save(place / "reconstruction")
    evaluate(found, data).save(place / "audit")
    Checkpoint(place / "checkpoint", "me", "search").save({"step": 3}, weights())
    save_file(weights(), place / "safetensors")
    torch.save({"state_dict": weights(), "epoch": 3}, place / "pt")
    np.savez(place / "npz", x=np.random.default_rng(0).random((4, 1, 3, 3)), y=np.array([0, 1, 0, 1]))
    (place / "npz.npz").rename(place / "npz")
    (place / "csv").write_text("a,b,class\n1,2.5,x\n3,4,y\n5,6,x\n7,8,y\n")
    (place / "idx").write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, *range(8)]))
    return {path.name: path.read_bytes() for path in place.iterdir()}


def tiny_module() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


LOADERS: dict[str, tuple[str, Callable[[Path], object], int]] = {
    "safetensors": ("weights.safetensors", load_weights, 2400),
    "pt": ("weights.pt", load_weights, 1850),
    "dataset": ("record", Dataset.load, 500),
    "victim": ("record", Victim.load, 500),
    "view": ("record", AttackerView.load, 500),
    "reconstruction": ("record", Reconstruction.load, 500),
    "audit": ("record", Evaluation.load, 500),
    "checkpoint": ("record", lambda path: Checkpoint(path, "me", "search").load(), 500),
    "npz": ("data.npz", read_npz, 900),
    "csv": ("data.csv", lambda path: read_csv(path, "class"), 700),
    "idx": ("data-idx", lambda path: read_idx(path, 3), 500),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_damaged_files_load_or_are_refused(kind: str, valid: dict[str, bytes], folder: Path) -> None:
    name, load, count = LOADERS[kind]
    place = folder / kind
    place.mkdir()
    file = place / name
    file.write_bytes(valid[kind])
    load(file)  # the file is valid before it is damaged

    for case in range(count):
        damages = draw_damages(case)
        file.write_bytes(damaged(valid[kind], damages))
        try:
            with allow_clear_errors(place):
                load(file)
        except Exception as error:
            raise AssertionError(f"case {case} of {kind}: {damages}") from error


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]
)
names = st.one_of(
    st.sampled_from(["1.weight", "1.bias", "3.weight", "3.bias", "module.1.weight", "model.1.bias", "", "_orig_mod."]),
    st.text(max_size=12),
)
fillings = st.sampled_from([0.0, 1.0, -3.5, float("nan"), float("inf"), 65504.0])


@st.composite
def state_dicts(draw: st.DrawFn) -> dict[str, Tensor]:
    parts = draw(st.dictionaries(names, st.tuples(shapes, dtypes, fillings), max_size=5))
    fitting = {"1.weight": (6, 4), "1.bias": (6,), "3.weight": (1, 6), "3.bias": (1,)}
    made = {}
    for name, (shape, dtype, filling) in parts.items():
        value = filling if dtype.is_floating_point or dtype.is_complex else int(filling == filling)
        made[name] = torch.full(fitting.get(name, shape) if len(shape) % 2 else shape, value, dtype=dtype)
    return made


@settings(max_examples=200)
@given(state_dicts(), st.booleans(), st.sampled_from([None, "state_dict", "model"]))
def test_state_dicts_of_every_kind_and_shape(
    folder: Path, made: dict[str, Tensor], as_pickle: bool, inside: str | None
) -> None:
    place = folder / "states"
    place.mkdir(exist_ok=True)
    (place / "w.pt").unlink(missing_ok=True)
    (place / "w.safetensors").unlink(missing_ok=True)
    file = place / ("w.pt" if as_pickle else "w.safetensors")
    if as_pickle:
        buffer = io.BytesIO()
        torch.save(made if inside is None else {inside: made}, buffer)
        file.write_bytes(buffer.getvalue())
    else:
        try:
            file.write_bytes(save(made))
        except Exception:  # not every name is one that safetensors writes
            return
    with allow_clear_errors(place):
        read = load_weights(file, ("1.weight", "1.bias", "3.weight", "3.bias"))
        AttackerView(model=tiny_module(), initial=read, final=read, input_shape=(4,), bounds=None)


kinds = st.sampled_from(["float32", "float64", "int64", "uint8", "bool", "U3", "complex64", "M8[s]", "S2", "f2"])


@settings(max_examples=200)
@given(shapes, kinds, shapes, kinds, st.integers(-300, 300))
def test_arrays_of_every_kind_and_shape(
    folder: Path, x_shape: tuple[int, ...], x_kind: str, y_shape: tuple[int, ...], y_kind: str, filling: int
) -> None:
    place = folder / "arrays"
    place.mkdir(exist_ok=True)
    file = place / "own.npz"
    x, y = (np.full(shape, abs(filling) % 128 if "u" in kind else filling).astype(kind)
            for shape, kind in ((x_shape, x_kind), (y_shape, y_kind)))  # fmt: skip
    np.savez(file, x=x, y=y)
    with allow_clear_errors(place):
        read_own_files(file, file, input_shape=x_shape[1:] or (1,), bounds=(0.0, 1.0) if filling % 2 else None)
    with allow_clear_errors(place):
        read_npz(file)


@settings(max_examples=125)
@given(st.one_of(st.text(max_size=40), st.from_regex(r"seed:[0-9,-]{0,12}", fullmatch=True)))
def test_arguments_of_the_command_line(folder: Path, text: str) -> None:
    place = folder / "words"
    place.mkdir(exist_ok=True)
    with allow_clear_errors(place):
        assert len(parse_seeds([text])) <= 10**7
    with allow_clear_errors(place):
        Condition.read(text)
    with allow_clear_errors(place):
        build_all_attacks([text])
    parse_value(text)


@settings(max_examples=125)
@given(
    st.one_of(
        st.text(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps)
    )
)
def test_other_text_is_never_taken_for_a_finished_result(folder: Path, text: str) -> None:
    place = folder / "requests"
    place.mkdir(exist_ok=True)
    (place / "request.json").write_text(text, errors="surrogatepass")
    assert load_kept(RunFolder(place), "digest") is None


def test_hostile_inputs_of_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints in every layout, gradients, weights and data; ``benchmarks/fuzz.py`` runs ten thousand of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    kinds = fuzz.make_kinds(tmp_path / "valid")
    for kind in kinds.values():
        place = tmp_path / "as written"
        fuzz.write_files(kind, place)
        kind.read(place)
        shutil.rmtree(place)
    rows = fuzz.run_cases(kinds, range(8 * len(kinds)), str(tmp_path))
    assert sum(row["failed"] for row in rows) == 0, "the output names the failed cases"


def test_ten_thousand_cases_at_least() -> None:
    assert sum(count for _, _, count in LOADERS.values()) + 200 + 200 + 125 + 125 >= 10_000
