"""`rlscaler publish`: a fine-tuned policy as a ConfigMap."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ConfigDict, ValidationError

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.options import PRESENT_FILE, PRESENT_FOLDER, output_option
from rlscaler_rl.evaluation.errors import EvaluationError, NotWorthPublishingError
from rlscaler_rl.evaluation.schema import VERDICT_FILE, Verdict

MANIFEST, GRAPH = "manifest.json", "policy.onnx"
"""File names in the folder and keys in the ConfigMap; the policy's spec names the first."""

LIMIT_BYTES = 2**20
"""The most that the API server takes as the content of a ConfigMap."""

LABEL = "rlscaler.io/policy-digest"
"""The first twelve digits of the graph's sha256; the annotation of the same name has all of it."""

SHORT = 12
MANAGED_BY = {"app.kubernetes.io/managed-by": "rlscaler", "app.kubernetes.io/component": "policy"}
FIELD_MANAGER = "rlscaler-publish"
APPLY_PATCH = "application/apply-patch+yaml"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class _AnyVerdict(Verdict):
    """The file has also the figures, which differ between commands that train."""

    model_config = ConfigDict(extra="ignore", strict=True)


@dataclass(frozen=True, slots=True)
class Package:
    """Checked content of a folder: the graph loads, belongs to the manifest, and was judged."""

    onnx: bytes
    manifest: bytes
    digest: str
    verdict: Verdict | None
    """None where it was not judged: a folder of general training."""


def read_folder(folder: Path, *, force: bool = False) -> Package:
    """The checked content of a folder.

    Raises EvaluationError: a file is missing or damaged, or the verdict is "do not publish" and nothing forces it.
    """
    try:
        content = (folder / GRAPH).read_bytes()
        text = (folder / MANIFEST).read_bytes()
        manifest = Manifest.parse(text, str(folder / MANIFEST))
        Actor.load(content, manifest)
    except OSError as error:
        raise EvaluationError(
            f"{error.filename}: {error.strerror}; give the folder that `rlscaler train --for` wrote"
        ) from error
    except ModelError as error:
        raise EvaluationError(str(error)) from error
    verdict = _verdict(folder / VERDICT_FILE)
    if not force:
        _refuse(folder, verdict, manifest.digest)
    return Package(content, text, manifest.digest, verdict)


def _verdict(path: Path) -> Verdict | None:
    if not path.is_file():
        return None
    try:
        return _AnyVerdict.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise EvaluationError(f"{path}: {where}: {first['msg']}; train again") from error


def _refuse(folder: Path, verdict: Verdict | None, digest: str) -> None:
    if verdict is None:
        raise EvaluationError(
            f"{folder}: has no {VERDICT_FILE}, so it is not known what this policy is worth for the service; "
            "a training with --for writes one, or publish it untried with --force"
        )
    if verdict.policy_digest != digest:
        raise EvaluationError(
            f"{folder / VERDICT_FILE}: judges another policy (sha256 {verdict.policy_digest[:SHORT]}, not "
            f"{digest[:SHORT]}); train again, or publish with --force"
        )
    if not verdict.publish:
        reasons = "; ".join(verdict.reasons)
        raise NotWorthPublishingError(
            f"{folder}: the verdict is: do not publish: {reasons}. --force publishes it nevertheless"
        )


def config_map(package: Package, name: str, namespace: str) -> dict[str, Any]:
    """The object. Raises EvaluationError for a name that Kubernetes refuses or a content that it does not take."""
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise EvaluationError(f"--name {name}: use small letters, digits, - and . (a DNS subdomain), at most 253")
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > 63:
        raise EvaluationError(f"--namespace {namespace}: use small letters, digits and -, at most 63")
    size = len(package.onnx) + len(package.manifest)
    if size > LIMIT_BYTES:
        raise EvaluationError(
            f"{GRAPH} and {MANIFEST} have {size:,} bytes and a ConfigMap takes {LIMIT_BYTES:,}; "
            "start from a policy with a smaller hidden_size"
        )
    annotations = {LABEL: f"sha256:{package.digest}"}
    if package.verdict is not None:
        annotations["rlscaler.io/verdict"] = "publish" if package.verdict.publish else "do not publish, forced"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": MANAGED_BY | {LABEL: package.digest[:SHORT]},
            "annotations": annotations,
        },
        "data": {MANIFEST: package.manifest.decode()},
        "binaryData": {GRAPH: base64.b64encode(package.onnx).decode()},
    }


