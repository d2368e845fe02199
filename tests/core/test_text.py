"""Text helpers: one sentence of an error, and numbers with their nouns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.core.text import MAX_LENGTH, count_noun, first_sentence


@given(st.text())
def test_any_message_becomes_one_short_line(message):
    line = first_sentence(ValueError(message))
    assert len(line) <= MAX_LENGTH
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("It failed. Call us."), "It failed"),
        (ValueError("It failed.\nTrace"), "It failed"),
        (KeyError(), "KeyError"),
        (ValueError("version 1.5 is old."), "version 1.5 is old"),
    ],
)
def test_the_first_sentence_stands_for_the_error(error, sentence):
    assert first_sentence(error) == sentence


@given(st.integers(0, 10**12))
def test_a_count_keeps_its_digits_and_its_noun(count):
    digits, noun = count_noun(count, "step").rsplit(" ", 1)
    assert int(digits.replace(" ", "")) == count
    assert noun == ("step" if count == 1 else "steps")
