"""What can go wrong, each error one sentence a person can act on."""


def in_a_line(error: BaseException) -> str:
    r"""Return the first sentence of an error, which is where libraries say what is wrong.

    >>> in_a_line(ValueError("the file is too short. This is an internal error.\nExpected 3 bytes, got 1"))
    'the file is too short'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0][:160].rstrip(". ")


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts, as a sentence has them.

    >>> counted(1, "step"), counted(0, "step"), counted(12000, "training example")
    ('1 step', '0 steps', '12 000 training examples')
    """
    digits = f"{count:,}".replace(",", " ") if count >= 10_000 else str(count)
    return f"{digits} {noun}{'' if count == 1 else 's'}"


class ExhumeError(Exception):
    """The base of every error exhume raises on purpose; the command line prints it and exits with 2."""


class DataError(ExhumeError):
    """A data set is missing, truncated or not what it claims to be."""


class WeightsError(ExhumeError):
    """Weights cannot be read, do not fit the model, or hold values no training leaves behind."""


class RecordError(ExhumeError):
    """A saved record cannot be read back."""


class Refusal(ExhumeError):  # noqa: N818 - a refusal is an answer about the view, not a malfunction
    """An attack does not apply to a view, and says why."""
