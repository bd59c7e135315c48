"""The error of a live cluster that cannot be asked, apart from what asks it: importing that takes its time."""


class LiveError(Exception):
    """The cluster cannot be asked."""
