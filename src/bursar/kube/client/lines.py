"""Bytes as they arrive to whole lines.

A watch sends one object a line, and an object may be megabytes long: readers that look for a line's end inside a
bounded buffer fail on it. Here pieces are kept as they came and joined once, when the end is there.
"""

from __future__ import annotations

from bursar.kube.client.errors import Malformed

LONGEST = 64 * 1024 * 1024
"""Bytes. etcd refuses objects of more than a few megabytes, so a longer line is no object."""


class Lines:
    """Splits a stream; what follows the last line end waits for the next piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes, without their ends; blank ones are left out."""
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
        if lines:
            self._pieces, self._held = [], 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
            if self._held > LONGEST:
                raise Malformed(f"a line of more than {LONGEST} bytes")
        return [line for line in lines if line and not line.isspace()]
