"""Objects that both Python and the API server accept, and such that both refuse: one table for two judges.

``RULES`` has a row for every CEL rule: what breaks it, and the message. What only one of the two refuses is listed in
``PYTHON_ONLY`` (left to the webhook) and ``SERVER_ONLY``, so that nobody takes it for an oversight.
"""

from typing import Any, NamedTuple

import yaml

Manifest = dict[str, Any]

_HEADS = {
    "ElasticQuota": "n8s.nebuly.ai/v1alpha1",
    "CompositeElasticQuota": "n8s.nebuly.ai/v1alpha1",
    "PoolQuota": "scheduling.sigs.k8s.io/v1alpha1",
    "ElasticQuotaProfile": "quota.koordinator.sh/v1alpha1",
    "GPUResourceQuota": "tensor-fusion.ai/v1",
    "TensorFusionWorkload": "tensor-fusion.ai/v1",
    "WorkloadProfile": "tensor-fusion.ai/v1",
    "GPU": "tensor-fusion.ai/v1",
    "GPUPool": "tensor-fusion.ai/v1",
    "SchedulingConfigTemplate": "tensor-fusion.ai/v1",
    "QuotaTree": "bursar.dev/v1alpha1",
    "Configuration": "bursar.dev/v1alpha1",
}


class Case(NamedTuple):
    kind: str  # PoolQuota: the ElasticQuota of scheduling.sigs.k8s.io
    spec: str  # YAML
    message: str = ""  # of the API server, when it refuses

    def manifest(self, name: str = "case") -> Manifest:
        named = "default" if self.kind == "Configuration" and name == "case" else name
        kind = "ElasticQuota" if self.kind == "PoolQuota" else self.kind
        found: Manifest = {"apiVersion": _HEADS[self.kind], "kind": kind, "metadata": {"name": named}}
        spec = yaml.safe_load(self.spec)
        return found if spec is None else found | {"spec": spec}


GOOD = [
    Case("ElasticQuota", ""),
    Case("ElasticQuota", "{min: {cpu: 2}, max: {cpu: '10'}}"),
    Case("ElasticQuota", "{min: {cpu: '2', n8s.nebuly.ai/gpu-memory: 16}, max: {cpu: 2000m}}"),
    Case("ElasticQuota", "{min: {memory: 1Gi}, max: {memory: 1073741824}}"),
    Case("ElasticQuota", "{min: {cpu: 1e3, memory: .5Gi}, max: {nvidia.com/gpu: 0}}"),
    Case("CompositeElasticQuota", "{namespaces: [team-a, team-b], min: {cpu: 10}, max: {cpu: 10}, takeover: true}"),
    Case("PoolQuota", ""),
    Case("PoolQuota", "{max: {cpu: '4611686018427387', memory: '4611686018427387'}, min: {cpu: 276480m}}"),
    Case("PoolQuota", "{max: {cpu: 1844674407370955161}}"),
    Case("ElasticQuotaProfile", "{quotaName: root-a, nodeSelector: {}}"),
    Case("ElasticQuotaProfile", "{quotaName: a.b, nodeSelector: {matchLabels: {a: b}}, resourceRatio: '0.9'}"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: '1', quotaLabels: {a: '', b: c}}"),
    Case(
        "ElasticQuotaProfile",
        "{quotaName: a, nodeSelector: {matchExpressions:"
        " [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}}",
    ),
    Case("GPUResourceQuota", ""),
    Case("GPUResourceQuota", "{total: {requests: {vram: 10Gi}, limits: {vram: 10Gi}, alertThresholdPercent: 0}}"),
    Case(
        "GPUResourceQuota",
        "{total: {requests: {tflops: 0.5k}, limits: {tflops: 500}, maxWorkers: 0}}",
    ),
    Case("GPUResourceQuota", "{total: {requests: {tflops: 10}, limits: {vram: 0}, alertThresholdPercent: 100}}"),
    Case(
        "GPUResourceQuota",
        "{single: {maxRequests: {tflops: 10, vram: 1Gi}, maxLimits: {tflops: 20, vram: 1Gi}, maxGPUCount: 8,"
        " defaultRequests: {tflops: 1, vram: 1Gi}, defaultLimits: {tflops: 20, vram: 1Gi}}}",
    ),
    Case(
        "TensorFusionWorkload", "{replicas: 3, gpuCount: 2, resources: {requests: {tflops: 10}}, more: {of: [theirs]}}"
    ),
    Case("WorkloadProfile", "{replicas: 3, poolName: shared}"),
    Case("GPU", ""),
    Case("GPUPool", "{capacityConfig: {oversubscription: {vramExpandToHostMem: 50}}, nodeManagerConfig: {a: 1}}"),
    Case("SchedulingConfigTemplate", "{placement: {mode: CompactFirst, gpuFilters: []}}"),
    Case("QuotaTree", "{}"),
    Case("QuotaTree", "{resourceNames: [cpu, ''], nodes: {root: {parent: nil, quota: {cpu: '10'}, hard: 'true'}}}"),
    Case(
        "QuotaTree",
        "{nodes: {root: {quota: {cpu: 10}, hard: true}, A: {parent: root, quota: {cpu: 500m}, hard: 'false'}}}",
    ),
    Case("Configuration", ""),
    Case(
        "Configuration",
        "{control: {strict: true}, pools: {delayEvictTime: 1m30s}, elastic: {slices: {amd.com/gpu: 64}}}",
    ),
    Case(
        "Configuration",
        "{crossquota: {gpu-resource-names: nvidia.com/gpu, quota.cpu: '32', crossQuotaWeight: 10,"
        " prefer-non-gpu-nodes: false, label-selector: {matchLabels: {a: b}}}}",
    ),
    Case("Configuration", "{gpus: {vramWeight: 100, fractions: all, models: {A100: {tflops: '312', vram: 80Gi}}}}"),
]

