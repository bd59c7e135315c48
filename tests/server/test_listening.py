"""How a server listens."""

from __future__ import annotations

import socket
from asyncio import base_events

import pytest

from bursar.server.serve import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_are_sent_at_once(host: str) -> None:
    """The event loop turns delays off for what is named as TCP, and a connection inherits that from its listener."""
    with listen(host, 0) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address), listener.accept()[0] as accepted:
            base_events._set_nodelay(accepted)  # type: ignore[attr-defined]
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
