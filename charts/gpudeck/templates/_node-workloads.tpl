{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* The templates of which gpu-controller makes the DaemonSets of each node group. */}}

{{/* Which config a node follows; a group sets these anew. */}}
{{- define "gpudeck.groupEnvironment" -}}
- name: GPUDECK_CONFIG_MAP
  value: {{ .Values.devicePlugin.config.name | quote }}
- name: GPUDECK_DEFAULT_CONFIG
  value: {{ .Values.devicePlugin.config.default | quote }}
- name: GPUDECK_GROUP_CONFIG_MAP
  value: ""
- name: GPUDECK_CONFIG_FALLBACK
  value: named,empty
- name: GPUDECK_MIG_STRATEGY
  value: {{ .Values.mig.strategy }}
{{- end }}

{{/*
Keeps a workload off nodes where an administrator or nvidia-mig-manager has it stand back; the
argument is the name of the workload in the label.
*/}}
{{- define "gpudeck.notPaused" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - {key: nvidia.com/gpu.deploy.{{ . }}, operator: NotIn, values: ["false", paused-for-mig-change]}
{{- end }}

{{- define "gpudeck.nvidiaDevicePlugin" -}}
{{- $labels := list . "nvidia-device-plugin" }}
{{- $values := .Values.devicePlugin }}
{{- $plugins := printf "%s/device-plugins" .Values.kubeletRoot }}
{{- $state := printf "%s/plugins/gpu.deckhouse.io" .Values.kubeletRoot }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: nvidia-device-plugin
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "gpudeck.labels" $labels | nindent 4 }}
    app: nvidia-device-plugin
spec:
  selector:
    matchLabels: {{- include "gpudeck.selector" $labels | nindent 6 }}
  updateStrategy:
    # Two plugins of a node would serve the kubelet under the same names.
    type: RollingUpdate
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
  template:
    metadata:
      labels:
        {{- include "gpudeck.labels" $labels | nindent 8 }}
        app: nvidia-device-plugin
    spec:
      serviceAccountName: nvidia-device-plugin
      automountServiceAccountToken: true
      {{- include "gpudeck.placement" (list . $values (dict "gpu.deckhouse.io/vendor" "nvidia" "gpu.deckhouse.io/active-mode" "device-plugin")) | trim | nindent 6 }}
      affinity: {{- include "gpudeck.notPaused" "device-plugin" | nindent 8 }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: nvidia-device-plugin-ctr
          image: {{ include "gpudeck.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command: [gpudeck, device-plugin]
          env:
            {{- include "gpudeck.environment" . | nindent 12 }}
            {{- include "gpudeck.nodeEnvironment" . | nindent 12 }}
            - name: GPUDECK_NAMESPACE
              valueFrom:
                fieldRef: {fieldPath: metadata.namespace}
            {{- include "gpudeck.groupEnvironment" . | nindent 12 }}
            - name: GPUDECK_PLUGINS_DIR
              value: {{ $plugins }}
            - name: GPUDECK_POD_RESOURCES
              value: {{ .Values.kubeletRoot }}/pod-resources/kubelet.sock
            - name: GPUDECK_DATA_DIR
              value: {{ $state }}
            - name: GPUDECK_CDI_ROOT
              value: {{ .Values.cdiRoot }}
            {{- range $values.env }}
            - name: {{ .name }}
              value: {{ .value | quote }}
            {{- end }}
          {{- include "gpudeck.probes" . | nindent 10 }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            # The maker's library, in a child of the process, opens the device nodes.
            privileged: true
            runAsUser: 0
            readOnlyRootFilesystem: true
          volumeMounts:
            # At the same paths as on the node: kubelet and container runtime are told them.
            - {name: plugins, mountPath: {{ $plugins }}}
            - {name: pod-resources, mountPath: {{ .Values.kubeletRoot }}/pod-resources, readOnly: true}
            - {name: state, mountPath: {{ $state }}}
            - {name: cdi, mountPath: {{ .Values.cdiRoot }}}
            - {name: host, mountPath: /host, mountPropagation: HostToContainer}
            - {name: devices, mountPath: /dev}
      volumes:
        # Folders, since the kubelet makes its sockets anew at each start.
        - name: plugins
          hostPath: {path: {{ $plugins }}, type: DirectoryOrCreate}
        - name: pod-resources
          hostPath: {path: {{ .Values.kubeletRoot }}/pod-resources, type: DirectoryOrCreate}
        - name: state
          hostPath: {path: {{ $state }}, type: DirectoryOrCreate}
        - name: cdi
          hostPath: {path: {{ .Values.cdiRoot }}, type: DirectoryOrCreate}
        - name: host
          hostPath: {path: {{ .Values.hostRoot | quote }}, type: Directory}
        - name: devices
          hostPath: {path: {{ include "gpudeck.onHost" (list .Values.hostRoot "dev") }}, type: Directory}
{{- end }}

{{- define "gpudeck.gpuFeatureDiscovery" -}}
{{- $labels := list . "gpu-feature-discovery" }}
{{- $values := .Values.gpuFeatureDiscovery }}
{{- $state := printf "%s/plugins/gpu.deckhouse.io" .Values.kubeletRoot }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: gpu-feature-discovery
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "gpudeck.labels" $labels | nindent 4 }}
    app: gpu-feature-discovery
spec:
  selector:
    matchLabels: {{- include "gpudeck.selector" $labels | nindent 6 }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 10%}
  template:
    metadata:
      labels:
        {{- include "gpudeck.labels" $labels | nindent 8 }}
        app: gpu-feature-discovery
    spec:
      serviceAccountName: nvidia-gpu-feature-discovery
      automountServiceAccountToken: true
      {{- include "gpudeck.placement" (list . $values (dict "gpu.deckhouse.io/vendor" "nvidia")) | trim | nindent 6 }}
      affinity: {{- include "gpudeck.notPaused" "gpu-feature-discovery" | nindent 8 }}
      containers:
        - name: gpu-feature-discovery-ctr
          image: {{ include "gpudeck.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command: [gpudeck, gfd]
          env:
            {{- include "gpudeck.environment" . | nindent 12 }}
            {{- include "gpudeck.nodeEnvironment" . | nindent 12 }}
            - name: GPUDECK_NAMESPACE
              valueFrom:
                fieldRef: {fieldPath: metadata.namespace}
            - name: GPUDECK_POD_NAME
              valueFrom:
                fieldRef: {fieldPath: metadata.name}
            {{- include "gpudeck.groupEnvironment" . | nindent 12 }}
            - name: GPUDECK_USE_NODE_FEATURE_API
              value: "true"
            - name: GPUDECK_PLUGIN_STATE
              value: {{ $state }}/device-plugin.json
          {{- include "gpudeck.probes" . | nindent 10 }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            # The maker's library, in a child of the process, opens the device nodes.
            privileged: true
            runAsUser: 0
            readOnlyRootFilesystem: true
          volumeMounts:
            - {name: host, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
            - {name: devices, mountPath: /dev}
            - {name: state, mountPath: {{ $state }}, readOnly: true}
      volumes:
        # The config that the device plugin follows, while the one that was chosen is wrong.
        - name: state
          hostPath: {path: {{ $state }}, type: DirectoryOrCreate}
        - name: host
          hostPath: {path: {{ .Values.hostRoot | quote }}, type: Directory}
        - name: devices
          hostPath: {path: {{ include "gpudeck.onHost" (list .Values.hostRoot "dev") }}, type: Directory}
{{- end }}
