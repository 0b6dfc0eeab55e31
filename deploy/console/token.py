"""Reads the token for requests. Its file may change at any time, such as a mounted Secret."""

from __future__ import annotations

import logging
from pathlib import Path

from slacktide.agents.files import stamp_of
from slacktide.schemas.errors import SlacktideError

log = logging.getLogger(__name__)

TOKEN_LENGTH_MIN = 16


class TokenError(SlacktideError):
    """The token is invalid; the message has the reason."""


def usable(token: str) -> str:
    """Return the token, unchanged.

    Raises:
        TokenError: it is too short.
    """
    if len(token) < TOKEN_LENGTH_MIN:
        raise TokenError(f"the token has {len(token)} characters; accepted: at least {TOKEN_LENGTH_MIN}")
    return token


class TokenFile:
    """A token from a file, reloaded on change.

    Args:
        path: file with the token on one line, in UTF-8.

    Raises:
        TokenError: the token is invalid. Later the last valid one stays in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp_of(path)
        self._token = self._read()

    def __call__(self) -> str:
        """Return the token in force."""
        if (stamp := stamp_of(self._path)) != self._stamp:
            self._stamp = stamp
            try:
                self._token = self._read()
                log.info("loaded a new token", extra={"file": str(self._path)})
            except TokenError as exc:
                log.warning("cannot load the token; the last valid one remains in use", extra={"why": str(exc)})
        return self._token

    def _read(self) -> str:
        try:
            return usable(self._path.read_text().strip())
        except (OSError, UnicodeDecodeError) as exc:
            raise TokenError(f"--token-file {self._path}: {exc}") from exc
