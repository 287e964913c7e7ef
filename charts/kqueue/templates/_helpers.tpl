{{/* Labels of everything.  `component` is controller, webhook, dashboard, uninstall, preflight or test. */}}
{{- define "kqueue.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: kqueue
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Prefix of the names of kqueue's objects.  Names that other programs know (the Services, the Secrets, the webhook
configurations, the Lease, roles for users) stay as they are. */}}
{{- define "kqueue.fullname" -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default "kqueue" }}
{{- end }}

{{/* Labels that select the pods of one component: (list $ "webhook"). */}}
{{- define "kqueue.selector" -}}
app.kubernetes.io/name: kqueue
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "kqueue.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Fails with a message if the configuration sets a field that the chart fills in, or an unknown field. */}}
{{- define "kqueue.checked" -}}
{{- $given := .Values.configuration -}}
{{- $known := list "leaderElection" "health" "metrics" "controller" "clientConnection" "tls" "manageJobsWithoutQueueName"
  "managedJobsNamespaceSelector" "waitForPodsReady" "integrations" "multiKueue" "fairSharing" "admissionFairSharing"
  "resources" "objectRetentionPolicies" "tas" "gangs" "joint" "nodeClasses" "runTimes" "startTimes" "decisionRecord" "plugins" "preemption" "admissionChecks"
  "featureGates" -}}
{{- $filled := list "apiVersion" "kind" "namespace" "webhook" "internalCertManagement" "visibilityServer"
  "pprofBindAddress" -}}
{{- range $key, $_ := $given -}}
  {{- if has $key $filled -}}
    {{- fail (printf "configuration.%s: the chart fills this in, so that it fits its other objects; leave it out" $key) -}}
  {{- else if not (has $key $known) -}}
    {{- fail (printf "configuration.%s: unknown; known are %s" $key (join ", " $known)) -}}
  {{- end -}}
{{- end -}}
{{- range $path := list "health.healthProbeBindAddress" "metrics.bindAddress" "leaderElection.resourceNamespace" -}}
  {{- $parts := splitList "." $path -}}
  {{- if hasKey (index $given (first $parts) | default dict) (last $parts) -}}
    {{- fail (printf "configuration.%s: the chart fills this in, so that it fits its other objects; leave it out" $path) -}}
  {{- end -}}
{{- end -}}
{{- $election := $given.leaderElection | default dict -}}
{{- if and (hasKey $election "leaderElect") (not $election.leaderElect) (gt (int .Values.controller.replicas) 1) -}}
  {{- fail "configuration.leaderElection.leaderElect: must not be false with controller.replicas above 1: all of them would decide" -}}
{{- end -}}
{{- end }}

{{/* The configuration file, as text, with the fields that must match the chart's objects. */}}
{{- define "kqueue.configuration" -}}
{{- $ours := dict "apiVersion" "config.kueue.x-k8s.io/v1beta2" "kind" "Configuration" "namespace" .Release.Namespace -}}
{{- $webhook := dict -}}
{{- if .Values.certManager.enable -}}
{{- $_ := set $ours "internalCertManagement" (dict "enable" false) -}}
{{- $_ := set $webhook "certDir" "/etc/kqueue/certificates" -}}
{{- end -}}
{{- if not (include "kqueue.registers" .) -}}
{{- $_ := set $webhook "registerWebhooks" false -}}
{{- end -}}
{{- if $webhook -}}
{{- $_ := set $ours "webhook" $webhook -}}
{{- end -}}
{{- $gates := include "kqueue.gates" . | fromJson -}}
{{- if $gates -}}
{{- $_ := set $ours "featureGates" $gates -}}
{{- end -}}
{{ merge $ours .Values.configuration | toYaml }}
{{- end }}

{{/* Enabled frameworks, as JSON: {"list": [...]}. */}}
{{- define "kqueue.frameworks" -}}
{{- $integrations := .Values.configuration.integrations | default dict -}}
{{ dict "list" ($integrations.frameworks | default (list "batch/job")) | toJson }}
{{- end }}

