{{/* Written by `make reference` from kqueue/kinds.py; do not edit. */}}

{{/* Kinds that kqueue reads to follow the owners of jobs, enabled or not. */}}
{{- define "kqueue.followedKinds" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments, statefulsets, replicasets]
  verbs: [get]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: [get]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get]
- apiGroups: [ray.io]
  resources: [rayjobs, rayclusters, rayservices]
  verbs: [get]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [get]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get]
{{- end }}

{{/* Kinds whose labelled objects are counted if the kind is disabled. */}}
{{- define "kqueue.countedKinds" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [list]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: [list]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [list]
- apiGroups: [ray.io]
  resources: [rayjobs, rayclusters, rayservices]
  verbs: [list]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [list]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [list]
{{- end }}

{{/* Rights for objects of enabled kinds: (dict "frameworks" list "deletes" bool). */}}
{{- define "kqueue.queuedKinds" -}}
{{- if has "batch/job" .frameworks }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [batch]
  resources: [jobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "jobset.x-k8s.io/jobset" .frameworks }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets/finalizers]
  verbs: [update]
{{- end }}
{{- if or (has "pod" .frameworks) (has "deployment" .frameworks) (has "statefulset" .frameworks) (has "leaderworkerset.x-k8s.io/leaderworkerset" .frameworks) (has "scheduling.k8s.io/podgroup" .frameworks) (has "scheduling.x-k8s.io/podgroup" .frameworks) (has "kqueue.dev/coscheduling-labels" .frameworks) (has "scheduling.volcano.sh/podgroup" .frameworks) (has "kqueue.dev/batchprocess" .frameworks) }}
- apiGroups: [""]
  resources: [pods/finalizers]
  verbs: [update]
{{- end }}
{{- if has "statefulset" .frameworks }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [statefulsets/finalizers]
  verbs: [update]
{{- end }}
{{- if has "leaderworkerset.x-k8s.io/leaderworkerset" .frameworks }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/pytorchjob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/tfjob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [tfjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/xgboostjob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/paddlejob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [paddlejobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [paddlejobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/jaxjob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [jaxjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [jaxjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kubeflow.org/mpijob" .frameworks }}
- apiGroups: [kubeflow.org]
  resources: [mpijobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [kubeflow.org]
  resources: [mpijobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "trainer.kubeflow.org/trainjob" .frameworks }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [get, list, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainingruntimes]
  verbs: [get, list, watch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "ray.io/rayjob" .frameworks }}
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
- apiGroups: [ray.io]
  resources: [rayjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if has "ray.io/raycluster" .frameworks }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [ray.io]
  resources: [rayclusters/finalizers]
  verbs: [update]
{{- end }}
{{- if has "ray.io/rayservice" .frameworks }}
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
- apiGroups: [ray.io]
  resources: [rayservices/finalizers]
  verbs: [update]
{{- end }}
{{- if has "workload.codeflare.dev/appwrapper" .frameworks }}
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers/finalizers]
  verbs: [update]
{{- end }}
{{- if has "sparkoperator.k8s.io/sparkapplication" .frameworks }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, watch, patch{{ if .deletes }}, delete{{ end }}]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications/finalizers]
  verbs: [update]
{{- end }}
{{- end }}

{{/* Rights of the controller for group objects of enabled gang dialects: (dict "frameworks" list). */}}
{{- define "kqueue.groupObjects" -}}
{{- if has "scheduling.k8s.io/podgroup" .frameworks }}
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups/finalizers]
  verbs: [update]
{{- end }}
{{- if has "scheduling.x-k8s.io/podgroup" .frameworks }}
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch]
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups/status]
  verbs: [patch]
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups/finalizers]
  verbs: [update]
{{- end }}
{{- if has "scheduling.volcano.sh/podgroup" .frameworks }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch]
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups/status]
  verbs: [patch]
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups/finalizers]
  verbs: [update]
{{- end }}
{{- if has "kqueue.dev/batchprocess" .frameworks }}
- apiGroups: [kqueue.dev]
  resources: [batchprocesses]
  verbs: [get, list, watch]
- apiGroups: [kqueue.dev]
  resources: [batchprocesses]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [create]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create]
