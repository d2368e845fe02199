import math
from pathlib import Path

import pytest
import torch

from exhume.core.errors import ExhumeError
from exhume.core.run_context import GRACE_SHARE, OutOfTime, RunContext


def test_reports_reach_the_callback_and_stop_after_the_deadline() -> None:
    received: list[tuple[str, int, int, str]] = []

    def callback(stage: str, done: int, total: int, note: str = "") -> None:
        received.append((stage, done, total, note))

    RunContext.start(progress=callback, seconds=600.0).report("search", 1, 2, "half")
    RunContext.start(progress=callback).report("search", 2, 2)
    with pytest.raises(OutOfTime):
        RunContext.start(progress=callback, seconds=-1.0).report("search", 1, 2)
    assert received == [("search", 1, 2, "half"), ("search", 2, 2, ""), ("search", 1, 2, "")]


def test_the_deadline_survives_another_callback() -> None:
    with pytest.raises(OutOfTime):
        RunContext.start(seconds=-1.0, progress=lambda *_: None).report("search", 1, 2)


def test_parts_have_checkpoint_files_and_randomness_of_their_own(tmp_path: Path) -> None:
    whole = RunContext.start(seed=3, checkpoint=tmp_path / "attack.safetensors")
    own = torch.Generator().manual_seed(4)
    part = whole.part("round1", generator=own)
    assert part.checkpoint == tmp_path / "attack-round1.safetensors"
    assert part.generator is own
    assert whole.part("round1").generator is whole.generator
    assert RunContext.start().part("round1").checkpoint is None


def test_state_continues_only_the_work_it_belongs_to(tmp_path: Path) -> None:
    context = RunContext.start(checkpoint=tmp_path / "state.safetensors")
    saved = context.saved("search", {"steps": 3}, torch.ones(2))
    assert saved is not None
    assert saved.load() is None
    saved.save({"done": 1}, {"x": torch.zeros(1)})
    again = context.saved("search", {"steps": 3}, torch.ones(2))
    other = context.saved("search", {"steps": 4}, torch.ones(2))
    assert again is not None
    assert other is not None
    state = again.load()
    assert state is not None
    assert state[0] == {"done": 1}
    with pytest.raises(ExhumeError, match="other settings"):
        other.load()
    context.discard_checkpoint()
    assert again.load() is None
    assert RunContext.start().saved("search", {}) is None


def test_the_end_of_a_search_has_more_time_and_keeps_to_it() -> None:
    late = RunContext.start(seconds=-1.0, wraps_up=True)
    late.report("search", 2, 2)  # complete work is ended whatever the time
    spent = RunContext.start(seconds=-10.0, wraps_up=True).with_grace()
    with pytest.raises(OutOfTime):
        spent.report("search", 2, 2)
    context = RunContext.start(seconds=600.0)
    assert 600.0 * GRACE_SHARE < context.with_grace().deadline - context.deadline < 300.0
    assert RunContext.start().with_grace().deadline == math.inf


def test_a_first_part_takes_its_share_of_the_time_that_is_left() -> None:
    context = RunContext.start(seconds=600.0)
    assert 295.0 < context.deadline - context.share(0.5).deadline < 305.0
    assert RunContext.start().share(0.5).deadline == math.inf


def test_work_without_time_leaves_what_there_is_or_stops() -> None:
    for wraps_up in (True, False):
        context = RunContext.start(seconds=-1.0, wraps_up=wraps_up)

        def work(context: RunContext = context) -> str:
            context.report("judge", 0, 1)
            return "judged"

        if wraps_up:
            assert context.within_time(work, "unjudged") == "unjudged"
        else:
            with pytest.raises(OutOfTime):
                context.within_time(work, "unjudged")
    assert RunContext.start(seconds=600.0).within_time(lambda: "judged", "unjudged") == "judged"
