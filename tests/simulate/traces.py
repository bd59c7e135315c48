"""Small made-up traces in the formats of the public ones, and demands for runs."""

from pathlib import Path

from bursar.simulate.demand import GPU, HOUR, MILLI, Job, JobDemand, JobShape, gpu_shape, node

OPENB_NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,32000,65536,0,
n1,64000,131072,2,T4
n2,64000,131072,4,V100
"""
OPENB_PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time
p0,4000,8192,1,460,,LS,Running,0
p1,4000,8192,1,600,V100|A100,LS,Running,1
p2,8000,8192,4,1000,,BE,Running,2
p3,1000,1024,0,0,,LS,Running,3
p4,4000,8192,1,460,,LS,Running,4
"""
PHILLY_JOBS = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 08:00:00,3600.0,2,7200.0,vcb
2017-10-09 07:00:00,7200.0,4,28800.0,vca
2017-10-09 07:30:00,60.0,1,60.0,unsized
"""
PHILLY_SIZES = "vc,node num\nvca,3\nvcb,1\n"
HELIOS = """time,vc,quota_gpus,running_gpus,pending_gpus,idle_gpus,running_gpu_jobs,pending_gpu_jobs
2020-05-01 00:00:00,a,8,8,6,0,1,1
2020-05-01 00:00:00,b,8,4,0,4,1,0
2020-05-01 00:10:00,a,8,8,0,0,1,0
2020-05-01 00:10:00,b,8,6,3,2,1,1
"""
GENERATOR = """cohorts:
- className: cohort
  count: 2
  queuesSets:
  - className: cq
    count: 2
    nominalQuota: 10
    borrowingLimit: {limit}
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    workloadsSets:
    - count: 3
      creationIntervalMs: 100
      workloads:
      - {{className: small, runtimeMs: 200, priority: 50, request: 1}}
    - count: 1
      creationIntervalMs: 500
      workloads:
      - {{className: large, runtimeMs: 1000, priority: 200, request: 10}}
"""


def write_openb(folder: Path) -> Path:
    (folder / "openb_node_list_all_node.csv").write_text(OPENB_NODES)
    (folder / "openb_pod_list_default.csv").write_text(OPENB_PODS)
    return folder


def write_philly(folder: Path) -> Path:
    (folder / "philly.csv").write_text(PHILLY_JOBS)
    (folder / "philly_vc_nodes.csv").write_text(PHILLY_SIZES)
    return folder


def write_helios(folder: Path) -> Path:
    (folder / "earth_vc_demand_10min_2020-05.csv").write_text(HELIOS)
    return folder


def demand_of(*jobs: tuple[str, int, float, float | None], gpus: int = 8, nodes: int = 1, pods: int = 1) -> JobDemand:
    """Jobs (tenant, GPUs of each pod, arrival and run time in hours) on nodes; tenants have equal shares."""
    sizes = sorted({size for _, size, _, _ in jobs})
    shapes: list[JobShape] = [gpu_shape(size, pods=pods) for size in sizes]
    found = [
        Job(f"j{number}", tenant, int(at * HOUR), None if runs is None else int(runs * HOUR), sizes.index(size))
        for number, (tenant, size, at, runs) in enumerate(jobs)
    ]
    objects = tuple(node(f"n{number}", {GPU: gpus}) for number in range(nodes))
    shares = {job.tenant: 1 for job in found}
    return JobDemand(
        "made up", sorted(found, key=lambda job: job.arrives), shapes, objects, gpus * nodes * MILLI, shares
    )
