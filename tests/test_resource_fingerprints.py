import subprocess
import sys
from itertools import pairwise

from bursar.resources import fingerprint, name_mark


def test_marks_do_not_follow_the_spelling() -> None:
    marks = [fingerprint(f"n{i}") for i in range(4)]
    steps = {after - before for before, after in pairwise(marks)}
    assert len(steps) == 3, "equal steps would let sums of neighbours be equal"
    assert all(0 <= mark < 2**62 for mark in marks)


def test_marks_are_the_same_in_every_process() -> None:
    script = "from bursar.resources import fingerprint, name_mark; print(fingerprint('n1'), name_mark('n1'))"
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed == [str(fingerprint("n1"))] * 2
    assert name_mark("n1") == fingerprint("n1")
