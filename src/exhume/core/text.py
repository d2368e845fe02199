"""Small pieces of text for messages and reports."""

MAX_LENGTH = 160
"""Largest number of characters quoted from an error; longer sentences hide the message around them."""


def first_sentence(error: BaseException) -> str:
    r"""Return the first sentence of an error message, which is where libraries state the problem.

    >>> first_sentence(ValueError("the file is too short. This is an internal error.\nExpected 3 bytes, got 1"))
    'the file is too short'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0][:MAX_LENGTH].rstrip(". ")


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is needed.

    >>> count_noun(1, "step"), count_noun(0, "step"), count_noun(12000, "training example")
    ('1 step', '0 steps', '12 000 training examples')
    """
    digits = f"{count:,}".replace(",", " ") if count >= 10_000 else str(count)
    return f"{digits} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration in its natural unit.

    >>> format_duration(42.0), format_duration(1_700.0), format_duration(9_000.0)
    ('42 seconds', '28 minutes', '2.5 hours')
    """
    if seconds < 90:
        return count_noun(max(1, round(seconds)), "second")
    if seconds < 5_400:
        return count_noun(round(seconds / 60), "minute")
    return f"{seconds / 3600:.2g} hours"
