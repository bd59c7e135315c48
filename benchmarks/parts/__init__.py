"""One module a part; each has ``rows() -> Iterator[Row]``."""
