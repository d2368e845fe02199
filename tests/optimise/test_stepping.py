"""TF32 is switched inside a context, and nothing is changed outside of it."""

import pytest
import torch

from exhume.optimise import Adam, minimise
from exhume.optimise.stepping import tf32_products


def is_allowed():
    return torch.backends.cuda.matmul.allow_tf32


def fail_inside(allowed):
    with tf32_products(allowed):
        assert is_allowed() is allowed
        raise RuntimeError


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_the_setting_holds_inside_the_context_only(before, allowed):
    with tf32_products(before):
        with pytest.raises(RuntimeError):
            fail_inside(allowed)
        assert is_allowed() is before


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(("share", "coarse"), [(0.0, 0), (0.3, 30), (1.0, 100)])
def test_the_first_steps_of_a_loop_may_round_and_the_last_may_not(before, share, coarse):
    seen = []

    def objective(variables, elapsed):
        seen.append(is_allowed())
        return variables[0].square().sum(), (2 * variables[0],)

    with tf32_products(before):
        minimise(objective, (torch.ones(2),), Adam(steps=100, learning_rates=(0.1,), coarse_share=share))
        assert is_allowed() is before
    assert seen == [True] * coarse + [False] * (100 - coarse)
