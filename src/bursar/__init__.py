"""Bursar: quotas for shared GPU clusters.

It decides who may use which GPUs now, says why, and can prove it.
"""

from bursar._version import __version__

__all__ = ["__version__"]
