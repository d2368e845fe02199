"""Bounds on coincidences: never below the exact probability."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from exhume.core.chance import bound_log_tail, log_choices


@given(trials=st.integers(1, 3000), share=st.floats(0, 1), chance=st.floats(1e-6, 1 - 1e-6))
def test_the_tail_bound_is_never_below_the_tail(trials, share, chance):
    hits = round(share * trials)
    bound = bound_log_tail(np.array([float(hits)]), trials, np.array([chance]))[0]
    assert bound >= binom.logsf(hits - 1, trials, chance) - 1e-6 * abs(bound) - 1e-9


@given(things=st.integers(0, 300), share=st.floats(0, 1))
def test_choices_are_those_that_integers_count(things, share):
    chosen = round(share * things)
    assert log_choices(things, chosen) == pytest.approx(math.log(math.comb(things, chosen)), rel=1e-9, abs=1e-9)
