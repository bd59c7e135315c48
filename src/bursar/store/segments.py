"""History that lasts over leader terms: files of journal lines in a folder that all replicas share.

A ledger (one for each term, one more for each rebuild) is a row of parts: ``TERM-LEDGER-PART.jsonl``. A part begins
with a header, which holds the hash of the part before it, whichever leader wrote that; then come journal lines, and at
its end a seal with the hash of all that. So what was once written cannot be changed unseen.

Writing is never in the path of a decision. ``keep`` only takes lines; a thread writes them and goes on trying when the
storage is full, slow or gone. Only so many bytes wait meanwhile; what comes after is left out and recorded as a gap. A
leader that is killed leaves a part without a seal, which is a gap as well: the next term begins from the cluster again.
The oldest ledgers are deleted when there are too many bytes. No clock decides about order or deletion.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from threading import Condition, Thread
from typing import BinaryIO

import msgspec

log = logging.getLogger(__name__)
FORMAT = 1
MOST_BYTES = 2 << 30  # of all files
PART_BYTES = 16 << 20  # after which a part is sealed
_WAITING_BYTES = 64 << 20  # of lines that wait to be written
_PAUSE = 1.0  # seconds after the storage failed
_LAST_WORDS = 3.0  # seconds at the end of a term
_UNREAD = -1  # lines of a part that could not be understood
_BATCH = 5_000  # lines at most that are written together
_KEPT = 2  # ledgers that are never deleted: the present one and the one before
_NAME = re.compile(r"(\d{10})-(\d{4})-(\d{6})\.jsonl")


class PartLink(msgspec.Struct, frozen=True):
    """The part before, as it was when this one began."""

    file: str
    lines: int
    hash: str
    sealed: bool


class PartHeader(msgspec.Struct, frozen=True, tag_field="what", tag="part"):
    format: int
    term: int
    began: int  # milliseconds
    after: PartLink | None = None


class Gap(msgspec.Struct, frozen=True, tag_field="what", tag="gap"):
    """Records that are not here."""

    why: str
    records: int
    since: int
    until: int


class Seal(msgspec.Struct, frozen=True, tag_field="what", tag="seal"):
    lines: int
    hash: str
    at: int


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(PartHeader | Gap | Seal).decode


class SegmentError(Exception):
    """A part that is not what was written: its file, and what is wrong with it."""


@dataclass(slots=True)
class HistoryPart:
    """A part as it is on the disk."""

    path: Path
    header: PartHeader
    lines: list[bytes]  # journal lines and gaps, in their order
    seal: Seal | None
    hashes: list[str]  # after the header and each line

    @property
    def ledger(self) -> str:
        return _ledger(self.path)

    def link(self) -> PartLink:
        return PartLink(self.path.name, len(self.lines), self.hashes[-1], self.seal is not None)


def _ledger(path: Path) -> str:
    """What names the ledger of a part: term and number."""
    return path.name[:15]


def parts_in(folder: Path) -> list[Path]:
    """The files of a history, the oldest first."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def read_part(path: Path) -> HistoryPart | None:
    """A part whose lines are complete; what was cut off at its end is left out. None: not even its header is there.

    Raises ``SegmentError``.
    """
    running, found = blake2b(digest_size=16), list[bytes]()
    header: PartHeader | None = None
    hashes: list[str] = []
    try:
        for raw in path.read_bytes().split(b"\n")[:-1]:
            marker = None if raw.startswith(b"[") else _decode(raw)
            if isinstance(marker, Seal):
                return _sealed(path, header, found, marker, hashes)
            if isinstance(marker, PartHeader):
                header = marker
            else:
                found.append(raw)
            running.update(raw + b"\n")
            hashes.append(running.hexdigest())
    except msgspec.DecodeError as error:
        raise SegmentError(f"{path.name}: line {len(hashes) + 1}: {error}") from None
    return None if header is None else HistoryPart(path, header, found, None, hashes)


