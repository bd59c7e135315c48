{{- define "bursar.labels" -}}
{{ include "bursar.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "bursar.selectorLabels" -}}
app.kubernetes.io/name: bursar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The name of the Deployment and what belongs to it. */}}
{{- define "bursar.name" -}}
{{ .Values.fullnameOverride | default "bursar" }}
{{- end }}

{{- define "bursar.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Whether pods are gated and guarded: true or false. */}}
{{- define "bursar.admits" -}}
{{ and .Values.admission.enabled (not .Values.controller.shadow) (not .Values.controller.dryRun) }}
{{- end }}

{{/* How pods get the gate: policy or webhook. */}}
{{- define "bursar.gate" -}}
{{- if ne .Values.admission.gate "auto" -}}
{{ .Values.admission.gate }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end }}

{{/* The webhook knows the usual names of schedulers only. */}}
{{- define "bursar.checkNames" -}}
{{- $usual := list "n8s-scheduler" "nos-scheduler" "koord-scheduler" "volcano" "tensor-fusion-scheduler" }}
{{- $named := and (deepEqual $usual .Values.admission.schedulerNames) (eq .Values.admission.clusterScheduler "default-scheduler") }}
{{- if and (eq (include "bursar.gate" .) "webhook") (not $named) }}
{{- fail "admission.schedulerNames and admission.clusterScheduler can be changed only where pods are gated by policy (Kubernetes 1.36)" }}
{{- end }}
{{- end }}

{{/* No replica starts with other times. */}}
{{- define "bursar.checkLease" -}}
{{- with .Values.controller.lease }}
{{- if not (and (gt (float64 .duration) (float64 .renewDeadline)) (gt (float64 .renewDeadline) (float64 .retryPeriod))) }}
{{- fail "controller.lease: duration must be more than renewDeadline, and that more than retryPeriod" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Texts as the items of a CEL list. */}}
{{- define "bursar.celItems" -}}
{{- range $index, $item := . }}{{ if $index }}, {{ end }}'{{ $item }}'{{ end -}}
{{- end }}

{{/* Whether the answers API is served: true or false. Its certificate is that of the webhook, which is not kept when nothing is written. */}}
{{- define "bursar.answers" -}}
{{ and .Values.answers.enabled (not .Values.controller.shadow) (not .Values.controller.dryRun) }}
{{- end }}

{{- define "bursar.answersSelectorLabels" -}}
app.kubernetes.io/name: bursar-answers
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bursar.answersLabels" -}}
{{ include "bursar.answersSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