{{/* Controllers of AdmissionChecks that run in kqueue, as JSON: {"list": [...]}. */}}
{{- define "kqueue.checkControllers" -}}
{{- $checks := .Values.configuration.admissionChecks | default dict -}}
{{- $all := list "kueue.x-k8s.io/provisioning-request" -}}
{{ dict "list" (ternary $checks.controllers $all (hasKey $checks "controllers")) | toJson }}
{{- end }}

{{/* Feature gates of the list and of the configuration, as JSON. */}}
{{- define "kqueue.gates" -}}
{{- $gates := deepCopy (.Values.configuration.featureGates | default dict) -}}
{{- range .Values.featureGates -}}
  {{- if hasKey $gates .name -}}
    {{- fail (printf "featureGates: %s is given twice (in the list, or in configuration.featureGates); leave one out" .name) -}}
  {{- end -}}
  {{- $_ := set $gates .name .enabled -}}
{{- end -}}
{{ toJson $gates }}
{{- end }}

{{/* "true" if worker clusters may be named by ClusterProfiles, else empty. */}}
{{- define "kqueue.clusterProfiles" -}}
{{- $gates := include "kqueue.gates" . | fromJson -}}
{{- $all := ternary (index $gates "AllAlpha") false (hasKey $gates "AllAlpha") -}}
{{- if ternary $gates.MultiKueueClusterProfile $all (hasKey $gates "MultiKueueClusterProfile") -}}true{{- end -}}
{{- end }}

{{/* "true" if the visibility API is served, else empty. */}}
{{- define "kqueue.visibility" -}}
{{- $gates := include "kqueue.gates" . | fromJson -}}
{{- $all := ternary (index $gates "AllBeta") true (hasKey $gates "AllBeta") -}}
{{- if ternary $gates.VisibilityOnDemand $all (hasKey $gates "VisibilityOnDemand") -}}true{{- end -}}
{{- end }}

{{/* "true" if claimed devices count as quota, else empty. */}}
{{- define "kqueue.devices" -}}
{{- $gates := include "kqueue.gates" . | fromJson -}}
{{- $all := ternary (index $gates "AllBeta") true (hasKey $gates "AllBeta") -}}
{{- $on := ternary $gates.KueueDRAIntegration $all (hasKey $gates "KueueDRAIntegration") -}}
{{- if and $on (.Values.configuration.resources | default dict).deviceClassMappings -}}true{{- end -}}
{{- end }}

{{/* "true" if workloads may be planned jointly, else empty. */}}
{{- define "kqueue.joint" -}}
{{- $gates := include "kqueue.gates" . | fromJson -}}
{{- $all := ternary (index $gates "AllAlpha") false (hasKey $gates "AllAlpha") -}}
{{- if ternary $gates.JointPlacement $all (hasKey $gates "JointPlacement") -}}true{{- end -}}
{{- end }}

{{/* APIServices, the preferred version of a group first. */}}
{{- define "kqueue.apis" -}}
v1beta2.visibility.kueue.x-k8s.io, v1beta1.visibility.kueue.x-k8s.io, v1alpha1.visibility.kqueue.dev
{{- end }}

{{/* "true" if the webhooks manage their configurations, else empty; values of an older chart lack the field. */}}
{{- define "kqueue.registers" -}}
{{- if not (and (hasKey .Values.webhook "register") (not .Values.webhook.register)) -}}true{{- end -}}
{{- end }}

{{/* The definitions that name the conversion webhook. */}}
{{- define "kqueue.converted" -}}
clusterqueues.kueue.x-k8s.io, cohorts.kueue.x-k8s.io, localqueues.kueue.x-k8s.io, multikueueclusters.kueue.x-k8s.io, workloads.kueue.x-k8s.io
{{- end }}

