"""Errors that exhume raises on purpose; each message is one sentence that a user can act on."""


class ExhumeError(Exception):
    """Base of every error that exhume raises on purpose; the command line prints it and exits with status 2."""


class DataError(ExhumeError):
    """A data set is missing, truncated or not what it claims to be."""


class WeightsError(ExhumeError):
    """Weights cannot be read, do not fit the model, or hold values that are not finite."""


class RecordError(ExhumeError):
    """A saved record cannot be read back."""


class Refusal(ExhumeError):  # noqa: N818 - a refusal is an answer about the view, not a malfunction
    """An attack does not apply to a view; the message states the reason."""
