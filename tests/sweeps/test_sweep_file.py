"""Plans of sweeps: every combination once, each with a key of its own, and a sentence for whatever is wrong."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.core.errors import ExhumeError
from exhume.sweeps import Resources, Step, Sweep, Task, read_sweep
from exhume.sweeps.sweep_file import flatten_settings

names = st.text("abcdef-", min_size=1, max_size=6)
values = st.one_of(st.integers(-9, 9), st.booleans(), st.text("xyz =<&", max_size=5), st.floats(-1, 1))
axes = st.dictionaries(names, st.lists(values, min_size=1, max_size=3, unique_by=repr), max_size=3)


def written(path: Path, text: str) -> Path:
    file = path / "sweep.toml"
    file.write_text(text)
    return file


@given(grid=axes, seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True), cases=st.integers(1, 3))
def test_every_combination_comes_once_with_its_own_key(grid, seeds, cases):
    sweep = Sweep(
        commands=("train", "audit"),
        seeds=tuple(seeds),
        grid={"train": grid},
        cases=tuple({"audit": {"case": number}} for number in range(cases)),
    )
    tasks = list(sweep.tasks())
    assert len(tasks) == len(sweep) == cases * math.prod(map(len, grid.values())) * len(seeds)
    # True and 1 are one value to Python, and two to a command line.
    points = {(repr(sorted(task.settings.items())), task.seed) for task in tasks}
    assert len({task.key for task in tasks}) == len(points) == len(tasks)


def test_the_key_depends_on_settings_and_not_on_their_notation():
    one = Task(steps=(Step(command="train", settings={"size": 5, "width": 6}),), seed=0)
    same = Task(steps=(Step(command="train", settings={"width": 6, "size": 5}),), seed=0)
    others = [
        Task(steps=one.steps, seed=1),
        Task(steps=(Step(command="audit", settings={"size": 5, "width": 6}),), seed=0),
        Task(steps=(Step(command="train", settings={"size": 5, "width": 7}),), seed=0),
        Task(steps=one.steps * 2, seed=0),
    ]
    assert one.key == same.key
    assert len({one.key, *(other.key for other in others)}) == 5


def test_a_file_describes_a_whole_sweep(tmp_path):
    sweep = read_sweep(
        written(
            tmp_path,
            """
            commands = ["train", "audit"]
            seeds = [3, 5]
            results = ["audit.good"]
            [options.train]
            data = "digits"
            [options.audit]
            set.learning_rate = 0.1
            [grid.train]
            size = [10, 20]
            [grid.audit]
            set.steps = [1, 2]
            [[cases]]
            train = {width = 64, depth = 1}
            [[cases]]
            train = {width = 128}
            [resources]
            cpus = 0.5
            retries = 1
            """,
        )
    )
    tasks = list(sweep.tasks())
    assert len(tasks) == 16
    assert sweep.axes == ("train.width", "train.depth", "train.size", "audit.set.steps")
    assert sweep.resources == Resources(cpus=0.5, retries=1)
    assert tasks[0].steps[1].settings == {"set": {"learning_rate": 0.1, "steps": 1}}
    assert tasks[0].settings == {
        "train.data": "digits", "train.width": 64, "train.depth": 1, "train.size": 10,
        "audit.set.learning_rate": 0.1, "audit.set.steps": 1,
    }  # fmt: skip
    assert [task.seed for task in tasks[:4]] == [3, 5, 3, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("commands = [", "is not TOML"),
        ("", "a list of words such as commands"),
        ("commands = []", "a list of words"),
        ("commands = 'train'", "a list of words"),
        ("commands = ['train', 'train']", "stands twice"),
        ("commands = ['train']\nsed = 3", "did you mean seeds"),
        ("commands = ['train']\nseeds = 0", "seeds are a number of repetitions"),
        ("commands = ['train']\nseeds = true", "seeds are a number of repetitions"),
        ("commands = ['train']\nseeds = [1, 1]", "the same seed"),
        ("commands = ['train']\nseeds = [-1]", "seeds are"),
        ("commands = ['train']\n[options.audit]\nx = 1", "has no 'audit'"),
        ("commands = ['train']\noptions = 3", "a table for each command"),
        ("commands = ['train']\n[options]\ntrain = 3", "train is none"),
        ("commands = ['train']\n[options.train]\nwhen = 2020-01-01", "which no option takes"),
        ("commands = ['train']\n[options.train]\nlr = nan", "which no option takes"),
        ("commands = ['train']\n[grid.train]\nsize = 3", "needs a list of values for size"),
        ("commands = ['train']\n[grid.train]\nsize = []", "needs a list of values for size"),
        ("commands = ['train']\n[grid.train]\nsize = [1, 1]", "lists a value of size twice"),
        ("commands = ['train']\n[grid.train]\nsize = [1]\n[options.train]\nsize = 2", "train.size is set twice"),
        ("commands = ['train']\ncases = []", "one table after another"),
        ("commands = ['train']\n[resources]\ncpu = 1", "did you mean cpus"),
        ("commands = ['train']\n[resources]\ngpus = -1", "at least 0 of gpus"),
        ("commands = ['train']\n[resources]\nretries = 1.5", "whole number for retries"),
        ("commands = ['train']\nresources = 1", "is a table"),
        ("commands = ['train']\nseeds = 200000", "more than 100000"),
        ("commands = ['train']\nseeds = 9999999999999", "more than 100000"),
        ("commands = ['train']\nseeds = 60000\n[grid.train]\nsize = [1, 2]", "120000 tasks, more than 100000"),
        ("commands = ['train']\n[[cases]]\ntrain = {size = 5}\n[[cases]]\ntrain = {size = 5}", "same case twice"),
        ("commands = ['audit']\n[grid.audit]\nset = [{steps = 1}, {steps = 2}]", "takes no tables: write set.NAME"),
        ("commands = ['audit']\n[grid.audit]\nset.a = [1]\n[options.audit]\nset = 'a=2'", "audit.set is set twice"),
        ("commands = ['audit']\n[grid.audit]\nset = ['a=1']\n[options.audit]\nset.b = 2", "audit.set is set twice"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(tmp_path, text, said):
    with pytest.raises(ExhumeError, match=said) as caught:
        read_sweep(written(tmp_path, text))
    assert "sweep.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(ExhumeError, match="There is no sweep"):
        read_sweep(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExhumeError, match="cannot be read as text"):
        read_sweep(tmp_path / "bytes.toml")


parts = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
)


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(["commands", "seeds", "options", "grid", "cases", "results", "resources"]), parts)
)
def test_any_file_is_read_or_refused_with_one_sentence(said):
    from exhume.sweeps.sweep_file import _Reader

    try:
        list(_Reader("file").read_sweep(said).tasks())
    except ExhumeError as error:
        assert str(error)  # noqa: PT017 - anything else is what must not happen


@given(st.dictionaries(names, st.dictionaries(names, values, min_size=1, max_size=2), max_size=3))
def test_dotted_names_keep_every_setting(tables):
    assert flatten_settings(tables) == {f"{one}.{other}": tables[one][other] for one in tables for other in tables[one]}
