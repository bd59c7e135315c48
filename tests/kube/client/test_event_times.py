"""Times as Kubernetes writes them."""

import re

from bursar.kube.client.events import micro_time, whole_seconds


def test_times_have_the_form_of_their_type() -> None:
    day_and_time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{day_and_time}Z", whole_seconds())
    assert re.fullmatch(rf"{day_and_time}\.\d{{6}}Z", micro_time())
