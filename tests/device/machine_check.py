"""Checks `bursar serve --local` on a machine with a GPU, in at most eight minutes, and says what was seen.

    python3 -m tests.device.machine_check [--out FILE] [--fake] [--short]

Needs root, for devices and cgroups, and PyTorch for the real work; without root it says what is not enforced. Wheels of
what Bursar imports are unpacked from ``build/wheels``, because such machines often have no network
(``tests/device/wheels.sh`` fetches them). ``--fake`` puts fakes of the driver in the place of the real one, where there
is no GPU; ``--short`` leaves out the stages that wait for samples and time limits. Exit code 0: all is as it must be;
1: it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.device.check_bed import ROOT, Bed, CheckError, must, until

GIB = 2**30
LIMIT = 480.0  # seconds for all of it
VRAM = "bursar.dev/vram"
TEAMS = ("research", "vision")


class Findings:
    """What was seen, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.began = time.monotonic()
        self.failed = 0

    def say(self, text: str) -> None:
        self.lines.append(text)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def stage(self, about: str, work: Callable[[], None], mend: Callable[[], None]) -> None:
        """One that fails does not keep the later ones from being tried: ``mend`` ends what it left running."""
        before = time.monotonic()
        self.say(f"\n{about}")
        try:
            work()
        except (CheckError, OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
            self.failed += 1
            self.say(f"  FAILED: {type(error).__name__}: {error}")
            mend()
        self.say(f"  ({time.monotonic() - before:.0f} s)")

    def seen(self, text: str) -> None:
        self.say(f"  - {text}")


def configuration(**section: object) -> dict[str, Any]:
    user = {"users": [pwd.getpwuid(os.geteuid()).pw_name]}
    local = {"teams": dict.fromkeys(TEAMS, user), "mps": True, "gracePeriod": "3s", "idleAfter": "10s", **section}
    return {
        "apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"},
        "spec": {"local": local},
    }  # fmt: skip


def quota(team: str, amount: int) -> dict[str, Any]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota",
        "metadata": {"namespace": team, "name": "quota"}, "spec": {"min": {VRAM: str(amount)}},
    }  # fmt: skip