_MIN = "max must not be less than min"
_OPERATOR = "In and NotIn need values"

RULES = [
    Case("ElasticQuota", "{min: {cpu: 3}, max: {cpu: 2}}", _MIN),
    Case("ElasticQuota", "{min: {cpu: 3}, max: {cpu: 2500m}}", _MIN),
    Case("ElasticQuota", "{min: {memory: 2Gi, cpu: 1}, max: {cpu: 1, memory: 2G}}", _MIN),
    Case("ElasticQuota", "{min: {a b: 3}}", "a key is not the name of a resource"),
    Case("ElasticQuota", "{max: {UP.io/x: 3}}", "a key is not the name of a resource"),
    Case("CompositeElasticQuota", "{namespaces: [a], min: {cpu: 3}, max: {cpu: 2}}", _MIN),
    Case("CompositeElasticQuota", "{namespaces: [a], max: {a/b/c: 2}}", "a key is not the name of a resource"),
    Case("CompositeElasticQuota", "{namespaces: [a], min: {a/b/c: 2}}", "a key is not the name of a resource"),
    Case("PoolQuota", "{min: {cpu: 3}, max: {memory: 2}}", "min lists a resource that max does not"),
    Case("PoolQuota", "{min: {cpu: 3}}", "min lists a resource that max does not"),
    Case("PoolQuota", "{min: {cpu: 3}, max: {cpu: 2}}", _MIN),
    Case("PoolQuota", "{max: {'': 2}}", "a key is not the name of a resource"),
    Case("PoolQuota", "{min: {'': 1}, max: {'': 2}}", "a key is not the name of a resource"),
    Case("ElasticQuotaProfile", "{quotaName: koordinator-root-quota, nodeSelector: {}}", "built-in quota"),
    Case("ElasticQuotaProfile", "{quotaName: koordinator-default-quota, nodeSelector: {}}", "built-in quota"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: '0'}", "more than 0 and at most 1"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: '0.00'}", "more than 0 and at most 1"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: '1.01'}", "more than 0 and at most 1"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: '2'}", "more than 0 and at most 1"),
    Case(
        "ElasticQuotaProfile",
        "{quotaName: a, nodeSelector: {matchExpressions: [{key: a, operator: In}]}}",
        _OPERATOR,
    ),
    Case(
        "ElasticQuotaProfile",
        "{quotaName: a, nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}",
        _OPERATOR,
    ),
    Case(
        "ElasticQuotaProfile",
        "{quotaName: a, nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}",
        _OPERATOR,
    ),
    *(
        Case(
            "GPUResourceQuota",
            f"{{{outer}: {{{less}: {{{name}: 3}}, {more}: {{{name}: 2}}}}}}",
            message.format(name=name),
        )
        for name in ("tflops", "vram")
        for outer, less, more, message in (
            ("total", "requests", "limits", "limits.{name} cannot be less than requests.{name}"),
            ("single", "maxRequests", "maxLimits", "maxLimits.{name} cannot be less than maxRequests.{name}"),
            (
                "single",
                "defaultRequests",
                "defaultLimits",
                "defaultLimits.{name} cannot be less than defaultRequests.{name}",
            ),
            (
                "single",
                "defaultRequests",
                "maxRequests",
                "defaultRequests.{name} cannot be more than maxRequests.{name}",
            ),
            ("single", "defaultLimits", "maxLimits", "defaultLimits.{name} cannot be more than maxLimits.{name}"),
        )
    ),
    Case("QuotaTree", "{nodes: {'': {quota: {}}}}", "the name of a node has 1 to 253 characters"),
    Case("QuotaTree", "{nodes: {nil: {quota: {}}}}", "the name of a node has 1 to 253 characters"),
    Case("QuotaTree", f"{{nodes: {{{'a' * 254}: {{quota: {{}}}}}}}}", "the name of a node has 1 to 253 characters"),
    Case("QuotaTree", "{nodes: {a: {quota: {}}, b: {parent: c, quota: {}}}}", "the parent of a node is not a node"),
    Case("QuotaTree", "{nodes: {a: {quota: {}}, b: {quota: {}}}}", "exactly one node is the root"),
    Case(
        "QuotaTree", "{nodes: {a: {quota: {}, parent: b}, b: {quota: {}, parent: a}}}", "exactly one node is the root"
    ),
    Case("QuotaTree", "{nodes: {a: {quota: {x y: 1}}}}", "a key is not the name of a resource"),
]