- apiGroups: [workspace.brainpp.cn]
  resources: [batchprocesses]
  verbs: [get, list, watch, delete]
- apiGroups: [workspace.brainpp.cn]
  resources: [batchprocesses/status]
  verbs: [patch]
- apiGroups: [workspace.brainpp.cn]
  resources: [batchprocesses/finalizers]
  verbs: [update]
- apiGroups: [kqueue.dev]
  resources: [batchprocesses/status]
  verbs: [patch]
- apiGroups: [kqueue.dev]
  resources: [batchprocesses/finalizers]
  verbs: [update]
{{- end }}
{{- end }}

{{/* Group objects that webhooks look up for the queue of a gang: (dict "frameworks" list). */}}
{{- define "kqueue.readGroupObjects" -}}
{{- if has "scheduling.k8s.io/podgroup" .frameworks }}
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get]
{{- end }}
{{- if has "scheduling.x-k8s.io/podgroup" .frameworks }}
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [get]
{{- end }}
{{- if has "scheduling.volcano.sh/podgroup" .frameworks }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get]
{{- end }}
{{- if has "kqueue.dev/batchprocess" .frameworks }}
- apiGroups: [kqueue.dev]
  resources: [batchprocesses]
  verbs: [get]
{{- end }}
{{- end }}

{{/* Objects that jobs of enabled kinds refer to, for webhooks: (dict "frameworks" list). */}}
{{- define "kqueue.readOthers" -}}
{{- if has "trainer.kubeflow.org/trainjob" .frameworks }}
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [get]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainingruntimes]
  verbs: [get]
{{- end }}
{{- if has "ray.io/rayjob" .frameworks }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get]
{{- end }}
{{- if has "ray.io/rayservice" .frameworks }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get]
{{- end }}
{{- end }}

{{/* Kinds whose objects are searched for leftovers before kqueue is removed. */}}
{{- define "kqueue.startedKinds" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, patch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, patch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [xgboostjobs]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [paddlejobs]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [jaxjobs]
  verbs: [list]
- apiGroups: [kubeflow.org]
  resources: [mpijobs]
  verbs: [list]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [list]
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [list]
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [list]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [list]
- apiGroups: [workload.codeflare.dev]
  resources: [appwrappers]
  verbs: [list]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [list]
{{- end }}

{{/* Roles of users, as JSON: path of the kind, and viewers as in user-roles.yaml. */}}
{{- define "kqueue.kindRoles" -}}
{
  "job": {
    "path": "batch/jobs",
    "viewers": "buva"
  },
  "jobset": {
    "path": "jobset.x-k8s.io/jobsets",
    "viewers": "buva"
  },
  "leaderworkerset": {
    "path": "leaderworkerset.x-k8s.io/leaderworkersets",
    "viewers": "buva"
  },
  "pytorchjob": {
    "path": "kubeflow.org/pytorchjobs",
    "viewers": "buva"
  },
  "tfjob": {
    "path": "kubeflow.org/tfjobs",
    "viewers": "buva"
  },
  "xgboostjob": {
    "path": "kubeflow.org/xgboostjobs",
    "viewers": "buva"
  },
  "paddlejob": {
    "path": "kubeflow.org/paddlejobs",
    "viewers": "buva"
  },
  "jaxjob": {
    "path": "kubeflow.org/jaxjobs",
    "viewers": "buva"
  },
  "mpijob": {
    "path": "kubeflow.org/mpijobs",
    "viewers": "buva"
  },
  "trainjob": {
    "path": "trainer.kubeflow.org/trainjobs",
    "viewers": "buva"
  },
  "rayjob": {
    "path": "ray.io/rayjobs",
    "viewers": "buva"
  },
  "raycluster": {
    "path": "ray.io/rayclusters",
    "viewers": "bva"
  },
  "rayservice": {
    "path": "ray.io/rayservices",
    "viewers": "bva"
  },
  "sparkapplication": {
    "path": "sparkoperator.k8s.io/sparkapplications",
    "viewers": "buva"
  },
  "podgroup": {
    "path": "scheduling.k8s.io, scheduling.x-k8s.io, scheduling.volcano.sh/podgroups",
    "viewers": "buva"
  },
  "batchprocess": {
    "path": "kqueue.dev/batchprocesses",
    "viewers": "buva"
  }
}
{{- end }}
