{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* Pieces that several workloads share. */}}

{{- define "gpudeck.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Labels of an object; the argument is a list of the root and the component's name. */}}
{{- define "gpudeck.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpudeck.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | quote }}
{{- end }}

{{- define "gpudeck.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: gpudeck
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* A folder of the host: the argument is a list of the host's root and a path without a leading slash. */}}
{{- define "gpudeck.onHost" -}}
{{ printf "%s/%s" (index . 0 | trimSuffix "/") (index . 1) }}
{{- end }}

{{/* Settings that every process has. */}}
{{- define "gpudeck.environment" -}}
- name: GPUDECK_LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: GPUDECK_HEALTH_PORT
  value: "8080"
- name: GPUDECK_METRICS_PORT
  value: "8443"
{{- end }}

{{/* Settings of processes that work for one node. */}}
{{- define "gpudeck.nodeEnvironment" -}}
{{- /* Without the docstrings of libraries, some 1 MB a process; the image has that byte code too. */}}
- name: PYTHONOPTIMIZE
  value: "2"
- name: GPUDECK_NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
- name: GPUDECK_HOST_ROOT
  value: /host
- name: GPUDECK_HOST_ROOT_ON_NODE
  value: {{ .Values.hostRoot | quote }}
{{- end }}

{{/* Both probes ask for the same page: a process that is not well is restarted. */}}
{{- define "gpudeck.probes" -}}
ports:
  - name: health
    containerPort: 8080
  - name: metrics
    containerPort: 8443
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/*
What places and pulls a pod; the arguments are the root, the values of the workload and a map of
node labels that the workload always wants.
*/}}
{{- define "gpudeck.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) (index . 2) (default dict $values.nodeSelector) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
