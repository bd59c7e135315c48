"""What is read of a pod that comes in Protocol Buffers: the fields of ``SeenPod``, by their numbers in Kubernetes' API.

Numbers are as lasting as names: the API never gives one away a second time. Tests on a real API server hold pods that
were read so against the same pods read from JSON.
"""

from __future__ import annotations

from bursar.kube.client.packing import OBJECT_META
from bursar.kube.client.protobuf import (
    AMOUNT,
    FLAG,
    INLINE,
    MESSAGE,
    NAME,
    NUMBER,
    QUANTITIES,
    TEXT,
    TEXTS,
    THERE,
    Field,
    Message,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_RESOURCES = Message({1: Field("limits", QUANTITIES), 2: Field("requests", QUANTITIES)})
_PORT = Message(
    {
        2: Field("hostPort", NUMBER),
        3: Field("containerPort", NUMBER),
        4: Field("protocol", TEXT),
        5: Field("hostIP", TEXT),
    }
)
_CONTAINER = Message(
    {
        1: Field("name", TEXT),
        6: Field("ports", MESSAGE, _PORT, many=True),
        8: Field("resources", MESSAGE, _RESOURCES),
        24: Field("restartPolicy", TEXT),
    }
)
_VOLUME_SOURCES = (  # in the order of their numbers, from 1
    "hostPath",
    "emptyDir",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "projected",
    "storageos",
    "csi",
    "ephemeral",
    "image",
)
_VOLUME_SOURCE = Message(
    {number: Field(name, THERE) for number, name in enumerate(_VOLUME_SOURCES, 1)},
    others=True,  # whatever comes later may decide over the node
)
_VOLUME = Message({1: Field("name", TEXT), 2: Field("source", INLINE, _VOLUME_SOURCE)})
_REQUIREMENT = Message({1: Field("key", NAME), 2: Field("operator", NAME), 3: Field("values", NAME, many=True)})
_NODE_TERM = Message(
    {
        1: Field("matchExpressions", MESSAGE, _REQUIREMENT, many=True),
        2: Field("matchFields", MESSAGE, _REQUIREMENT, many=True),
    }
)
_NODE_SELECTOR = Message({1: Field("nodeSelectorTerms", MESSAGE, _NODE_TERM, many=True)})
_NODE_AFFINITY = Message({1: Field(_REQUIRED, MESSAGE, _NODE_SELECTOR)})
_POD_AFFINITY = Message({1: Field(_REQUIRED, THERE, many=True)})
_AFFINITY = Message(
    {
        1: Field("nodeAffinity", MESSAGE, _NODE_AFFINITY),
        2: Field("podAffinity", MESSAGE, _POD_AFFINITY),
        3: Field("podAntiAffinity", MESSAGE, _POD_AFFINITY),
    }
)
_TOLERATION = Message(
    {1: Field("key", TEXT), 2: Field("operator", TEXT), 3: Field("value", TEXT), 4: Field("effect", TEXT)}
)
_SPREAD = Message({3: Field("whenUnsatisfiable", NAME)})
_GATE = Message({1: Field("name", NAME)})
_SPEC = Message(
    {
        1: Field("volumes", MESSAGE, _VOLUME, many=True),
        2: Field("containers", MESSAGE, _CONTAINER, many=True),
        4: Field("terminationGracePeriodSeconds", AMOUNT),
        7: Field("nodeSelector", TEXTS),
        10: Field("nodeName", TEXT),
        11: Field("hostNetwork", FLAG),
        18: Field("affinity", MESSAGE, _AFFINITY),
        19: Field("schedulerName", TEXT),
        20: Field("initContainers", MESSAGE, _CONTAINER, many=True),
        22: Field("tolerations", MESSAGE, _TOLERATION, many=True),
        24: Field("priorityClassName", TEXT),
        25: Field("priority", AMOUNT),
        31: Field("preemptionPolicy", TEXT),
        32: Field("overhead", QUANTITIES),
        33: Field("topologySpreadConstraints", MESSAGE, _SPREAD, many=True),
        38: Field("schedulingGates", MESSAGE, _GATE, many=True),
        39: Field("resourceClaims", THERE, many=True),
        40: Field("resources", MESSAGE, _RESOURCES),
    }
)
_CONDITION = Message({1: Field("type", NAME), 2: Field("status", NAME), 5: Field("reason", TEXT)})
_STATUS = Message({1: Field("phase", TEXT), 2: Field("conditions", MESSAGE, _CONDITION, many=True)})

POD = Message(
    {
        1: Field("metadata", MESSAGE, OBJECT_META),
        2: Field("spec", MESSAGE, _SPEC),
        3: Field("status", MESSAGE, _STATUS),
    }
)
