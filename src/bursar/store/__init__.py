"""The durable store: journal, objects and snapshots in one SQLite file."""