class OneCard:
    """The stages on a machine with one GPU, in their order."""

    def __init__(self, bed: Bed, found: Findings) -> None:
        self._bed = bed
        self._found = found
        self._unit = 0  # GiB; a fourteenth of the card

    def run(self, *, short: bool) -> None:
        stages = {
            "The machine as a node": self.inventory,
            "A job has its GPU, and no job has another one's": self.devices,
            "Two teams share the card: borrowing, and reclaim by eviction": self.sharing,
            "MPS enforces a fraction": self.fraction,
            "A job that does nothing": self.idle,
            "A process that belongs to no job": self.squatter,
            "The server is killed (-9) under running jobs": self.killed_server,
            "The end": self.end,
        }
        waiting = (self.sharing, self.idle, self.killed_server) if short else ()
        for about, work in stages.items():
            if work in waiting:
                continue
            self._found.stage(about, work, self._bed.mend)

    def inventory(self) -> None:
        bed, seen = self._bed, self._found.seen
        if not bed.fake:  # the first import reads gigabytes from a cold disk
            before = time.monotonic()
            version = "import torch; print(torch.__version__, torch.cuda.get_device_name())"
            done = subprocess.run([sys.executable, "-c", version], check=True, capture_output=True, text=True)
            seen(f"PyTorch {done.stdout.strip()}, imported in {self._since(before)}")
        seen(f"the server serves after {bed.start():.1f} s")
        fields = "index,uuid,name,memory.total,memory.reserved,driver_version"
        done = subprocess.run(
            [str(bed.smi), f"--query-gpu={fields}", "--format=csv,noheader"], env=bed.environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        (line,) = done.stdout.strip().splitlines()
        seen(f"nvidia-smi: {line}")
        index, uuid, name, total, reserved, driver = (part.strip() for part in line.split(","))
        (gpu,) = until("the GPU is reported", bed.gpus)
        must((gpu["uuid"], str(gpu["index"])) == (uuid, index), f"Bursar has {gpu['uuid']} at {gpu['index']}")
        usable = int(total.split()[0]) - int(reserved.split()[0])
        must(abs(gpu["memory"] - (usable << 20)) <= 2**20, f"Bursar has {gpu['memory']} bytes for {usable} MiB")
        labels = bed.object("node", "box")["metadata"]["labels"]
        must(labels["nvidia.com/gpu.product"] == name.replace(" ", "-"), f"the node is labelled {labels}")
        must(labels["nvidia.com/gpu.memory"] == total.split()[0], f"the node is labelled {labels}")
        must(labels["nvidia.com/cuda.driver-version.full"] == driver, f"the node is labelled {labels}")
        seen(f"Bursar has the same: {gpu['model']}, {gpu['memory'] / GIB:.1f} GiB for jobs, {uuid}")
        self._unit = gpu["memory"] // GIB // 14
        research = self._unit * 8 * GIB
        bed.apply(configuration(), quota("research", research), quota("vision", gpu["memory"] - research))

    def devices(self) -> None:
        bed, seen = self._bed, self._found.seen
        node = bed.folder / "card" if bed.fake else Path("/dev/nvidia0")
        if bed.fake:
            with contextlib.suppress(PermissionError):  # only root can; then devices are not confined either
                os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(195, 0))
        script = f"echo sees [$CUDA_VISIBLE_DEVICES]; cat {node} 2>&1 >/dev/null | sed 's/.*: //'"
        none = bed.client("-n", "vision", command=["sh", "-c", script])
        must(none.code() == 0, f"a job without GPU: {none.err}")
        must("sees []" in none.out, f"a job without GPU sees {none.out}")
        if "advisory" in none.err:
            seen(f"devices are not confined here: {none.err.strip()}")
        else:
            must("not permitted" in none.out, f"a job without GPU opened the card's device: {none.out}")
            seen("a job without GPU is refused the card's device by the kernel, whatever its environment says")
        before = time.monotonic()
        one = bed.job("-n", "vision", "--gpus", "1", steps=["sms", "exit=5"])
        must(one.code() == 5, f"the exit code is {one.process.returncode}: {one.err}")
        must("sms 132" in one.out, f"a job with the whole card: {one.out}")
        seen(f"a job with the card sees its 132 multiprocessors; exit code 5 came back, in {self._since(before)}")
        greedy = bed.client("-n", "vision", "--memory", "300Mi", command=[sys.executable, "-c", "bytearray(2 << 30)"])
        if greedy.code() == 0:
            must("is not enforced" in greedy.err, f"2 GiB of 300 MiB were given: {greedy.err}")
            seen(f"memory is not limited here: {greedy.err.strip()}")
        else:
            seen(f"a job of --memory 300Mi that takes 2 GiB ends with code {greedy.code()}")
        before = time.monotonic()
        must(bed.client("-n", "vision", "--gpus", "1", command=["true"]).code() == 0, "true fails")
        seen(f"`bursar run --gpus 1 -- true` takes {self._since(before)}")

    def sharing(self) -> None:
        bed, unit, seen = self._bed, self._unit, self._found.seen
        lender: list[Any] = []
        for name in ("own-1", "own-2", "borrows"):
            steps = [f"alloc={unit * 3}", "busy"]
            lender.append(bed.job("-n", "research", "--name", name, "--vram", f"{unit * 4}Gi", steps=steps))
            lender[-1].says("works")
        seen(f"research (min {unit * 8}Gi) runs three jobs of {unit * 4}Gi; the third one borrows")
        until("it borrows", lambda: bed.claim("research/borrows").get("borrowing"))
        before = time.monotonic()
        steps = [f"alloc={unit * 4}", "busy"]
        owner = bed.job("-n", "vision", "--name", "owner", "--vram", f"{unit * 5}Gi", steps=steps)
        code = lender[2].code()
        seen(
            f"vision asks for {unit * 5}Gi, within its min: the borrower ends after {self._since(before)}, code {code}"
        )
        must(code == 128 + signal.SIGTERM, f"the borrower ended with {code}: {lender[2].err}")
        must("Evicted" in lender[2].err, f"the borrower was told: {lender[2].err}")
        owner.says("works")
        seen(f"vision's job works {self._since(before)} after it was asked for")
        must(bed.claim("research/borrows")["phase"] == "Evicted", "the borrower is not evicted in the books")
        must([one.process.poll() for one in lender[:2]] == [None, None], "a job within its quota was ended, too")
        names = ("research/own-1", "research/own-2", "vision/owner")

        def use() -> dict[str, Any]:
            found = bed.jobs()
            all_there = set(names) == set(found) and all(found[name]["usedMemory"] for name in names)
            return found if all_there else {}

        until("all three use memory, and the borrower none", use)
        time.sleep(11)  # two samples
        found = use()
        for name in names:
            one = found[name]
            used, booked = one["usedMemory"] / GIB, one["bookedMemory"] / GIB
            seen(f"{name}: {used:.1f} GiB used of {booked:.0f} GiB booked, GPU {one['usedPercent']} %")
            must(one["usedMemory"] <= one["bookedMemory"], f"{name} has more than it booked")
        must(not any(gpu["strays"] for gpu in bed.gpus()), f"processes without a job: {bed.gpus()}")
        for name in names:
            bed.bursar("stop", name)
        must({one.code() for one in (*lender[:2], owner)} == {128 + signal.SIGTERM}, "stop did not end them by SIGTERM")
        until("nothing runs", lambda: not bed.running())

    def fraction(self) -> None:
        bed, seen = self._bed, self._found.seen
        steps = ["sms", "alloc=10", "try=30"]
        half = bed.job("-n", "vision", "--vram", "20Gi", "--gpu-percent", "50", steps=steps)
        must(half.code() == 0, f"the job of 20Gi and 50 %: {half.out} {half.err}")
        must(half.out.splitlines() == ["sms 66", "has 10", "refused 30"], f"the job of 20Gi and 50 %: {half.out}")
        seen("--vram 20Gi --gpu-percent 50: 66 of 132 multiprocessors, 10 GiB given, 30 GiB more refused")
        must("books only" not in half.err, f"the job was told: {half.err}")
        until("nothing runs", lambda: not bed.running())

    def idle(self) -> None:
        bed, unit, seen = self._bed, self._unit, self._found.seen
        bed.apply(configuration(evictIdleAfter="20s"))
        job = bed.job("-n", "vision", "--name", "sleeper", "--vram", f"{unit * 8}Gi", steps=["alloc=1", "hold"])
        within = bed.job("-n", "research", "--name", "patient", "--vram", f"{unit * 4}Gi", steps=["alloc=1", "hold"])
        for one in (job, within):
            one.says("holds")
        before = time.monotonic()

        def named() -> bool:
            text = bed.bursar("top", "idle")
            return "vision/sleeper" in text and "research/patient" in text

        until("`top idle` names both", named)
        seen(f"`bursar top idle` names both jobs that hold memory and do nothing after {self._since(before)}")
        code = job.code()
        seen(f"the one over its quota is evicted (evictIdleAfter: 20s) after {self._since(before)}, code {code}")
        lines = [line for line in job.err.splitlines() if "did nothing" in line]
        must(len(lines) == 2, f"a warning and the reason are expected on its terminal: {job.err}")
        seen(f"its terminal: {lines[0]}")
        must(within.process.poll() is None, f"the one within its quota was ended, too: {within.err}")
        bed.apply(configuration())
        bed.bursar("stop", "research/patient")
        within.code()
        until("nothing runs", lambda: not bed.running())

    def squatter(self) -> None:
        bed, seen = self._bed, self._found.seen
        until("the MPS daemon is gone", lambda: not any(gpu["strays"] for gpu in bed.gpus()))
        stray = bed.outside("alloc=5", "busy")
        stray.says("works")
        before = time.monotonic()
        until("the stray is seen", lambda: bed.gpus()[0]["strays"])
        (one,) = bed.gpus()[0]["strays"]
        must(one["pid"] == stray.process.pid, f"Bursar says {one}")
        seen(
            f"process {one['pid']} of {one['user']} with {one['memory'] / GIB:.1f} GiB is seen in {self._since(before)}"
        )
        waits = bed.client("-n", "vision", "--name", "waits", "--gpus", "1", command=["true"])
        until("the job waits", lambda: "in the queue" in waits.err)
        seen(f"a job waits: {waits.err.splitlines()[0]}")
        shown = bed.bursar("describe", "gpu", bed.gpus()[0]["gpu"])
        must("belongs to no job" in shown and "Held" in shown, f"`describe gpu` says {shown}")
        why = bed.bursar("explain", "vision/waits", code=None)
        must("GPU" in why, f"`explain` says {why}")
        seen("`bursar describe gpu` says why it is not handed out, and since when")
        time.sleep(3)
        must(waits.process.poll() is None, "the GPU was handed out under a process without a job")
        stray.process.kill()
        before = time.monotonic()
        must(waits.code() == 0, f"it did not run: {waits.err}")
        seen(f"it runs {self._since(before)} after that process ended")

    def killed_server(self) -> None:
        bed, seen = self._bed, self._found.seen
        go, other = bed.folder / "go", bed.folder / "other"
        steps = ["alloc=20", f"wait={go}", "exit=7"]
        job = bed.job("-n", "research", "--name", "survivor", "--gpus", "1", steps=steps)
        job.says("works")
        waits = bed.job("-n", "vision", "--name", "next", "--gpus", "1", steps=["alloc=20", f"wait={other}", "exit=3"])
        until("the second one waits", lambda: "in the queue" in waits.err)
        bed.end_server(signal.SIGKILL)
        time.sleep(1)
        seen(f"killed, and started again in {bed.start():.1f} s")
        must(bed.running() == ["survivor"], f"running now: {bed.running()}")
        until("its GPU use is known again", lambda: bed.jobs().get("research/survivor", {}).get("usedMemory"))
        must(waits.process.poll() is None, f"the waiting client is gone: {waits.err}")
        must(not bed.gpus()[0]["strays"], f"the job is taken for a stranger: {bed.gpus()}")
        go.touch()
        must(job.code() == 7, f"its exit code is {job.process.returncode}: {job.err}")
        waits.says("works")
        seen("the running job kept its GPU and its exit code (7); then the waiting one got the GPU")
        bed.end_server(signal.SIGKILL)
        other.touch()
        must(waits.code() == 3, f"the exit code of the second one is {waits.process.returncode}")
        bed.start()
        until("its end is known", lambda: bed.claim("vision/next")["phase"] == "Failed")
        seen("a job that ended while no server was there is in the books with its exit code (3)")

    def end(self) -> None:
        bed, seen = self._bed, self._found.seen
        (gpu,) = bed.gpus()
        must(not gpu["jobs"] and not gpu["strays"] and not gpu["out"], f"the GPU is not free: {gpu}")
        bed.end_server(signal.SIGTERM)
        must(bed.server is not None and bed.server.returncode == 0, "the server did not end with 0")
        seen(f"audit: {bed.bursar('audit', str(bed.folder / 'bursar.db')).strip().splitlines()[-1]}")
        left = [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in bed.left()]
        must(not left, f"processes are left: {left}")
        seen("no process is left over")

    @staticmethod
    def _since(before: float) -> str:
        return f"{time.monotonic() - before:.1f} s"


