{{/* A map as NAME=VALUE, separated by commas. */}}
{{- define "rlscaler.pairs" -}}
{{- $pairs := list }}
{{- range $name, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $name $value) }}{{ end }}
{{- join "," $pairs }}
{{- end }}
{{/* Settings of the operator itself, beyond where it acts. */}}
{{- define "rlscaler.operatorEnv" -}}
- name: RLSCALER_METRICS_HOST
  value: {{ .Values.metrics.host | quote }}
- name: RLSCALER_METRICS_PORT
  value: {{ int .Values.metrics.port | quote }}
- name: RLSCALER_SCRAPE_INTERVAL_SECONDS
  value: {{ .Values.prometheus.scrapeIntervalSeconds | quote }}
- name: RLSCALER_RELOAD_SECONDS
  value: {{ .Values.operator.reloadSeconds | quote }}
- name: RLSCALER_DRAIN_SECONDS
  value: {{ .Values.operator.drainSeconds | quote }}
- name: RLSCALER_STATUS_INTERVAL_SECONDS
  value: {{ .Values.operator.statusIntervalSeconds | quote }}
{{- with .Values.targetKinds }}
{{- $kinds := list }}
{{- range . }}
{{- $kinds = append $kinds (printf "%s/%s/%s" .apiVersion .resource .kind) }}
{{- end }}
- name: RLSCALER_TARGET_KINDS
  value: {{ join "," $kinds | quote }}
{{- end }}
{{- if .Values.operator.podDeletionCost }}
- name: RLSCALER_POD_DELETION_COST
  value: "true"
{{- end }}
{{- if .Values.operator.resize }}
- name: RLSCALER_RESIZE
  value: "true"
{{- end }}
{{- if include "rlscaler.newPods" . }}
- name: RLSCALER_RESIZE_NEW_PODS
  value: "true"
{{- end }}
{{- if .Values.operator.budgets }}
- name: RLSCALER_BUDGETS
  value: "true"
{{- end }}
- name: RLSCALER_VERBOSE
  value: {{ .Values.operator.verbose | quote }}
{{- with .Values.prometheus.allowedUrls }}
- name: RLSCALER_ALLOWED_PROMETHEUS_URLS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.prometheus.headers }}
- name: RLSCALER_PROMETHEUS_HEADERS
  value: {{ include "rlscaler.pairs" . | quote }}
{{- end }}
{{- with .Values.kafka.allowedServers }}
- name: RLSCALER_ALLOWED_KAFKA_SERVERS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.prometheus.resourceScrapeIntervalSeconds }}
- name: RLSCALER_RESOURCE_SCRAPE_INTERVAL_SECONDS
  value: {{ . | quote }}
{{- end }}
- name: RLSCALER_REPLICA_LABELS
  value: {{ join "," .Values.prometheus.replicaLabels | quote }}
{{- with .Values.prometheus.matchLabels }}
- name: RLSCALER_MATCH_LABELS
  value: {{ include "rlscaler.pairs" . | quote }}
{{- end }}
- name: RLSCALER_CLUSTER_LABELS
  value: {{ join "," .Values.prometheus.clusterLabels | quote }}
- name: RLSCALER_EXPORTER_NAMESPACES
  value: {{ join "," .Values.prometheus.exporterNamespaces | quote }}
- name: RLSCALER_ANSWER_BYTES
  value: {{ int64 .Values.prometheus.answerBytes | quote }}
- name: RLSCALER_ANSWER_SERIES
  value: {{ int64 .Values.prometheus.answerSeries | quote }}
- name: RLSCALER_ALLOW_OWN_QUERIES
  value: {{ .Values.prometheus.ownQueries.allowed | quote }}
{{- with .Values.prometheus.ownQueries.url }}
- name: RLSCALER_OWN_QUERY_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.prometheus.ownQueries.parameter }}
- name: RLSCALER_OWN_QUERY_PARAMETER
  value: {{ . | quote }}
{{- end }}
{{- if include "rlscaler.policyFiles" . }}
- name: RLSCALER_POLICY_DIR
  value: /policies
{{- end }}
{{- if include "rlscaler.auditFile" . }}
- name: RLSCALER_AUDIT_LOG
  value: /var/log/rlscaler/audit.jsonl
- name: RLSCALER_AUDIT_MAX_BYTES
  value: {{ int64 .Values.auditLog.maxBytes | quote }}
- name: RLSCALER_AUDIT_FILES
  value: {{ int .Values.auditLog.files | quote }}
{{- else if .Values.auditLog.enabled }}
- name: RLSCALER_AUDIT_LOG
  value: /dev/stdout
