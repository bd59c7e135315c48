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

{{- define "bursar.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The user that the controller is for the API server. */}}
{{- define "bursar.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.serviceAccount.name }}
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

{{/* Texts as the items of a CEL list. */}}
{{- define "bursar.celItems" -}}
{{- range $index, $item := . }}{{ if $index }}, {{ end }}'{{ $item }}'{{ end -}}
{{- end }}

{{/* What the replicas and the hooks of the API server must agree upon, as arguments. */}}
{{- define "bursar.admissionArgs" -}}
{{- if .Values.admission.everywhere }}
- --everywhere
{{- end }}
{{- range .Values.admission.exemptNamespaces }}
- --exempt={{ . }}
{{- end }}
{{- range .Values.admission.moreLabels }}
- --label={{ . }}
{{- end }}
{{- range .Values.admission.schedulerNames }}
- --scheduler-name={{ . }}
{{- end }}
- --cluster-scheduler={{ .Values.admission.clusterScheduler }}
{{- end }}
