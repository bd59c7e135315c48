"""The fields that Kubernetes' own kinds have, to warn about those that they do not have.

Bursar reads few fields of pods, nodes and workloads, and ignores all others. A field that Kubernetes does not have
either is probably misspelt: ``limit`` for ``limits`` asks for nothing. It is no error, as it is none for kubectl.

Each type is one line of fields. ``name:Type`` is a field of another type, ``name:Type[]`` a list of them; what is
inside any other field is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bursar.objects.decode import join, or_nearest

_AFFINITY_FIELDS: Final = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_TYPES: Final[dict[str, str]] = {
    "Object": "apiVersion kind metadata:Metadata spec status",
    "Metadata": (
        "name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp"
        " deletionGracePeriodSeconds labels annotations ownerReferences:Owner[] finalizers managedFields"
    ),
    "Owner": "apiVersion kind name uid controller blockOwnerDeletion",
    "Pod": "apiVersion kind metadata:Metadata spec:PodSpec status",
    "PodSpec": (
        "volumes:Volume[] initContainers:Container[] containers:Container[] ephemeralContainers:Container[]"
        " restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName"
        " serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace"
        " securityContext:PodSecurity imagePullSecrets hostname subdomain affinity:Affinity schedulerName"
        " tolerations:Toleration[] hostAliases priorityClassName priority dnsConfig readinessGates runtimeClassName"
        " enableServiceLinks preemptionPolicy overhead topologySpreadConstraints:Spread[] setHostnameAsFQDN os"
        " hostUsers schedulingGates resourceClaims:PodClaim[] resources:Resources hostnameOverride workloadRef"
    ),
    "Container": (
        "name image command args workingDir ports:Port[] envFrom:EnvFrom[] env:Env[] resources:Resources resizePolicy"
        " restartPolicy restartPolicyRules volumeMounts:Mount[] volumeDevices livenessProbe:Probe readinessProbe:Probe"
        " startupProbe:Probe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy"
        " securityContext:ContainerSecurity stdin stdinOnce tty targetContainerName"
    ),
    "Resources": "limits requests claims",
    "Port": "name hostPort containerPort protocol hostIP",
    "Env": "name value valueFrom",
    "EnvFrom": "prefix configMapRef secretRef",
    "Mount": "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
    "Probe": (
        "exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold"
        " failureThreshold terminationGracePeriodSeconds"
    ),
    "ContainerSecurity": (
        "capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot"
        " readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile"
    ),
    "PodSecurity": (
        "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy"
        " fsGroup sysctls fsGroupChangePolicy seccompProfile appArmorProfile seLinuxChangePolicy"
    ),
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "NodeAffinity": f"{_AFFINITY_FIELDS[0]}:NodeSelector {_AFFINITY_FIELDS[1]}",
    "NodeSelector": "nodeSelectorTerms:NodeTerm[]",
    "NodeTerm": "matchExpressions:Expression[] matchFields:Expression[]",
    "PodAffinity": " ".join(_AFFINITY_FIELDS),
    "Expression": "key operator values",
    "Selector": "matchLabels matchExpressions:Expression[]",
    "Toleration": "key operator value effect tolerationSeconds",
    "Spread": (
        "maxSkew topologyKey whenUnsatisfiable labelSelector:Selector minDomains nodeAffinityPolicy nodeTaintsPolicy"
        " matchLabelKeys"
    ),
    "PodClaim": "name resourceClaimName resourceClaimTemplateName",
    "Volume": (
        "name hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs"
        " persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume"
        " quobyte azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image"
    ),
    "Node": "apiVersion kind metadata:Metadata spec:NodeSpec status:NodeStatus",
    "NodeSpec": "podCIDR podCIDRs providerID unschedulable taints:Taint[] configSource externalID",
    "Taint": "key value effect timeAdded",
    "NodeStatus": (
        "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images volumesInUse volumesAttached"
        " config runtimeHandlers features declaredFeatures"
    ),
    "Namespace": "apiVersion kind metadata:Metadata spec status",
    "PriorityClass": "apiVersion kind metadata:Metadata value globalDefault description preemptionPolicy",
    "PodDisruptionBudget": "apiVersion kind metadata:Metadata spec:BudgetSpec status",
    "BudgetSpec": "minAvailable maxUnavailable selector:Selector unhealthyPodEvictionPolicy",
    "PodTemplate": "metadata:Metadata spec:PodSpec",
    "Job": "apiVersion kind metadata:Metadata spec:JobSpec status",
    "JobSpec": (
        "parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy backoffLimit"
        " backoffLimitPerIndex maxFailedIndexes selector:Selector manualSelector template:PodTemplate"
        " ttlSecondsAfterFinished completionMode suspend podReplacementPolicy managedBy"
    ),
    "Deployment": "apiVersion kind metadata:Metadata spec:DeploymentSpec status",
    "DeploymentSpec": (
        "replicas selector:Selector template:PodTemplate strategy minReadySeconds revisionHistoryLimit paused"
        " progressDeadlineSeconds"
    ),
    "JobSet": "apiVersion kind metadata:Metadata spec:JobSetSpec status",
    "JobSetSpec": (
        "replicatedJobs:ReplicatedJob[] network successPolicy failurePolicy startupPolicy suspend coordinator managedBy"
        " ttlSecondsAfterFinished"
    ),
    "ReplicatedJob": "name groupName template:JobTemplate replicas dependsOn",
    "JobTemplate": "metadata:Metadata spec:JobSpec",
}
_KINDS: Final = {
    ("v1", "Pod"), ("v1", "Node"), ("v1", "Namespace"), ("scheduling.k8s.io/v1", "PriorityClass"),
    ("policy/v1", "PodDisruptionBudget"), ("batch/v1", "Job"), ("apps/v1", "Deployment"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
}  # fmt: skip


def _parsed(line: str) -> dict[str, tuple[str, bool]]:
    """By field: its type ("" if it is not looked at), and whether it is a list."""
    pairs = (field.partition(":") for field in line.split())
    return {name: (kind.removesuffix("[]"), kind.endswith("[]")) for name, _, kind in pairs}


_FIELDS: Final = {name: _parsed(line) for name, line in _TYPES.items()}


def unknown_fields(body: dict[str, Any]) -> list[str]:
    """A warning for each field of a manifest that its kind does not have; none for kinds that are not Kubernetes'."""
    kind = body.get("kind")
    if (body.get("apiVersion"), kind) not in _KINDS:
        return []
    return [f'unknown field "{path}"{or_nearest(name, fields)}' for path, name, fields in _unknown(body, str(kind), "")]


def asked_resources(body: dict[str, Any]) -> Iterator[str]:
    """The names of the resources that a pod, or the pods of a workload, ask for; as far as they can be read."""
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    jobs = spec.get("replicatedJobs")
    for holder in (spec, *(jobs if isinstance(jobs, list) else ())):
        template = holder.get("template") if isinstance(holder, dict) else None
        if isinstance(template, dict):
            yield from asked_resources(template)
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            resources = container.get("resources") if isinstance(container, dict) else None
            for side in ("requests", "limits"):
                amounts = resources.get(side) if isinstance(resources, dict) else None
                yield from map(str, amounts if isinstance(amounts, dict) else ())


def _unknown(value: object, kind: str, path: str) -> Iterator[tuple[str, str, dict[str, tuple[str, bool]]]]:
    fields = _FIELDS[kind]
    for name, inner in value.items() if isinstance(value, dict) else ():
        known = fields.get(name)
        if known is None:
            yield join(path, str(name)), str(name), fields
        elif known[0] and known[1]:
            for index, item in enumerate(inner if isinstance(inner, list) else ()):
                yield from _unknown(item, known[0], f"{join(path, name)}[{index}]")
        elif known[0]:
            yield from _unknown(inner, known[0], join(path, name))
