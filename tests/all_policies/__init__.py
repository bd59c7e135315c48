"""Random worlds: all policies that ship, together, driven by seeded steps and judged after each.

* ``surroundings`` and ``workloads`` draw manifests: nodes, quotas of every dialect, pods;
* ``cluster_world`` drives the embedded cluster with its loop, ``engine_world`` the engine by itself;
* ``ledger_sums``, ``spec_sums`` and ``limits`` say what must be true after every step;
* ``checkpoint`` audits the journal, and compares replay, snapshot and restart with the live state;
* ``play`` plays a world from a list of steps, and shrinks the list of a world that breaks a rule.

``python -m tests.all_policies --steps 100000 --seed 1`` is the long run.
"""
