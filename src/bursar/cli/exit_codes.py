"""The exit codes of every command. Scripts rely on them: they never change their meaning."""

from __future__ import annotations

OK = 0
"""Everything asked for was done, and every expectation held."""

FAILED = 1
"""The input was understood, but an expectation failed or the request was refused."""

BAD_INPUT = 2
"""The command line or a file could not be understood. Nothing was applied."""

UNREACHABLE = 3
"""No answer: there is no server at that address, or not one of Bursar's."""
