{{- define "rlscaler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Release "rlscaler" makes objects named "rlscaler"; release "prod" makes "prod-rlscaler". At most 40 characters:
     names of Leases, Roles and Jobs are longer by a suffix. */}}
{{- define "rlscaler.fullname" -}}
{{- $name := include "rlscaler.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "rlscaler.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "rlscaler.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name an existing account, or leave serviceAccount.create true" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "rlscaler.selector" -}}
app.kubernetes.io/name: {{ include "rlscaler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rlscaler.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "rlscaler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "rlscaler.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* What every container of the image needs to know: where it acts, and under which Lease. */}}
{{- define "rlscaler.scopeEnv" -}}
- name: RLSCALER_LEASE_NAME
  value: {{ include "rlscaler.fullname" . }}
- name: RLSCALER_LEASE_NAMESPACE
  value: {{ .Release.Namespace }}
- name: RLSCALER_LEASE_SECONDS
  value: {{ .Values.operator.leaseSeconds | quote }}
- name: RLSCALER_SHARDS
  value: {{ int .Values.operator.shards | quote }}
- name: RLSCALER_IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: RLSCALER_PROMETHEUS_URL
  value: {{ .Values.prometheus.url | quote }}
{{- with .Values.watchNamespaces }}
- name: RLSCALER_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{/* Every pod of the image: its account, and the restricted profile of the Pod Security Standards. */}}
{{- define "rlscaler.podSecurity" -}}
serviceAccountName: {{ include "rlscaler.serviceAccount" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- range $name, $id := .Values.podSecurity }}
  {{- if not (kindIs "invalid" $id) }}
  {{ $name }}: {{ int64 $id }}
  {{- end }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rlscaler.container" -}}
image: {{ include "rlscaler.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Where the short-lived pods run: where the operator may. */}}
{{- define "rlscaler.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Rules of a role in files/rbac*.yaml, which are copies of the operator's own. Takes [root, kind, name]; fails where
     there is no such role, so that a role which was renamed there does not become an empty one here. */}}
{{- define "rlscaler.rules" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}{{ $name := index . 2 }}
{{- $found := "" }}
{{- range $path, $_ := $root.Files.Glob "files/rbac*.yaml" }}
{{- range splitList "\n---\n" ($root.Files.Get $path) }}
{{- $role := fromYaml . }}
{{- if and (eq $role.kind $kind) (eq $role.metadata.name $name) }}
{{- $found = toYaml $role.rules }}
{{- end }}
{{- end }}
{{- end }}
{{- required (printf "files/rbac*.yaml have no %s %s" $kind $name) $found }}
{{- end }}

{{/* The rights to the kinds of targets besides Deployments. */}}
{{- define "rlscaler.targetRules" -}}
{{- range . }}
{{- $group := trimSuffix "/" (regexReplaceAll "[^/]*$" .apiVersion "") }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch]
- apiGroups: [{{ $group | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, patch]
{{- end }}
{{- end }}

{{/* What is left out because the cluster lacks an API, a line each. */}}
{{- define "rlscaler.leftOut" -}}
{{- range $kind, $switch := dict "ServiceMonitor" .Values.monitoring.serviceMonitor "PodMonitor" .Values.monitoring.podMonitor "PrometheusRule" .Values.monitoring.prometheusRule }}
{{- if and $switch.enabled (not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) }}
{{ $kind }}
{{- end }}
{{- end }}
{{- end }}
