"""Requests that are tried with an operator's own token."""

from __future__ import annotations

from typing import Any, NamedTuple

import requests

MERGE = "application/merge-patch+json"
OWN, THEIRS, ACCOUNT = "{own}", "{theirs}", "{account}"
"""Placeholders in an attempt's path: the namespace that the operator serves, another namespace, and the name of the
operator's service account."""


class Attempt(NamedTuple):
    """Something that the operator must not be able to do."""

    what: str
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


def core(namespace: str, rest: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{rest}"


def json_patch(path: str, steps: list[tuple[str, str, Any]]) -> Attempt:
    body = [{"op": op, "path": at} | ({} if op == "remove" else {"value": value}) for op, at, value in steps]
    kind = (("Content-Type", "application/json-patch+json"),)
    return Attempt("", "PATCH", f"{path}?dryRun=All&fieldManager=rlscaler", body, kind)


class Token:
    """Requests with the operator's token."""

    def __init__(self, cluster: Any, token: str, names: dict[str, str]) -> None:
        self._server, self._names, self._session = cluster.server, names, requests.Session()
        self._session.trust_env = False
        self._session.verify = str(cluster.state_dir / "pki" / "ca.crt")
        self._session.headers["Authorization"] = f"Bearer {token}"

    def __call__(self, attempt: Attempt) -> tuple[int, str]:
        path = attempt.path.format(**self._names)
        headers = {"Content-Type": MERGE if attempt.method == "PATCH" else "application/json", **dict(attempt.headers)}
        answer = self._session.request(
            attempt.method, self._server + path, json=attempt.body, headers=headers, timeout=30
        )
        return answer.status_code, answer.text

    def close(self) -> None:
        self._session.close()
