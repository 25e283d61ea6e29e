{{- define "uncork.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "uncork.selector" -}}
app.kubernetes.io/name: uncork
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "uncork.labels" -}}
{{ include "uncork.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Where probes and scrapes ask. */}}
{{- define "uncork.adminPort" -}}
{{ ternary "admin" "http" (gt (int .Values.service.adminPort) 0) }}
{{- end }}
