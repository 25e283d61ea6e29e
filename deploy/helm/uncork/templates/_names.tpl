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

{{/*
The names of the deployment's pods, which Prometheus matches as a whole: those of another release may begin alike. Kubernetes leaves the
second hyphen out where a name is long.
*/}}
{{- define "uncork.pods" -}}
{{ include "uncork.name" . }}-[a-z0-9]+-?[a-z0-9]{5}
{{- end -}}

{{/* Certificates have to come by tls.secret: no probe would be answered otherwise. */}}
{{- define "uncork.checkTls" -}}
{{- if regexMatch `(?m)^[^#\n]*\btls_client_ca\b` .Values.config }}
{{- fail "config has tls_client_ca: probes have no certificate of a client, so no pod would ever be ready; docs/deploying.md says what to do instead" }}
{{- end }}
{{- if regexMatch `(?m)^[^#\n]*\btls_(certificate|key)\b` .Values.config }}
{{- fail "config names a certificate, and probes would not know of it: name a secret with tls.crt and tls.key in tls.secret instead" }}
{{- end }}
{{- end -}}

{{/* Where probes and scrapes ask. */}}
{{- define "uncork.adminPort" -}}
{{ ternary "admin" "http" (gt (int .Values.service.adminPort) 0) }}
{{- end }}
