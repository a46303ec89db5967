{{- define "demo.labels" -}}
app.kubernetes.io/name: rlscaler-demo
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rlscaler-demo
{{- end }}

{{- define "demo.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "demo.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Every pod of this chart runs without rights: what it needs is a port and a folder to write to. */}}
{{- define "demo.podSecurity" -}}
runAsNonRoot: true
{{- range $name, $id := .Values.podSecurity }}
{{- if not (kindIs "invalid" $id) }}
{{ $name }}: {{ int64 $id }}
{{- end }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "demo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Weights of the route: those in force, which the operator moves, or at first by the capacity of one replica. */}}
{{- define "demo.weights" -}}
{{- $total := addf .Values.gpu.requestsPerSecond .Values.cpu.requestsPerSecond -}}
{{- $gpu := round (divf (mulf 1000 .Values.gpu.requestsPerSecond) $total) 0 | int -}}
{{- $weights := dict "gpu" $gpu "cpu" (sub 1000 $gpu) -}}
{{- $route := lookup "gateway.networking.k8s.io/v1" "HTTPRoute" .Release.Namespace .Values.service.name -}}
{{- range (first (dig "spec" "rules" (list) $route | default (list (dict)))).backendRefs -}}
{{- $_ := set $weights (trimPrefix (printf "%s-" $.Values.service.name) .name) .weight -}}
{{- end -}}
{{ toJson $weights }}
{{- end }}