def snippet(name: str) -> str:
    """Lines of an RLScalingPolicy that uses the ConfigMap."""
    return f"spec:\n  policy:\n    configMap: {{name: {name}, key: {MANIFEST}}}\n"


def to_yaml(body: dict[str, Any]) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=120)


def apply(body: dict[str, Any], kubeconfig: Path | None = None) -> str:
    """Apply it on the server; gives the object's resourceVersion. Raises ClickException naming object and remedy."""
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    try:
        connection = config.new_client_from_config(str(kubeconfig) if kubeconfig else None)
    except Exception as error:  # the client library raises whatever a malformed file leads to
        reason, source = " ".join(str(error).split()), kubeconfig or "$KUBECONFIG or ~/.kube/config"
        raise click.ClickException(
            f"cannot find a cluster in {source}: {reason}; correct it, or name a kubeconfig with --kubeconfig"
        ) from error
    with connection:
        try:
            # Server-side apply: a second run updates the same object, and other owners of its fields are named (409).
            done = client.CoreV1Api(connection).patch_namespaced_config_map(
                name, namespace, body, field_manager=FIELD_MANAGER, _content_type=APPLY_PATCH, _request_timeout=30
            )
        except ApiException as error:
            raise click.ClickException(f"ConfigMap {namespace}/{name}: {_reason(error)}") from error
        except HTTPError as error:
            raise click.ClickException(
                f"ConfigMap {namespace}/{name}: the API server does not answer: {error}"
            ) from error
    return str(done.metadata.resource_version)


def _reason(error: Any) -> str:
    try:
        reason = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        reason = error.reason
    remedies = {
        403: "; you need the right to patch ConfigMaps there",
        404: "; create the namespace first",
        409: "; another client owns these fields: choose another --name, or delete the ConfigMap",
    }
    return f"{reason}{remedies.get(error.status, '')}"


@click.command()
@click.argument("folder", type=PRESENT_FOLDER)
@click.option("--name", help="Of the ConfigMap; the policy's name and `-policy` if not.")
@click.option("--namespace", help="Of the ConfigMap; the policy's if not.")
@click.option("--apply", "applied", is_flag=True, help="Apply it on the server instead of printing it.")
@click.option("--kubeconfig", type=PRESENT_FILE, help="With --apply.")
@click.option("--force", is_flag=True, help="Publish also what has no verdict or the verdict `do not publish`.")
@output_option
def publish(
    folder: Path,
    name: str | None,
    namespace: str | None,
    applied: bool,
    kubeconfig: Path | None,
    force: bool,
    output: str,
) -> None:
    """Write the policy that `rlscaler train --for` left in FOLDER as a ConfigMap, as YAML or JSON to standard output.

    The lines for the RLScalingPolicy go to standard error.
    """
    if kubeconfig is not None and not applied:
        raise click.UsageError("--kubeconfig: only with --apply")
    package = read_folder(folder, force=force)
    verdict = package.verdict
    name = name or (f"{verdict.name}-policy" if verdict else None)
    namespace = namespace or (verdict.namespace if verdict else None)
    if name is None or namespace is None:
        raise click.UsageError(f"{folder} names no service: give --name and --namespace")
    body = config_map(package, name, namespace)
    if applied:
        body["metadata"]["resourceVersion"] = version = apply(body, kubeconfig)
        click.echo(f"ConfigMap {namespace}/{name} applied, resourceVersion {version}", err=output == "json")
    if output == "json":
        click.echo(json.dumps(body, indent=2))
    elif not applied:
        click.echo(to_yaml(body), nl=False)
    click.echo(f"To use it in namespace {namespace}:\n{snippet(name)}", err=True, nl=False)
