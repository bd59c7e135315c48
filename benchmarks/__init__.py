"""Benchmarks: ``python -m benchmarks [PART]``, or ``make bench PART=engine``.

* ``parts/<name>.py``: one part each, found by its name; yields the rows of its table.
* ``work/``: what is measured; runs in child processes, interpreted or compiled.
* ``rows``, ``children``, ``timing``: the table, the child processes, the clock.
"""
