"""When to try again, and after how long.

Reads are tried again after anything that may pass: too many requests, a server in trouble, no connection. A write is
tried again only when it certainly was not carried out: refused with 429 and a time to come back, or never sent. After
a time-out or a cut connection nobody knows, and a blind second try could do a thing twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from bursar.kube.client.errors import KubeError, ServerError, Throttled, Unanswered

_PASSING = frozenset({500, 502, 503, 504})
LONGEST_WISH = 60.0
"""Seconds: a server that asks for a longer pause than this is tried again all the same."""


@dataclass(slots=True)
class Backoff:
    """Pauses that double up to a cap, each drawn from its upper half so that many clients do not come back at once."""

    base: float = 0.2
    cap: float = 30.0
    attempt: int = 0

    def next(self) -> float:
        ceiling = min(self.cap, self.base * 2.0 ** min(self.attempt, 30))
        self.attempt += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 spreads load, keeps no secret

    def reset(self) -> None:
        self.attempt = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is tried, and the pauses between."""

    attempts: int = 6
    base: float = 0.1
    cap: float = 5.0

    def backoff(self) -> Backoff:
        return Backoff(self.base, self.cap)


DEFAULT_RETRY = Retry()
NO_RETRY = Retry(attempts=1)


def pause_after(error: KubeError, backoff: Backoff, *, write: bool) -> float | None:
    """Seconds to wait before the call is tried again; None: it must not be."""
    if isinstance(error, Throttled):
        if write and (error.retry_after is None or is_budget(error)):
            return None
        return _as_wished(error.retry_after, backoff)
    if isinstance(error, Unanswered):
        return None if write and error.sent else backoff.next()
    if isinstance(error, ServerError) and not write and error.code in _PASSING:
        return _as_wished(error.retry_after, backoff)
    return None


def _as_wished(seconds: float | None, backoff: Backoff) -> float:
    return max(backoff.next(), apart(min(seconds or 0.0, LONGEST_WISH)))


def apart(seconds: float) -> float:
    """As long as the server asks for and up to half as long again: who was refused together comes back apart."""
    return seconds * random.uniform(1.0, 1.5)  # noqa: S311 spreads load, keeps no secret


def is_budget(error: Throttled) -> bool:
    """Whether a 429 is the word of a disruption budget: an answer to the question, not a request to wait."""
    return any(cause.reason == "DisruptionBudget" for cause in error.causes)