SCHEMA = [
    Case("ElasticQuota", "{min: {cpu: -1}}", "should be greater than or equal to 0"),
    Case("ElasticQuota", "{min: {cpu: '-1'}}", "should match"),
    Case("ElasticQuota", "{min: {cpu: 12x}}", "should match"),
    Case("ElasticQuota", "{min: {cpu: true}}", "must be of type"),
    Case("ElasticQuota", "{mni: {cpu: 1}}", "unknown field"),
    Case("CompositeElasticQuota", "{min: {cpu: 1}}", "Required value"),
    Case("CompositeElasticQuota", "{namespaces: []}", "should have at least 1 items"),
    Case("CompositeElasticQuota", "{namespaces: [a, a]}", "Duplicate value"),
    Case("CompositeElasticQuota", "{namespaces: [A]}", "should match"),
    Case("CompositeElasticQuota", "", "Required value"),
    Case("ElasticQuotaProfile", "{nodeSelector: {}}", "Required value"),
    Case("ElasticQuotaProfile", "{quotaName: a}", "Required value"),
    Case("ElasticQuotaProfile", "{quotaName: A, nodeSelector: {}}", "should match"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {matchLables: {}}}", "unknown field"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, quotaLabels: {a: -}}", "should match"),
    Case(
        "ElasticQuotaProfile",
        "{quotaName: a, nodeSelector: {}, resourceRatio: '-0.5'}",
        "should match",
    ),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {}, resourceRatio: 90%}", "should match"),
    Case("GPUResourceQuota", "{total: {maxWorkers: -1}}", "should be greater than or equal to 0"),
    Case("GPUResourceQuota", "{total: {maxWorkers: 1.5}}", "must be of type integer"),
    Case("GPUResourceQuota", "{total: {maxWorkers: 2147483648}}", "2147483647"),
    Case("GPUResourceQuota", "{total: {alertThresholdPercent: 101}}", "should be less than or equal to 100"),
    Case("GPUResourceQuota", "{total: {alertThresholdPercent: -1}}", "should be greater than or equal to 0"),
    Case("GPUResourceQuota", "{total: {requests: {tflops: '-1'}}}", "should match"),
    Case("GPUResourceQuota", "{single: {maxGPUCount: -1}}", "should be greater than or equal to 0"),
    Case("GPUResourceQuota", "{single: {maxGpuCount: 1}}", "unknown field"),
    Case("GPUPool", "{capacityConfig: {oversubscription: {vramExpandToHostMem: 101}}}", "less than or equal to 100"),
    Case("GPUPool", "{capacityConfig: {oversubscription: {tflopsOversellRatio: 99}}}", "greater than or equal to 100"),
    Case("SchedulingConfigTemplate", "{placement: {mode: Best}}", "Unsupported value"),
    Case("QuotaTree", "", "Required value"),
    Case("QuotaTree", "{nodes: {a: {}}}", "Required value"),
    Case("QuotaTree", "{nodes: {a: {quota: {cpu: '1.5'}}}}", "should match"),
    Case("QuotaTree", "{nodes: {a: {quota: {}, hard: maybe}}}", "Unsupported value"),
    Case("QuotaTree", "{nodes: {a: {quota: {}, soft: true}}}", "unknown field"),
    Case("QuotaTree", "{resourceNames: [a b]}", "should match"),
    Case("Configuration", "{gpus: {vramWeight: 101}}", "should be less than or equal to 100"),
    Case("Configuration", "{gpus: {placementMode: Best}}", "Unsupported value"),
    Case("Configuration", "{elastic: {borrowing: all}}", "Unsupported value"),
    Case("Configuration", "{elastik: {}}", "unknown field"),
]
"""Refused by the schema itself."""

SECTIONS = [
    Case("Configuration", "{elastic: {nvidiaGPUResourceMemoryGB: -1}}", "should be greater than or equal to 0"),
    Case("Configuration", "{elastic: {slices: {a: 1000001}}}", "should be less than or equal to 1000000"),
    Case("Configuration", "{pools: {delayEvictTime: soon}}", "should match"),
]
"""Refused by the schema and, in Python, by the policy whose section it is."""

PYTHON_ONLY = [
    Case("ElasticQuota", "{min: {cpu: 1e30}}"),
    Case("QuotaTree", "{nodes: {r: {quota: {}}, a: {quota: {}, parent: b}, b: {quota: {}, parent: a}}}"),
    Case("ElasticQuotaProfile", "{quotaName: a, nodeSelector: {matchLabels: {a b: c}}}"),
]
SERVER_ONLY = [
    Case("ElasticQuota", "{min: {cpu: 1.5}}", "must be of type"),
    Case("ElasticQuota", "{max: {cpu: '-0'}}", "should match"),
    Case("ElasticQuota", "{min: {nvidia.com/gpu: 700m}, max: {nvidia.com/gpu: 500m}}", _MIN),
]
