"""What an agent must remember of running jobs whatever happens: one file for each, written before the job may run.

A record says which process is whose job, on which boot of the machine. It is removed when the end of the job is durable
in the cluster. So a job without a record has no process, and a record without a live process is the end of a job that
was not reported yet.

Below the same folder each user has a folder of logs and exit statuses, which shims write. Those are read with distrust:
plain files of that user only, and no links.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from bursar.local.processes import ProcessId
from bursar.local.submission import JobOptions

LOG = logging.getLogger("bursar.local")
_STATUS_MOST = 4096


class JobRecord(msgspec.Struct, frozen=True):
    """A running job."""

    pod: str
    uid: str
    options: JobOptions
    process: ProcessId
    shim: ProcessId
    cgroup: str
    gpus: tuple[str, ...]  # names of GPU objects
    started: int  # milliseconds from 1970
    attempt: int = 0


_DECODER = msgspec.json.Decoder(JobRecord)


def file_name(pod: str, number: str) -> str:
    """A name for the files of a pod that tells it from others of its name."""
    return f"{pod.replace('/', '.')}.{number}"


class JobFiles:
    """The folder of an agent."""

    def __init__(self, folder: Path) -> None:
        self._records = folder / "jobs"
        self._users = folder / "users"
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._records.mkdir(exist_ok=True, mode=0o700)
        self._users.mkdir(exist_ok=True, mode=0o711)

    # Records

    def write(self, record: JobRecord) -> None:
        """Durable when it returns."""
        path = self._path(record.uid)
        scratch = path.with_suffix(".new")
        with scratch.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
        self._sync()

    def remove(self, uid: str) -> None:
        self._path(uid).unlink(missing_ok=True)

    def load(self) -> list[JobRecord]:
        found: list[JobRecord] = []
        for path in sorted(self._records.glob("*.json")):
            try:
                found.append(_DECODER.decode(path.read_bytes()))
            except (OSError, msgspec.DecodeError) as error:
                LOG.warning("%s: cannot be read: %s", path, error)
        return found

    def _path(self, uid: str) -> Path:
        pod, _, number = uid.rpartition("#")
        return self._records / f"{file_name(pod, number)}.json"

    def _sync(self) -> None:
        fd = os.open(self._records, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # Files of users

    def folder_of(self, user: int, group: int) -> Path:
        """The user's folder, made where it is missing."""
        path = self._users / str(user)
        if not path.is_dir():
            path.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(path, user, group)
        return path

    def log_path(self, user: int, pod: str, number: str) -> Path:
        return self._users / str(user) / f"{file_name(pod, number)}.log"

    def status_path(self, user: int, pod: str, number: str) -> Path:
        return self._users / str(user) / f"{file_name(pod, number)}.status"

    def open_log(self, user: int, pod: str, number: str) -> int | None:
        return _open_of(self.log_path(user, pod, number), user)

    def newest_log(self, pod: str) -> tuple[int, int] | None:
        """(user, descriptor) of the log of the last job of that name."""
        best: tuple[int, int] | None = None
        for path in self._users.glob(f"*/{file_name(pod, '*')}.log"):
            number, user = path.stem.rpartition(".")[2], path.parent.name
            if number.isdigit() and user.isdigit() and (best is None or int(number) > best[1]):
                best = (int(user), int(number))
        fd = None if best is None else self.open_log(best[0], pod, str(best[1]))
        return None if best is None or fd is None else (best[0], fd)

    def status(self, user: int, pod: str, number: str) -> dict[str, Any] | None:
        """What the shim wrote of the end; None if it wrote nothing that can be read."""
        fd = _open_of(self.status_path(user, pod, number), user)
        if fd is None:
            return None
        with os.fdopen(fd, "rb") as file:
            try:
                found = json.loads(file.read(_STATUS_MOST))
            except ValueError:
                return None
        return found if isinstance(found, dict) and isinstance(found.get("code"), int) else None

    def remove_status(self, user: int, pod: str, number: str) -> None:
        self.status_path(user, pod, number).unlink(missing_ok=True)

    def prune_logs(self, before: float) -> None:
        """Remove logs and statuses that were last written before that time."""
        for path in self._users.glob("*/*"):
            try:
                if path.lstat().st_mtime < before:
                    path.unlink()
            except OSError:
                continue


def _open_of(path: Path, user: int) -> int | None:
    """A plain file of that user, to read; None for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid == user:
        return fd
    os.close(fd)
    return None