def unpacked(wheels: Path, into: Path) -> Path | None:
    """What Bursar imports, where the wheels were carried along."""
    found = sorted(wheels.glob("*.whl"))
    for wheel in found:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
    return into if found else None


def stages(fake: bool, short: bool, deps: Path | None, found: Findings) -> None:
    machine = None
    if fake:
        from tests.device.fake.fake_nvml import h200
        from tests.device.fake.fake_nvml import machine as fake_machine

        machine = fake_machine(h200())
    bed = Bed(machine, deps)
    try:
        OneCard(bed, found).run(short=short)
    except BaseException:
        sys.stderr.write((bed.folder / "server.log").read_text(encoding="utf-8")[-6000:])
        raise
    finally:
        bed.close()
    if fake:
        from tests.device.fake_machines import several_cards

        several_cards(found, short=short)


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, help="write the findings there, too")
    options.add_argument("--fake", action="store_true", help="without a GPU")
    options.add_argument("--short", action="store_true", help="only the stages that do not wait long")
    given = options.parse_args(arguments)
    found = Findings()
    found.say(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, Python {platform.python_version()}")
    code = 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(int(LIMIT))
    with tempfile.TemporaryDirectory(prefix="bursar-deps-") as folder:
        try:
            deps = None if given.fake else unpacked(ROOT / "build/wheels", Path(folder))
            stages(given.fake, given.short, deps, found)
            said = f"{found.failed} stages FAILED" if found.failed else "All is as it must be"
            found.say(f"\n{said}; {time.monotonic() - found.began:.0f} s")
            code = int(found.failed > 0)
        except BaseException as error:  # noqa: BLE001 it is reported, with what was seen until then
            code = 1
            if not isinstance(error, CheckError):
                traceback.print_exc()
            found.say(f"\nFAILED: {type(error).__name__}: {error}")
    if given.out is not None:
        given.out.write_text("\n".join(found.lines) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
