from collections import Counter
from pathlib import Path

from benchmarks.work.live import Caller, p99, serving, together
from benchmarks.work.serving import organisation, pod
from bursar.server.service import Service


def phases(service: Service) -> Counter[str]:
    doing = (service.cluster.doing(key) for key in service.cluster.pods())
    return Counter(one.phase for one in doing if one is not None)


def test_one_team_in_ten_of_the_organisation_is_a_pod_short(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "bursar.db")
    for documents in organisation(100, 20):
        service.apply(documents)
    assert phases(service) == {"Running": 98, "Pending": 2}
    service.close()


def test_pods_that_are_not_here_yet_have_room(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "bursar.db")
    for documents in organisation(40, 2, here=10):
        service.apply(documents)
    assert phases(service) == {"Running": 10}
    service.close()


def applied(port: int, number: int) -> list[float]:
    with Caller(port) as caller:
        return [caller.timed("POST", "/apply", pod(number, 2))]


def test_callers_ask_a_server_in_a_process_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path / "bursar.db") as port, Caller(port) as caller:
        times, seconds = together(2, lambda number: applied(port, number))
        assert len(caller.ask("GET", "/claims")["items"]) == 2
    assert len(times) == 2
    assert 0 < p99(times) <= seconds * 1e3