- name: RLSCALER_AUDIT_MAX_BYTES
  value: "0"
{{- end }}
{{- if .Values.externalScaler.enabled }}
- name: RLSCALER_EXTERNAL_SCALER_HOST
  value: {{ .Values.metrics.host | quote }}
- name: RLSCALER_EXTERNAL_SCALER_PORT
  value: {{ int .Values.externalScaler.port | quote }}
{{- if include "rlscaler.scalerTls" . }}
- name: RLSCALER_EXTERNAL_SCALER_TLS_DIR
  value: /scaler-tls
{{- end }}
{{- if .Values.externalScaler.anonymous }}
- name: RLSCALER_EXTERNAL_SCALER_ANONYMOUS
  value: "true"
{{- end }}
- name: RLSCALER_EXTERNAL_SCALER_MAX_CALLS
  value: {{ int .Values.externalScaler.maxCalls | quote }}
{{- end }}
{{- end }}

{{/* The following say "true" or nothing. */}}
{{- define "rlscaler.auditFile" -}}
{{- if and .Values.auditLog.enabled (not .Values.auditLog.stdout) }}true{{ end }}
{{- end }}

{{- define "rlscaler.policyFiles" -}}
{{- if or .Values.policyFiles.configMap .Values.policyFiles.existingClaim }}true{{ end }}
{{- end }}

{{- define "rlscaler.scalerTls" -}}
{{- if and .Values.externalScaler.enabled .Values.externalScaler.tlsSecret }}true{{ end }}
{{- end }}

{{/* The version of the API by which new pods are sized; nothing where that is not asked for, or there is none. */}}
{{- define "rlscaler.newPods" -}}
{{- if .Values.operator.resizeNewPods }}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1beta1
{{- end }}
{{- end }}
{{- end }}

{{/* Ports that Prometheus may be behind: those of the URLs, or where a Service's port is not its pods', what values say. */}}
{{- define "rlscaler.prometheusPorts" -}}
{{- include "rlscaler.portsOfPrometheus" (list . (compact (concat (list .Values.prometheus.url .Values.prometheus.ownQueries.url) .Values.prometheus.allowedUrls))) }}
{{- end }}

{{/* The same of some URLs. Takes [root, URLs]. */}}
{{- define "rlscaler.portsOfPrometheus" -}}
{{- $ports := list }}
{{- range (index . 0).Values.networkPolicy.prometheusPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- range index . 1 }}
{{- $url := urlParse . }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" }}
{{- $ports = append $ports (default (ternary 443 80 (eq $url.scheme "https")) (int $port)) }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{/* The ports of the brokers that policies may name, as JSON. */}}
{{- define "rlscaler.kafkaPorts" -}}
{{- $ports := list }}
{{- range .Values.kafka.allowedServers }}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | int) }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{/* What the schema cannot say, because it is about two keys. */}}
{{- define "rlscaler.validate" -}}
{{- if gt (int .Values.operator.shards) (int .Values.replicas) }}
{{- fail (printf "operator.shards is %d and replicas %d: each shard needs an operator of its own; raise replicas" (int .Values.operator.shards) (int .Values.replicas)) }}
{{- end }}
{{- if and .Values.operator.resizeNewPods (not .Values.operator.resize) }}
{{- fail "operator.resizeNewPods is true, but operator.resize is false: new pods get the size that running ones got; set both" }}
{{- end }}
{{- if and .Values.policyFiles.configMap .Values.policyFiles.existingClaim }}
{{- fail "policyFiles.configMap and policyFiles.existingClaim are both set: the files come from one of them" }}
{{- end }}
{{- if and .Values.externalScaler.tlsSecret (not .Values.externalScaler.enabled) }}
{{- fail "externalScaler.tlsSecret is set, but externalScaler.enabled is false: enable it, or remove the Secret" }}
{{- end }}
{{- if and .Values.externalScaler.enabled (eq (int .Values.externalScaler.port) (int .Values.metrics.port)) }}
{{- fail (printf "externalScaler.port and metrics.port are both %d: choose two" (int .Values.metrics.port)) }}
{{- end }}
{{- if and .Values.externalScaler.enabled (not .Values.externalScaler.tlsSecret) (not .Values.externalScaler.anonymous) }}
{{- fail "externalScaler.enabled is true, but externalScaler.tlsSecret is empty: name a Secret with tls.crt, tls.key and ca.crt, or let every client ask with externalScaler.anonymous" }}
{{- end }}
{{- end }}
