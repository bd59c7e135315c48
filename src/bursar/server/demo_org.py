# ruff: noqa: E501 manifests, one an object
"""A small organisation for the demo: teams, GPU nodes, and a quota of every dialect.

* ``vision``, ``speech`` and ``robotics`` train on whole GPUs and lend each other what they do not use (elastic quotas).
* ``ads`` and ``search`` share a pool of nodes by a quota tree that follows the nodes (pools).
* ``chat`` serves models on parts of GPUs, within a namespace quota (limits).
* ``lab`` has a tree of groups that borrow from their parents (trees).
* ``etl`` runs without GPUs; what it may take of GPU nodes is limited (crossquota).
* ``you`` are whoever looks: a node, a quota, and a pod that waits (``YOURS``).
"""

from __future__ import annotations

ORGANISATION = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec:
  crossquota:
    gpu-resource-names: nvidia.com/gpu
    quota-resources: cpu
    quota.cpu: "16"
  pools: {delayEvictTime: 20s}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Node, metadata: {name: train-1, labels: {pool: train}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: train-2, labels: {pool: train}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: shared-1, labels: {pool: shared}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: lab-1, labels: {pool: lab}}, status: {allocatable: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}}}
  - {apiVersion: v1, kind: Node, metadata: {name: serve-1, labels: {pool: serve}}, status: {allocatable: {cpu: 32, memory: 256Gi}}}
  - {apiVersion: v1, kind: Node, metadata: {name: cpu-1, labels: {pool: cpu}}, status: {allocatable: {cpu: 16, memory: 64Gi}}}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: tensor-fusion.ai/v1, kind: GPU, metadata: {name: serve-1-0}, status: {phase: Running, gpuModel: L40S, index: 0, capacity: {tflops: 362, vram: 48Gi}, nodeSelector: {kubernetes.io/hostname: serve-1}}}
  - {apiVersion: tensor-fusion.ai/v1, kind: GPU, metadata: {name: serve-1-1}, status: {phase: Running, gpuModel: L40S, index: 1, capacity: {tflops: 362, vram: 48Gi}, nodeSelector: {kubernetes.io/hostname: serve-1}}}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: vision, name: quota}, spec: {min: {nvidia.com/gpu: 6}, max: {nvidia.com/gpu: 12}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: speech, name: quota}, spec: {min: {nvidia.com/gpu: 6}, max: {nvidia.com/gpu: 10}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: robotics, name: quota}, spec: {min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}}
---
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata:
  namespace: kube-system
  name: shared
  labels: {quota.scheduling.koordinator.sh/tree-id: shared}
  annotations: {quota.scheduling.koordinator.sh/resource-keys: '["nvidia.com/gpu"]'}
spec:
  quotaName: shared-root
  quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"}
  nodeSelector: {matchLabels: {pool: shared}}
---
apiVersion: v1
kind: List
items:
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: ads, name: ads, labels: {quota.scheduling.koordinator.sh/parent: shared-root}}
    spec: {min: {nvidia.com/gpu: 3}, max: {nvidia.com/gpu: 8}}
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {namespace: search, name: search, labels: {quota.scheduling.koordinator.sh/parent: shared-root}}
    spec: {min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {namespace: chat, name: quota}
spec:
  total:
    requests: {tflops: "500", vram: 64Gi}
    limits: {tflops: "900", vram: 96Gi}
    maxWorkers: 8
    alertThresholdPercent: 80
  single: {maxRequests: {tflops: "200", vram: 32Gi}}
---
apiVersion: bursar.dev/v1alpha1
kind: QuotaTree
metadata: {name: lab}
spec:
  resourceNames: [nvidia.com/gpu]
  nodes:
    lab: {quota: {nvidia.com/gpu: 8}, hard: true}
    theory: {parent: lab, quota: {nvidia.com/gpu: 3}}
    applied: {parent: lab, quota: {nvidia.com/gpu: 5}}
    agents: {parent: applied, quota: {nvidia.com/gpu: 2}}
    safety: {parent: applied, quota: {nvidia.com/gpu: 3}}
"""

# A corner that is kept for whoever looks: nobody else comes here, so that what helps the pod always helps.
YOURS = """
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Node, metadata: {name: yours-1, labels: {pool: yours}}, status: {allocatable: {cpu: 32, memory: 128Gi, nvidia.com/gpu: 4}}}
  - {apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: you, name: quota}, spec: {min: {nvidia.com/gpu: 2}, max: {nvidia.com/gpu: 2}}}
  - apiVersion: v1
    kind: Pod
    metadata: {namespace: you, name: first, annotations: {sim.bursar.dev/runs-for: 15m}}
    spec: {nodeSelector: {pool: yours}, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}
"""
