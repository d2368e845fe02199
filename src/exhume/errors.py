"""What can go wrong, each error one sentence a person can act on."""


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
