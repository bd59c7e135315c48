"""The part of the check that one card cannot show: several GPUs, MIG devices, and GPUs that fail. With fakes only."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from tests.device.check_bed import Bed, must, until
from tests.device.fake.fake_nvml import edit, h200, machine, mig

if TYPE_CHECKING:
    from tests.device.machine_check import Findings

MIG_MODEL = "H200 MIG 1g.16gb"


def several_cards(found: Findings, *, short: bool) -> None:
    cards = [h200(0, links=[""] * 18), h200(1, links=[""] * 18), h200(2, mig=[mig(2, 0), mig(2, 1)])]
    bed = Bed(machine(*cards), None)
    try:
        SeveralCards(bed, found).run(short=short)
    finally:
        bed.close()


class SeveralCards:
    """Two whole cards, and one that is cut into two MIG devices."""

    def __init__(self, bed: Bed, found: Findings) -> None:
        self._bed = bed
        self._found = found

    def run(self, *, short: bool) -> None:
        self._found.stage("Several cards, one of them cut into MIG devices", self.inventory, self._bed.mend)
        self._found.stage("Jobs with several GPUs, and with a MIG device", self.jobs, self._bed.mend)
        if short:
            return
        self._found.stage("GPUs that fail", self.failures, self._bed.mend)
        self._found.stage("The driver fails", self.driver, self._bed.mend)

    def inventory(self) -> None:
        bed = self._bed
        bed.start()
        rows = subprocess.run(
            [str(bed.smi), "--query-gpu=index,uuid,mig.mode.current", "--format=csv,noheader"], env=bed.environment,
            check=True, capture_output=True, text=True,
        ).stdout.splitlines()  # fmt: skip
        cards = {uuid: mode for _, uuid, mode in (line.split(", ") for line in rows)}
        must(list(cards.values()) == ["Disabled", "Disabled", "Enabled"], f"nvidia-smi says {rows}")
        gpus = until("the GPUs are reported", bed.gpus)
        whole = [gpu["uuid"] for gpu in gpus if gpu["model"] == "H200"]
        must(whole == list(cards)[:2], f"Bursar has the cards {whole}")
        parts = [gpu for gpu in gpus if gpu["model"] == MIG_MODEL]
        must(len(parts) == 2 and len(gpus) == 4, f"Bursar has {gpus}")
        must(all(gpu["memory"] == 16 * 2**30 for gpu in parts), f"Bursar has {parts}")
        self._found.seen("nvidia-smi and Bursar agree: 2 cards; of the third card its 2 MIG devices, and not itself")

    def jobs(self) -> None:
        bed = self._bed
        show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
        both = bed.client("--gpus", "2", "--gpu-model", "H200", command=show)
        must(both.code() == 0, both.err)
        must(sorted(both.out.strip().split(",")) == self._uuids("H200"), f"it was given {both.out}")
        part = bed.client("--gpus", "1", "--gpu-model", "mig", command=show)
        must(part.code() == 0, part.err)
        must(part.out.strip() in self._uuids(MIG_MODEL), f"it was given {part.out}")
        self._found.seen("a job of two GPUs has both cards; one of --gpu-model mig has a MIG device")

    def failures(self) -> None:
        bed, seen = self._bed, self._found.seen
        first, second = self._uuids("H200")
        go = bed.folder / "go"
        job = bed.job("--gpus", "2", "--gpu-model", "H200", steps=[f"wait={go}", "exit=0"])
        job.says("works")
        with edit(bed.state) as state:
            state["xids"].append({"gpu": second, "code": 79})
        until("the XID is seen", lambda: "XID 79" in self._out(second))
        seen(f"XID 79 takes its GPU out: {self._out(second)}")
        go.touch()
        must(job.code() == 0, f"the job that had it was ended: {job.err}")
        until("nothing runs", lambda: not bed.running())
        one = bed.client("--gpus", "1", "--gpu-model", "H200", command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
        must(one.code() == 0 and one.out.strip() == first, f"it was given {one.out} {one.err}")
        waits = bed.client("--gpus", "2", "--gpu-model", "H200", command=["true"])
        until("a job of two GPUs waits", lambda: "in the queue" in waits.err)
        waits.process.terminate()
        waits.code()
        seen("the other GPU is still handed out; a job of both waits")
        with edit(bed.state) as state:
            state["gpus"][0]["missing"] = True
        until("the missing one is out", lambda: self._out(first))
        seen(f"a GPU that disappears: {self._out(first)}")
        with edit(bed.state) as state:
            state["gpus"][0]["missing"] = False
        until("it is back", lambda: not self._out(first))
        must(bed.client("--gpus", "1", "--gpu-model", "H200", command=["true"]).code() == 0, "it is not handed out")
        seen("it is handed out again once the driver lists it")

    def driver(self) -> None:
        bed = self._bed
        with edit(bed.state) as state:
            state["error"] = 18
        until("all are out", lambda: all(gpu["out"] for gpu in bed.gpus()))
        self._found.seen(f"no GPU is handed out: {bed.gpus()[0]['out']}")
        with edit(bed.state) as state:
            state["error"] = 0
        until("the others are back", lambda: sum(not gpu["out"] for gpu in bed.gpus()) == 3)
        self._found.seen("all but the one with the XID are handed out again once it answers")

    def _uuids(self, model: str) -> list[str]:
        return sorted(gpu["uuid"] for gpu in self._bed.gpus() if gpu["model"] == model)

    def _out(self, uuid: str) -> str:
        gpu: dict[str, Any] = next(one for one in self._bed.gpus() if one["uuid"] == uuid)
        return str(gpu["out"])
