"""Wait for something to become true on a cluster, with a message when it does not."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 60.0  # only a failure waits that long


def eventually(look: Callable[[], Found], what: str, seconds: float = SECONDS) -> Found:
    """What ``look`` returns as soon as that is true; an assertion error that says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}; last seen: {found!r}"
        time.sleep(0.05)
