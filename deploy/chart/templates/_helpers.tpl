{{/* Where the parts' image is. */}}
{{- define "slacktide.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* A kube-scheduler of the cluster's own version. */}}
{{- define "slacktide.kubeScheduler" -}}
{{- with .Values.scheduler.kubeScheduler -}}
{{ .repository }}:{{ .tag | default (regexReplaceAll "[-+].*" $.Capabilities.KubeVersion.Version "") }}
{{- end }}
{{- end }}

{{/* Where Kafka is. */}}
{{- define "slacktide.bootstrap" -}}
{{- if not .Values.kafka.embedded -}}
{{ required "kafka.bootstrap is empty: set Kafka's address, such as kafka-bootstrap.kafka.svc:9093" .Values.kafka.bootstrap }}
{{- else if .Values.kafka.bootstrap -}}
{{ fail "kafka.embedded installs a Kafka of its own: leave kafka.bootstrap empty, or set kafka.embedded to false" }}
{{- else -}}
slacktide-kafka.slacktide-system.svc:9092
{{- end }}
{{- end }}

{{/* How many pods a part has; of a list of root and the part's values. An evaluation has one of each. */}}
{{- define "slacktide.replicas" -}}
{{ if (index . 0).Values.kafka.embedded }}1{{ else }}{{ (index . 1).replicas }}{{ end }}
{{- end }}

{{/* A container's resources; of a list of root and its values. In an evaluation it requests at most 50m of CPU, so that
all of it fits on a node of two CPUs, beside a cluster's own pods and the examples. */}}
{{- define "slacktide.resources" -}}
{{- $resources := deepCopy ((index . 1).resources | default dict) }}
{{- $cpu := dig "requests" "cpu" "" $resources }}
{{- if and (index . 0).Values.kafka.embedded $cpu (gt (float64 (include "slacktide.amount" $cpu)) 0.05) }}
{{- $_ := set $resources.requests "cpu" "50m" }}
{{- end }}
{{- toJson $resources }}
{{- end }}

{{/* Whether parts log in to Kafka, as "true" or "". The embedded one knows no login. */}}
{{- define "slacktide.secured" -}}
{{ if and .Values.kafka.secured (not .Values.kafka.embedded) }}true{{ end }}
{{- end }}

{{/* Whether Kafka can be there before this installation or upgrade, as "true" or "": the embedded one comes with it. */}}
{{- define "slacktide.kafkaBefore" -}}
{{ if or (not .Values.kafka.embedded) (lookup "apps/v1" "StatefulSet" "slacktide-system" "slacktide-kafka") }}true{{ end }}
{{- end }}

{{/* Whether kubelets list their pods only to who may get nodes/proxy. */}}
{{- define "slacktide.kubeletProxy" -}}
{{- if eq .Values.kubelet.access "auto" -}}
{{ semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version }}
{{- else -}}
{{ eq .Values.kubelet.access "proxy" }}
{{- end }}
{{- end }}

{{/* A Kubernetes quantity as a number: cores or bytes. */}}
{{- define "slacktide.amount" -}}
{{- $unit := regexFind "[A-Za-z]+$" (toString .) }}
{{- $metric := dict "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 }}
{{- $binary := dict "Ki" 0x1p10 "Mi" 0x1p20 "Gi" 0x1p30 "Ti" 0x1p40 "Pi" 0x1p50 "Ei" 0x1p60 }}
{{- mulf (float64 (trimSuffix $unit (toString .))) (get (merge $metric $binary) $unit | default 1.0) }}
{{- end }}

{{/* What `slacktide doctor --cluster` reads. */}}
{{- define "slacktide.doctorRules" -}}
rules:
- {apiGroups: [""], resources: [nodes, pods, namespaces, resourcequotas, limitranges], verbs: [list]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [slo-controller-config], verbs: [get]}
- {apiGroups: [""], resources: [serviceaccounts], resourceNames: [slacktide-bridge], verbs: [get]}
- {apiGroups: [apps], resources: [deployments], resourceNames: [slacktide-scheduler], verbs: [get]}
- {apiGroups: [apps], resources: [daemonsets], resourceNames: [slacktide-agent], verbs: [get]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], resourceNames: [slacktide-bridge], verbs: [get]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], resourceNames: [nodeslos.slo.koordinator.sh], verbs: [get]}
- {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], resourceNames: [koordinator-mutating-webhook-configuration], verbs: [get]}
{{- end }}

{{/* A pod that looks, as a hook; of a dict with root and command, kafka where it asks Kafka, and account where it asks the
API server, and logins where it tries those of all parts. It names Kafka itself: before an installation there is no
ConfigMap yet. */}}
{{- define "slacktide.hookPod" -}}
{{- $logins := list }}
{{- if .logins }}
{{- $logins = list "agent" "bridge" "stream" "topics" "webhook" }}
{{- if .root.Values.scheduler.enabled }}
{{- $logins = append $logins "scheduler" }}
{{- end }}
{{- if .root.Values.queue.enabled }}
{{- $logins = append $logins "queue" }}
{{- end }}
{{- end -}}
restartPolicy: Never
automountServiceAccountToken: {{ hasKey . "account" }}
{{- with .account }}
serviceAccountName: {{ . }}
{{- end }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
- name: slacktide
  image: {{ include "slacktide.image" .root | quote }}
  command: {{ toJson .command }}
{{- if .kafka }}
  env:
  - {name: SLACKTIDE_BOOTSTRAP, value: {{ include "slacktide.bootstrap" .root | quote }}}
{{- end }}
{{- if include "slacktide.secured" .root }}
  - {name: SLACKTIDE_KAFKA_CONFIG, value: /etc/slacktide/kafka/kafka.conf}
{{- end }}
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 256Mi}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
{{- if include "slacktide.secured" .root }}
  volumeMounts:
  - {name: kafka, mountPath: /etc/slacktide/kafka, readOnly: true}
{{- range $logins }}
  - {name: login-{{ . }}, mountPath: /etc/slacktide/logins/{{ . }}, readOnly: true}
{{- end }}
volumes:
- name: kafka
  # If the Secret is missing, the command ends at once and names the missing file.
  secret: {secretName: slacktide-kafka-topics, defaultMode: 0440, optional: true}
{{- range $logins }}
- name: login-{{ . }}
  secret: {secretName: slacktide-kafka-{{ . }}, defaultMode: 0440, optional: true}
{{- end }}
{{- end }}
{{- end }}
