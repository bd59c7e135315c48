"""Restarts of a cluster in a test, without a store."""

from __future__ import annotations

from bursar.sim.cluster import Cluster


class Tape:
    """Stops a cluster and starts another one from what it left behind."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.records: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.manifests: dict[int, bytes] = {}

    def restart(self, old: Cluster) -> Cluster:
        self.lines.extend(old.engine.journal.take())
        for kind, key, version, record, applied_as, manifest in old.take_changes():
            if record is None:
                self.records.pop((kind, key), None)
            else:
                self.records[kind, key] = (version, record)
            if manifest is not None:
                self.manifests[applied_as] = manifest
        new = Cluster(manifests=self.manifests.__getitem__)
        new.engine.replay(self.lines)
        rows = [(kind, key, version, text) for (kind, key), (version, text) in sorted(self.records.items())]
        new.resume(old.now(), old.objects.uids, old.objects.version, rows)
        return new
