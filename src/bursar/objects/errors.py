"""What is wrong with a manifest: always one line that names file, document, object and field.

Each layer knows a part of that. The innermost one raises with the field's path; the ones further out add what
they know with ``located``, which never overwrites what is there already.
"""

from __future__ import annotations

_LONGEST = 400
"""Characters of one part that are shown: a name or a path can be as long as the file."""


class ManifestError(ValueError):
    """Input that cannot be accepted. ``str()`` gives the whole line."""

    def __init__(
        self, problem: str, path: str = "", *, subject: str = "", source: str = "", document: int = 0, line: int = 0
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path  # of the field, such as spec.min.cpu
        self.subject = subject  # the object: Kind namespace/name
        self.source = source  # the file
        self.document = document  # from 1; 0: unknown
        self.line = line  # in the file, from 1; only where the text itself is malformed

    def __str__(self) -> str:
        document = f"document {self.document}" if self.document else ""
        line = f"line {self.line}" if self.line else ""
        parts = (self.source, document, line, self.subject, self.path, self.problem)
        return ": ".join(_one_line(part) for part in parts if part)

    def located(self, source: str = "", document: int = 0, subject: str = "") -> ManifestError:
        """The same error with what an inner layer did not know."""
        return ManifestError(
            self.problem,
            self.path,
            subject=self.subject or subject,
            source=self.source or source,
            document=self.document or document,
            line=self.line,
        )

    def inside(self, path: str) -> ManifestError:
        """The same error, its path taken as relative to ``path``."""
        inner = ManifestError(self.problem, join(path, self.path), line=self.line)
        return inner.located(self.source, self.document, self.subject)


def join(path: str, step: str) -> str:
    """``path`` and one step further: a key, or an index such as ``[0]``."""
    if not path or not step or step.startswith("["):
        return path + step
    return f"{path}.{step}"


def _one_line(text: str) -> str:
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
