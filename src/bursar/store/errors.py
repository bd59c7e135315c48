"""What can be wrong with a store file: one line that names the file, the problem and what to do about it."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """The store cannot do what was asked; nothing was changed by the attempt."""

    def __init__(self, path: Path, problem: str, advice: str = "") -> None:
        super().__init__(f"{path}: {problem}" + (f" ({advice})" if advice else ""))
        self.path = path
        self.problem = problem
        self.advice = advice


class ForeignFileError(StoreError):
    """The file is no store of Bursar's, or one of a newer version. It was not touched."""


class DamagedStoreError(StoreError):
    """The file is a store, but parts of it cannot be read or do not fit together."""


class StoreBusyError(StoreError):
    """Another process writes this store."""


def damaged(path: Path, error: object) -> DamagedStoreError:
    advice = "the file was left as it is; go on with the newest backup, or see what `sqlite3 FILE .recover` still finds"
    return DamagedStoreError(path, f"damaged: {error}", advice)
