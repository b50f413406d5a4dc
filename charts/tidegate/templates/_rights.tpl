{{/* What the operator may do where it watches, and no more: the same as examples/rights/. */}}
{{- define "tidegate.rules" -}}
- apiGroups: [tidegate.io]
  resources: [brokerbandwidthpolicies, businesstiers, quotaoverrides, bandwidthbudgets]
  verbs: [get, list, watch]
# the finalizer by which a deleted policy gives its quotas back first
- apiGroups: [tidegate.io]
  resources: [brokerbandwidthpolicies]
  verbs: [patch]
- apiGroups: [tidegate.io]
  resources: [brokerbandwidthpolicies/status, businesstiers/status, quotaoverrides/status, bandwidthbudgets/status]
  verbs: [patch]
# whether a policy lets in the tiers of another namespace, by its labels; read only for policies that say Selector
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# credentials for ZooKeeper, the brokers and Prometheus; the operator uses only those with the label tidegate.io/credentials, or named here
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.rbac.secretNames }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* What it may do in its own namespace: one Lease for each policy, so that of several replicas one writes. */}}
{{- define "tidegate.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, create, update, delete]
{{- end }}

{{/* What the console may read where it looks: no Secret, and nothing that it could change. */}}
{{- define "tidegate.consoleRules" -}}
- apiGroups: [tidegate.io]
  resources: [brokerbandwidthpolicies, businesstiers, quotaoverrides{{ if .Values.delayQueues.enabled }}, delayqueues{{ end }}]
  verbs: [get, list, watch]
# what the operator reported about these
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, list, watch]
{{- end }}

{{/* Whose token a viewer sends, and what that viewer may list. */}}
{{- define "tidegate.consoleReviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* What it may do with Strimzi's KafkaUsers: the same as examples/strimzi/rights.yaml. */}}
{{- define "tidegate.strimziRules" -}}
# which quotas are Strimzi's
- apiGroups: [kafka.strimzi.io]
  resources: [kafkausers]
  verbs: [list]
{{- end }}

{{/* What it may do with DelayQueues where it watches: the same as examples/delay-queues/rights.yaml. */}}
{{- define "tidegate.queueRules" -}}
# patch is for the finalizer by which a deleted queue is drained first
- apiGroups: [tidegate.io]
  resources: [delayqueues]
  verbs: [get, list, watch, patch]
- apiGroups: [tidegate.io]
  resources: [delayqueues/status]
  verbs: [patch]
{{- end }}

{{/* What it may do for forwarders, where that is allowed and nowhere else: the same as there. */}}
{{- define "tidegate.forwarderRules" -}}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
{{- end }}

{{/* Where it watches, unless that is everywhere. */}}
{{- define "tidegate.namespaces" -}}
{{- $named := .Values.watch.namespaces }}
{{- if and $named .Values.watch.allNamespaces }}
{{- fail "watch.allNamespaces and watch.namespaces exclude each other: watch all of them, or name some" }}
{{- end }}
{{- ternary list ($named | default (list .Release.Namespace)) .Values.watch.allNamespaces | toJson }}
{{- end }}

{{- define "tidegate.subject" -}}
- kind: ServiceAccount
  name: {{ include "tidegate.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What rollup Jobs may do: read what their policy says, write down what they found, and start executors where that is allowed. */}}
{{- define "tidegate.rollupRules" -}}
- apiGroups: [tidegate.io]
  resources: [brokerbandwidthpolicies, businesstiers, quotaoverrides, bandwidthbudgets]
  verbs: [list]
# credentials for Prometheus
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.rbac.secretNames }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  verbs: [get]
# the one ConfigMap that the operator reads
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update]
{{- if .Values.rollup.executors.enabled }}
# what Spark asks for when it starts executors, and cleans up after them
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end }}
{{- end }}