{{- define "kqueue.lease" -}}
{{ (.Values.configuration.leaderElection | default dict).resourceName | default "c1f6bfd2.kueue.x-k8s.io" }}
{{- end }}

{{/* The common part of all pod specs: (list $ "controller"). */}}
{{- define "kqueue.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "kqueue.fullname" $root }}-{{ index . 1 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $root.Values.priorityClassName (not (has (index . 1) (list "preflight" "dashboard"))) }}{{/* the preflight's ResourceQuota is not there yet; no decision waits for the dashboard */}}
priorityClassName: {{ $root.Values.priorityClassName }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "kqueue.container" -}}
image: {{ include "kqueue.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Constraints of the values, else replicas on hosts and in zones of their own where there are any: (list $ "webhook").
One without a selector gets that of the component. */}}
{{- define "kqueue.spread" -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (include "kqueue.selector" . | fromYaml)) -}}
{{- $given := (index . 0).Values.topologySpreadConstraints | default list -}}
{{- if not $given -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $given = append $given (dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- end -}}
{{- range $given }}
- {{ ternary . (merge (deepCopy .) $ours) (hasKey . "labelSelector") | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/* Probes of one component, with its settings: (list $ "webhook").  `helm upgrade --reuse-values` brings values of an
older chart, which have none. */}}
{{- define "kqueue.probes" -}}
{{- $root := index . 0 -}}
{{- $settings := index $root.Values (index . 1) -}}
{{- $health := $root.Values.configuration.health | default dict -}}
{{ include "kqueue.probesAt" (list $settings ($health.livenessEndpointName | default "/healthz") ($health.readinessEndpointName | default "/readyz")) }}
{{- end }}

{{/* Probes with the settings of one component, and the paths of liveness and readiness. */}}
{{- define "kqueue.probesAt" -}}
{{- $settings := index . 0 -}}
livenessProbe:
  httpGet: {path: {{ index . 1 }}, port: health}
  {{- toYaml ($settings.livenessProbe | default (dict "initialDelaySeconds" 15 "periodSeconds" 20 "timeoutSeconds" 5)) | nindent 2 }}
readinessProbe:
  httpGet: {path: {{ index . 2 }}, port: health}
  {{- toYaml ($settings.readinessProbe | default (dict "periodSeconds" 5 "timeoutSeconds" 3)) | nindent 2 }}
{{- end }}

{{/* What pods may reach, as an egress rule: DNS and the API server. */}}
{{- define "kqueue.asked" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}

{{/* Labels that select the pod of the dashboard. */}}
{{- define "kqueue.dashboardSelector" -}}
app.kubernetes.io/name: kqueue-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Kinds that kqueue reads to follow the owners of jobs, enabled or not: group, plural. */}}
{{- define "kqueue.owners" -}}
{{ include "kqueue.followedKinds" . }}
{{- $integrations := .Values.configuration.integrations | default dict }}
{{- range $integrations.externalFrameworks }}
{{- $parts := splitn "." 3 . }}
- apiGroups: [{{ $parts._2 }}]
  resources: [{{ lower $parts._0 }}s]
  verbs: [get]
{{- end }}
{{- range $integrations.declaredKinds }}
- apiGroups: [{{ dir .apiVersion }}]
  resources: [{{ .resource | default (printf "%ss" (lower .kind)) }}]
  verbs: [get]
{{- end }}
{{- end }}

{{/* A ClusterRoleBinding or RoleBinding's ends: (list $ "ClusterRole" "kqueue-webhook" "webhook"). */}}
{{- define "kqueue.binds" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ index . 2 | replace "kqueue-" (printf "%s-" (include "kqueue.fullname" (index . 0))) }}
subjects:
  - kind: ServiceAccount
    name: {{ include "kqueue.fullname" (index . 0) }}-{{ index . 3 }}
    namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{/* Annotations of objects that exist only while a hook runs: (list "pre-delete" "-2") with the event and the weight.
*/}}
{{- define "kqueue.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
