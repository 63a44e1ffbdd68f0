"""Log messages that are said once."""

from __future__ import annotations

import logging
import threading

_logged: set[str] = set()
_lock = threading.Lock()


def log_once(message: str) -> None:
    """Logs a message unless it has been logged before."""
    with _lock:
        known = message in _logged
        _logged.add(message)
    if not known:
        logging.getLogger("gfgn.train").info("%s", message)


def shorten(text: str, length: int = 240) -> str:
    """The text on one line, cut after `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