def _sealed(path: Path, header: PartHeader | None, lines: list[bytes], seal: Seal, hashes: list[str]) -> HistoryPart:
    if header is None or (seal.lines, seal.hash) != (len(lines), hashes[-1]):
        raise SegmentError(f"{path.name}: its lines are not those that were sealed")
    return HistoryPart(path, header, lines, seal, hashes)


def gap_of(line: bytes) -> Gap | None:
    """The gap that a line of a part records; None for a journal line."""
    found = None if line.startswith(b"[") else _decode(line)
    return found if isinstance(found, Gap) else None


def position_of(line: bytes) -> tuple[int, int]:
    """The number and the time of a journal line."""
    try:
        _, seq, at, *_ = msgspec.json.decode(line, type=list[msgspec.Raw])
        return msgspec.json.decode(seq, type=int), msgspec.json.decode(at, type=int)
    except (msgspec.DecodeError, ValueError) as error:
        raise SegmentError(f"a line is no journal record: {error}") from None


Waiting = tuple[bytes | Gap, int]
"""A line or a gap, and its time."""


class SegmentWriter:
    """Writes the history of one ledger."""

    def __init__(
        self,
        folder: Path,
        term: int,
        began: int,
        *,
        most: int = MOST_BYTES,
        waiting: int = _WAITING_BYTES,
        pause: float = _PAUSE,
    ) -> None:
        self._folder = folder
        self._term = term
        self._now = began
        self._most = most
        self._limit = waiting
        self._pause = pause
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._lost = 0  # records since the gap began
        self._lost_since = 0
        self._changed = Condition()
        self._closing = False
        self._out: _OpenPart | None = None
        self._ledger = -1  # its number in the term, once the folder was read
        self._part = 0
        self.lost = 0  # records in all gaps
        self.problem = ""
        self._thread = Thread(target=self._run, name="bursar-history", daemon=True)
        self._thread.start()

    def keep(self, lines: list[bytes], now: int) -> None:
        """Take lines; never waits. Lines for which there is no room are a gap."""
        size = sum(map(len, lines))
        with self._changed:
            self._now = now
            if self._bytes + size > self._limit:
                self._lost_since = self._lost_since if self._lost else now
                self._lost += len(lines)
                self.lost += len(lines)
                return
            if self._lost:
                self._waiting.append((Gap("the storage was too slow or gone", self._lost, self._lost_since, now), now))
                self._lost = 0
            self._waiting.extend((line, now) for line in lines)
            self._bytes += size
            self._changed.notify()

    def close(self) -> None:
        """Write what waits if the storage lets it be, for a few seconds at most, and seal the part."""
        with self._changed:
            self._closing = True
            if self._lost:
                gap = Gap("the storage was too slow or gone", self._lost, self._lost_since, self._now)
                self._waiting.append((gap, self._now))
                self._lost = 0
            self._changed.notify()
        self._thread.join(_LAST_WORDS)

    def _run(self) -> None:
        while True:
            batch = self._next()
            if not batch and self._closing:
                break
            if not self._write(batch):
                with self._changed:
                    if self._closing:
                        return  # what is not written is missing behind the last line: a part without a seal
                    self._changed.wait(self._pause)
        self._end()

    def _next(self) -> list[Waiting]:
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return list(islice(self._waiting, _BATCH))

    def _write(self, batch: list[Waiting]) -> bool:
        """Write a batch, and drop from memory what is on the disk; whether the storage took it."""
        try:
            if self._out is None:
                self._out = self._begun()
            self._out.add(batch)
        except (OSError, SegmentError) as error:
            self._failed(str(error))
            return False
        self._taken(len(batch))
        self.problem = ""
        if self._out.size >= PART_BYTES:
            self._end()
        return True

    def _begun(self) -> _OpenPart:
        """A new part, which names the newest one there is with its hash."""
        self._folder.mkdir(parents=True, exist_ok=True)
        known = parts_in(self._folder)
        if self._ledger < 0:
            self._ledger = sum(path.name.startswith(f"{self._term:010d}-") for path in known)
        path = self._folder / f"{self._term:010d}-{self._ledger:04d}-{self._part:06d}.jsonl"
        self._part += 1
        _prune(known, self._most)
        return _OpenPart.begin(path, PartHeader(FORMAT, self._term, self._now, _newest(known)))

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("the history cannot be written, decisions go on: %s", problem)
        self.problem = problem
        out, self._out = self._out, None
        if out is not None:
            self._taken(out.abandon())

    def _taken(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                line, _at = self._waiting.popleft()
                self._bytes -= 0 if isinstance(line, Gap) else len(line)

    def _end(self) -> None:
        """Seal the part."""
        out, self._out = self._out, None
        if out is not None:
            try:
                out.seal(self._now)
            except OSError as error:
                self.problem = str(error)
                log.warning("a part of the history has no seal: %s", error)


class _OpenPart:
    """The part that is being written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._running = blake2b(digest_size=16)
        self._lines = 0  # that were flushed
        self.size = 0

    @classmethod
    def begin(cls, path: Path, header: PartHeader) -> _OpenPart:
        found = cls(path, path.open("xb", buffering=0))
        try:
            found._put([_encode(header)])
        except OSError:
            path.unlink()
            raise
        return found

    def add(self, batch: Iterable[Waiting]) -> None:
        """Write lines durably."""
        lines = [line if isinstance(line, bytes) else _encode(line) for line, _ in batch]
        self._put(lines)
        self._lines += len(lines)

    def _put(self, lines: list[bytes]) -> None:
        text = b"".join(line + b"\n" for line in lines)
        written = self._file.write(text)
        if written != len(text):
            raise OSError(28, "no space left for the whole of a batch", str(self._path))
        os.fsync(self._file.fileno())
        self._running.update(text)
        self.size += len(text)

    def seal(self, now: int) -> None:
        seal = _encode(Seal(self._lines, self._running.hexdigest(), now))
        self._file.write(seal + b"\n")
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> int:
        """Close it as it is; how many lines of the batch that failed are on the disk all the same."""
        try:
            self._file.close()
            part = read_part(self._path)
            return 0 if part is None else len(part.lines) - self._lines
        except (OSError, SegmentError):
            return 0


def _newest(known: list[Path]) -> PartLink | None:
    """The newest part, to continue; one that cannot be understood is named all the same, and the audit finds it."""
    for path in reversed(known):
        try:
            part = read_part(path)
        except SegmentError:
            return PartLink(path.name, _UNREAD, "", False)
        if part is not None:
            return part.link()
    return None


def _prune(known: list[Path], most: int) -> None:
    """Delete the oldest ledgers until there are few enough bytes."""
    sizes = {path: path.stat().st_size for path in known}
    ledgers = list(dict.fromkeys(_ledger(path) for path in known))
    for ledger in ledgers[:-_KEPT]:
        if sum(sizes.values()) <= most:
            return
        for path in [path for path in sizes if _ledger(path) == ledger]:
            path.unlink()
            del sizes[path]


def history_of(folder: Path) -> Iterator[HistoryPart]:
    """All parts, the oldest first; raises ``SegmentError`` where one does not continue the one before."""
    before: HistoryPart | None = None
    for path in parts_in(folder):
        part = read_part(path)
        if part is not None:
            if before is not None:
                _check_link(before, part)
            yield part
            before = part


def _check_link(before: HistoryPart, part: HistoryPart) -> None:
    link = part.header.after
    if link is None or link.file != before.path.name:
        named = "nothing" if link is None else link.file
        raise SegmentError(f"{part.path.name}: continues {named}, and {before.path.name} is before it")
    if not 0 <= link.lines <= len(before.lines) or before.hashes[link.lines] != link.hash:
        raise SegmentError(f"{before.path.name}: was altered after {part.path.name} began")
    if before.seal is None and link.sealed:
        raise SegmentError(f"{before.path.name}: lost its seal after {part.path.name} began")


def writer_in(folder: Path, most: int, term: int) -> SegmentWriter:
    """Writes the history of a ledger that begins now."""
    return SegmentWriter(folder, term, time.time_ns() // 1_000_000, most=most)
