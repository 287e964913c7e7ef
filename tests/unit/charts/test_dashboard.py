"""The chart's dashboard: off by default, with the right to review tokens and no other one."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from kqueue.cli.app import build
from tests.unit.charts.rendering import NAMESPACE, Object, objects, one

NAME = "kqueue-dashboard"


def dashboard(**values: Any) -> list[Object]:
    """Return all objects of a chart with the dashboard."""
    return objects({"dashboard": {"enable": True, **values}})


def test_it_is_off_by_default() -> None:
    """No object, and no right."""
    assert [o["kind"] for o in objects() if o["metadata"]["name"] == NAME] == []


def test_its_account_reviews_tokens_and_nothing_else() -> None:
    """No other role is bound to it, and no other pod has it."""
    made = dashboard()
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    bound = [o["roleRef"]["name"] for o in made if account in (o.get("subjects") or ())]
    pods = [o for o in made if o["kind"] in ("Deployment", "Job")]

    assert bound == [NAME]
    assert one(made, "ClusterRole", NAME)["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    users = [o["metadata"]["name"] for o in pods if o["spec"]["template"]["spec"]["serviceAccountName"] == NAME]
    assert users == [NAME]


WAYS: list[tuple[Object, list[str], dict[str, Any]]] = [
    ({}, [], {"name": "https", "port": 443, "targetPort": "page"}),
    ({"certificateSecret": "tls"}, ["tls"], {"name": "https", "port": 443, "targetPort": "page"}),
    ({"plainHTTP": True}, [], {"name": "http", "port": 80, "targetPort": "page"}),
]


@pytest.mark.parametrize(("values", "secrets", "port"), WAYS, ids=["own certificate", "Secret", "plain HTTP"])
def test_browsers_reach_it_by_tls_unless_told_otherwise(
    values: Object, secrets: list[str], port: dict[str, Any]
) -> None:
    """The command takes its arguments, and the Service leads to its port."""
    made = dashboard(**values)
    pod = one(made, "Deployment", NAME)["spec"]["template"]["spec"]
    name, *arguments = pod["containers"][0]["args"]
    command: Any = typer.main.get_command(build())
    given = command.commands[name].make_context(name, arguments).params

    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == secrets
    assert (given["serve"], given["plain_http"], given["cert_dir"] is not None) == (
        ":8444",
        values.get("plainHTTP", False),
        bool(secrets),
    )
    assert one(made, "Service", NAME)["spec"]["ports"] == [port]


def test_cert_manager_makes_its_certificate() -> None:
    """For the name of its Service; the pod mounts that Secret."""
    made = objects({"dashboard": {"enable": True}, "certManager": {"enable": True}})
    certificate = one(made, "Certificate", NAME)["spec"]
    pod = one(made, "Deployment", NAME)["spec"]["template"]["spec"]

    assert certificate["dnsNames"] == [f"{NAME}.{NAMESPACE}.svc"]
    assert certificate["secretName"] == "kqueue-dashboard-cert"
    assert {"name": "certificates", "secret": {"secretName": "kqueue-dashboard-cert"}} in pod["volumes"]


def test_its_network_is_as_closed_as_that_of_the_controller() -> None:
    """In: the page and the probes.  Out: DNS and the API server.  Selectors of the controller do not take its pod."""
    peers = [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]
    made = dashboard(**{"from": peers})
    policy, common = (one(made, "NetworkPolicy", name)["spec"] for name in (NAME, "kqueue"))
    template = one(made, "Deployment", NAME)["spec"]["template"]
    ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    labels = template["metadata"]["labels"].items()

    assert policy["podSelector"]["matchLabels"].items() <= labels
    assert policy["egress"] == common["egress"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == ["health", "page"]
    assert sorted(ports) == ["health", "page"]
    assert policy["ingress"][1]["from"] == peers
    selectors = [o["spec"]["selector"] for o in made if o["kind"] == "Service" and o["metadata"]["name"] != NAME]
    assert not any(selector.items() <= labels for selector in [*selectors, common["podSelector"]["matchLabels"]])


def test_its_metrics_are_served_like_those_of_the_controller() -> None:
    """By TLS, to users that may get /metrics, from the same peers, found by the same ServiceMonitor."""
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    values: Object = {
        "dashboard": {"enable": True, "metrics": True},
        "networkPolicy": {"enable": True, "metricsFrom": peers},
        "monitoring": {"serviceMonitor": True},
    }
    made = objects(values)
    template = one(made, "Deployment", NAME)["spec"]["template"]
    name, *arguments = template["spec"]["containers"][0]["args"]
    command: Any = typer.main.get_command(build())
    given = command.commands[name].make_context(name, arguments).params
    service, theirs = (one(made, "Service", each) for each in (f"{NAME}-metrics", "kqueue-metrics"))
    wanted = one(made, "ServiceMonitor", "kqueue")["spec"]["selector"]["matchLabels"].items()
    policy = one(made, "NetworkPolicy", NAME)["spec"]["ingress"]
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}

    assert (given["metrics_address"], given["metrics_secure"]) == (":8443", True)
    assert service["spec"]["ports"] == theirs["spec"]["ports"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert [rule["from"] for rule in policy if rule["ports"][0]["port"] == "metrics"] == [peers]
    bound = [o["roleRef"]["name"] for o in made if account in (o.get("subjects") or ())]
    assert bound == [NAME, "kqueue-metrics-access"]
