"""What the engine raises when a call makes no sense; nothing has changed then."""

from __future__ import annotations


class EngineError(ValueError):
    """A call that makes no sense: an unknown or duplicate uid, a step that the claim's state does not allow."""
