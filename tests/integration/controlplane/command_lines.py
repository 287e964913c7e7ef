"""The command line of each part of the control plane.  Pure: paths and ports in, arguments out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.controlplane.certificates import FRONT_PROXY, Certificates

STAGES = Path(__file__).parent / "stages"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
ALL_PARTS = frozenset({CONTROLLER_MANAGER, SCHEDULER, KWOK})

SCHEDULER_CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: "%s", qps: 1000, burst: 2000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one control plane is."""

    folder: Path
    certificates: Certificates
    etcd_port: int
    api_port: int
    parts: frozenset[str]

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        """One file per part."""
        return self.folder / "logs"


def etcd(layout: Layout) -> list[str]:
    """A single member that never waits for the disk: its data live as long as the process."""
    keys, url = layout.certificates.etcd, f"https://127.0.0.1:{layout.etcd_port}"
    return [
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        f"--cert-file={keys.certificate}",
        f"--key-file={keys.key}",
        f"--trusted-ca-file={layout.certificates.authority}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--snapshot-count=50000",
        "--log-level=warn",
    ]


def api_server(layout: Layout) -> list[str]:
    """RBAC on, loopback only; the ServiceAccount check only where something makes service accounts."""
    certs, keys = layout.certificates, layout.certificates.api_server
    lines = [
        f"--etcd-servers=https://127.0.0.1:{layout.etcd_port}",
        f"--etcd-cafile={certs.authority}",
        f"--etcd-certfile={certs.etcd.certificate}",
        f"--etcd-keyfile={certs.etcd.key}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # no endpoint may be a loopback address, and nobody asks for it
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.folder / 'api-server'}",
        f"--tls-cert-file={keys.certificate}",
        f"--tls-private-key-file={keys.key}",
        f"--client-ca-file={certs.authority}",
        f"--service-account-key-file={certs.service_accounts}",
        f"--service-account-signing-key-file={certs.service_accounts}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        f"--requestheader-client-ca-file={certs.front_proxy_authority}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certs.front_proxy.certificate}",
        f"--proxy-client-key-file={certs.front_proxy.key}",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if CONTROLLER_MANAGER not in layout.parts:
        lines.append("--disable-admission-plugins=ServiceAccount")
    return lines


def controller_manager(layout: Layout) -> list[str]:
    """All controllers that are on by default, without the throttle meant for big clusters.

    A node is dead when a test says so, never because a busy machine renews its lease late. The controllers remember nodes by
    name after they are deleted: a new node of an old name, whose status they read before kwok has written one, would
    count as a node that never answered, and pods that start there meanwhile as not ready for good.
    """
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--node-startup-grace-period=24h",
        "--node-monitor-grace-period=24h",
        "--node-monitor-period=1s",
        f"--service-account-private-key-file={layout.certificates.service_accounts}",
        f"--root-ca-file={layout.certificates.authority}",
        "--profiling=false",
    ]


def scheduler(layout: Layout) -> list[str]:
    """The stock scheduler with short back-offs; writes its configuration file."""
    config = layout.folder / "scheduler.yaml"
    config.write_text(SCHEDULER_CONFIG % layout.kubeconfig)
    return [f"--config={config}", "--secure-port=0"]


def kwok(layout: Layout) -> list[str]:
    """The kubelets of all nodes, as our stages tell; no server of its own."""
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        "--node-ip=127.0.0.1",
        *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
    ]


PARTS: dict[str, Callable[[Layout], list[str]]] = {
    CONTROLLER_MANAGER: controller_manager,
    SCHEDULER: scheduler,
    KWOK: kwok,
}
"""In the order in which they start."""
