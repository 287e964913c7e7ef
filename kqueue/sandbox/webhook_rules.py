"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration: defaults and validation."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

from kqueue.sandbox import expression, failure, selectors
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.metadata import is_subdomain
from kqueue.sandbox.strategy import WriteStrategy

TIMEOUT_SECONDS = 10
HTTPS_PORT = 443
OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]


def _default(configuration: Object, *, mutating: bool) -> None:
    for webhook in configuration.get("webhooks") or ():
        for key, value in (
            ("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", TIMEOUT_SECONDS),
        ):  # fmt: skip
            webhook.setdefault(key, value)
        for key in ("namespaceSelector", "objectSelector"):
            webhook.setdefault(key, {})
        if mutating:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        if service := (webhook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", HTTPS_PORT)


def default_mutating(configuration: Object) -> None:
    """Fill defaults."""
    _default(configuration, mutating=True)


def default_validating(configuration: Object) -> None:
    """Fill defaults."""
    _default(configuration, mutating=False)


def causes(configuration: Object) -> list[Cause]:
    """Return all mistakes in a configuration."""
    found: list[Cause] = []
    seen: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        name = webhook.get("name", "")
        if not is_subdomain(name) or name.count(".") < 2:
            found.append(
                failure.invalid(
                    f"{path}.name", name, "should be a domain with at least three segments separated by dots"
                )
            )
        if name in seen:
            found.append(failure.duplicate(f"{path}.name", name))
        seen.add(name)
        found += _webhook_causes(webhook, path)
    return found


def _webhook_causes(webhook: Object, path: str) -> list[Cause]:
    found = client_causes(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    if "v1" not in (webhook.get("admissionReviewVersions") or ()):
        text = "must include at least one of v1"
        found.append(failure.required(f"{path}.admissionReviewVersions", text))
    if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
        found.append(
            failure.unsupported(f"{path}.sideEffects", webhook.get("sideEffects", ""), ["None", "NoneOnDryRun"])
        )
    if webhook["failurePolicy"] not in ("Fail", "Ignore"):
        found.append(failure.unsupported(f"{path}.failurePolicy", webhook["failurePolicy"], ["Fail", "Ignore"]))
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        found.append(
            failure.invalid(
                f"{path}.timeoutSeconds",
                webhook["timeoutSeconds"],
                "the timeout value must be between 1 and 30 seconds",
            )
        )
    for key in ("namespaceSelector", "objectSelector"):
        found += selectors.object_causes(webhook.get(key), f"{path}.{key}")
    for index, rule in enumerate(webhook.get("rules") or ()):
        found += _rule_causes(rule, f"{path}.rules[{index}]")
    for index, condition in enumerate(webhook.get("matchConditions") or ()):
        try:
            expression.compiled(condition.get("expression", ""))
        except expression.ExpressionError as error:
            found.append(
                failure.invalid(
                    f"{path}.matchConditions[{index}].expression", condition.get("expression", ""), str(error)
                )
            )
    return found


def client_causes(client: Object, path: str) -> list[Cause]:
    """Return all mistakes in the address of a webhook."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [failure.required(path, "exactly one of url or service is required")]
    found = []
    if url is not None and (urlsplit(url).scheme != "https" or not urlsplit(url).hostname):
        found.append(
            failure.invalid(
                f"{path}.url", url, "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            )
        )
    if service is not None:
        found += [failure.required(f"{path}.service.{key}") for key in ("name", "namespace") if not service.get(key)]
    try:
        base64.b64decode(client.get("caBundle", ""), validate=True)
    except binascii.Error:
        found.append(failure.invalid(f"{path}.caBundle", "...", "must be base64 of PEM certificates"))
    return found


def _rule_causes(rule: Object, path: str) -> list[Cause]:
    found = [
        failure.required(f"{path}.{key}")
        for key in ("operations", "apiGroups", "apiVersions", "resources")
        if not rule.get(key)
    ]
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in OPERATIONS:
            found.append(failure.unsupported(f"{path}.operations[{index}]", operation, OPERATIONS))
    if rule["scope"] not in ("*", "Cluster", "Namespaced"):
        found.append(failure.unsupported(f"{path}.scope", rule["scope"], ["*", "Cluster", "Namespaced"]))
    return found


MUTATING = WriteStrategy(default=default_mutating, validate=causes)
VALIDATING = WriteStrategy(default=default_validating, validate=causes)
