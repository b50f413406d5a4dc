{{/* The names and labels that the objects of a release share. */}}

{{- define "tidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters: suffixes follow, and a Pod's name must fit a label. */}}
{{- define "tidegate.fullname" -}}
{{- $name := include "tidegate.name" . }}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $both .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "tidegate.serviceAccountName" -}}
{{- default (ternary (include "tidegate.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "tidegate.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The operator's image with Java and Spark on top of it has its name and tag, and a digest of its own. */}}
{{- define "tidegate.rollupImage" -}}
{{- with .Values.image }}
{{- $.Values.rollup.image | default (printf "%s-rollup:%s" .repository (.tag | default $.Chart.AppVersion)) }}
{{- end }}
{{- end }}

{{/* The operator's image with confluent-kafka on top of it, named likewise. */}}
{{- define "tidegate.forwarderImage" -}}
{{- with .Values.image }}
{{- $.Values.delayQueues.image | default (printf "%s-forwarder:%s" .repository (.tag | default $.Chart.AppVersion)) }}
{{- end }}
{{- end }}

{{- define "tidegate.releaseLabels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The operator's Pods, and not that of the test. */}}
{{- define "tidegate.selectorLabels" -}}
{{ include "tidegate.releaseLabels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{/* The console's Pod. */}}
{{- define "tidegate.consoleLabels" -}}
{{ include "tidegate.releaseLabels" . }}
app.kubernetes.io/component: console
{{- end }}

{{/* Pods of rollup Jobs and of their executors; the operator makes them, so no release is named. */}}
{{- define "tidegate.rollupLabels" -}}
app.kubernetes.io/component: rollup
app.kubernetes.io/managed-by: tidegate
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidegate.auditClaim" -}}
{{- .Values.operator.auditVolume.claim | default (printf "%s-audit" (include "tidegate.fullname" .)) }}
{{- end }}

{{- /* Of a Pod without a volume that it may write: the default group of files is for such a volume alone, and a platform
may refuse it (OpenShift does). One that you chose stays. */}}
{{- define "tidegate.podSecurityContext" -}}
{{- $context := deepCopy (default dict .context) }}
{{- if and (not .writesVolume) (eq (toString $context.fsGroup) "65532") }}
{{- $context = omit $context "fsGroup" "fsGroupChangePolicy" }}
{{- end }}
{{- toYaml $context }}
{{- end }}
