"""MultiKueueCluster in v1beta1: both sources of credentials side by side."""

from __future__ import annotations

from kqueue.api.v1beta1.editing import OlderKind, Schema, at, loosen, require, unlimited_conditions


def _edit(schema: Schema) -> None:
    unlimited_conditions(schema)
    spec = at(schema, "spec")
    sources = at(spec, "clusterSource")["properties"]
    spec["properties"] = {
        "kubeConfig": sources["kubeConfig"],
        "clusterProfileRef": sources["clusterProfileRef"],
    }
    spec["required"] = ["kubeConfig"]
    loosen(schema, "spec.kubeConfig.location", "minLength", "maxLength")
    at(schema, "spec.kubeConfig")["description"] = "A kubeconfig; an empty location means that there is none."
    require(schema, "spec.kubeConfig", "locationType")


MULTIKUEUE_CLUSTER = OlderKind(kind="MultiKueueCluster", edit=_edit, converts=True)
