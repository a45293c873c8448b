"""The one error that configuration raises."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that cannot be used; the message names the key, the value and what is allowed."""

    def __init__(self, message: str, *, key: str | None = None, value: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.value = value


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' for the known name closest to a mistyped one, or nothing."""
    import difflib  # only on the way to an error: a start without one does not pay for it

    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""
