"""Errors that exhume raises on purpose; each message is one sentence that a user can act on."""

MAX_LENGTH = 1000
"""Largest number of characters of a message; more come from a name or a value in a file, not from us."""


class ExhumeError(Exception):
    """Base of every error that exhume raises on purpose; the command line prints it and exits with status 2.

    Messages quote names and values of files of unknown origin. So characters that a terminal would obey are escaped,
    and the middle of a very long message is left out.
    """

    def __str__(self) -> str:
        message = super().__str__()
        if not message.isprintable():
            message = "".join(one if one.isprintable() else repr(one)[1:-1] for one in message)
        if len(message) > MAX_LENGTH:
            message = f"{message[: MAX_LENGTH // 2]} … {message[-MAX_LENGTH // 2 :]}"
        return message


class DataError(ExhumeError):
    """A data set is missing, truncated or not what it claims to be."""


class WeightsError(ExhumeError):
    """Weights cannot be read, do not fit the model, or hold values that are not finite."""


class RecordError(ExhumeError):
    """A saved record cannot be read back."""


class Refusal(ExhumeError):  # noqa: N818 - a refusal is an answer about the view, not a malfunction
    """An attack does not apply to a view; the message states the reason."""
