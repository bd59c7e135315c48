"""The version of Bursar: the only place that states it."""

__version__ = "0.1.0.dev0"
