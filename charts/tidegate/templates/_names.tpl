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

{{/* An image's name in the registry of all images, where there is one: it takes the place of the host in the name. */}}
{{- define "tidegate.fromRegistry" -}}
{{- $parts := splitn "/" 2 .image }}
{{- if not .registry }}{{ .image }}
{{- else if and $parts._1 (or (regexMatch "[.:]" $parts._0) (eq $parts._0 "localhost")) }}{{ .registry }}/{{ $parts._1 }}
{{- else }}{{ .registry }}/{{ .image }}
{{- end }}
{{- end }}

{{- define "tidegate.image" -}}
{{- with .Values.image }}
{{- $name := ternary (printf "%s@%s" .repository .digest) (printf "%s:%s" .repository (.tag | default $.Chart.AppVersion)) (ne .digest "") }}
{{- include "tidegate.fromRegistry" (dict "image" $name "registry" $.Values.global.imageRegistry) }}
{{- end }}
{{- end }}

{{/* An image beside the operator's, `.part`: it has its name and tag, and a digest of its own, unless values name it. */}}
{{- define "tidegate.imageBeside" -}}
{{- with .root.Values.image }}
{{- $name := $.named | default (printf "%s-%s:%s" .repository $.part (.tag | default $.root.Chart.AppVersion)) }}
{{- include "tidegate.fromRegistry" (dict "image" $name "registry" $.root.Values.global.imageRegistry) }}
{{- end }}
{{- end }}

{{/* The operator's image with Java and Spark on top of it. */}}
{{- define "tidegate.rollupImage" -}}
{{- include "tidegate.imageBeside" (dict "root" . "part" "rollup" "named" .Values.rollup.image) }}
{{- end }}

{{/* The operator's image with confluent-kafka on top of it. */}}
{{- define "tidegate.forwarderImage" -}}
{{- include "tidegate.imageBeside" (dict "root" . "part" "forwarder" "named" .Values.delayQueues.image) }}
{{- end }}

{{/* Secrets to pull images with: this chart's, and those of the charts around it, which may be bare names. */}}
{{- define "tidegate.pullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default list }}
{{- range .Values.global.imagePullSecrets }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- uniq $secrets | toJson }}
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
