"""Make or refresh `.venv` from `uv.lock`, or refresh `uv.lock` itself.  Needs nothing but python3 and a package index.

The committed lock names no host: its addresses end in `.invalid`, and packages come by name, version and hash from
the index that pip and uv are configured for (a mirror works unchanged).  `docs/decisions/0001-lock-without-hosts.md`.

    python3 tools/environment.py            install .venv from uv.lock
    python3 tools/environment.py --lock     bring uv.lock up to date with pyproject.toml   (--upgrade: newest versions)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".made-from"
UV_VERSION = "0.13.8"
ANY_INDEX = "https://index.invalid/simple"
ANY_FILES = "https://files.invalid/"
HOST = re.compile(r'(?<=")https://[^/"]+/')


def run(*argv: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; if it fails, exit with an error after the command's own output."""
    done = subprocess.run([str(a) for a in argv], cwd=cwd, check=False)
    if done.returncode:
        sys.exit(
            f"make venv: `{' '.join(str(a) for a in argv)}` ended with status {done.returncode}; its words are above"
        )


def wanted() -> str:
    """Return a digest of the inputs of .venv: the lock, the project file, this file and the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("uv.lock", "pyproject.toml", "tools/environment.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def make_uv() -> Path:
    """Create an environment with the pinned uv; return uv's path."""
    if sys.version_info < (3, 11):
        sys.exit(
            f"make venv: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; try `make PYTHON=python3.12`"
        )
    uv = BIN / "uv"
    if (
        uv.exists()
        and UV_VERSION in subprocess.run([uv, "--version"], capture_output=True, text=True, check=False).stdout
    ):
        return uv
    print(f"venv: creating {VENV.relative_to(ROOT)} with uv {UV_VERSION}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    venv.create(VENV, with_pip=True)
    run(BIN / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={UV_VERSION}")
    return uv


def make_venv() -> None:
    """Install what uv.lock pins, by hash, and this project in editable form."""
    if STAMP.exists() and STAMP.read_text() == wanted():
        return
    uv = make_uv()
    print("venv: installing what uv.lock pins", flush=True)
    pinned = VENV / "requirements.txt"
    run(uv, "export", "--quiet", "--frozen", "--no-emit-project", "--extra", "sandbox", "-o", pinned)
    install = (uv, "pip", "install", "--quiet", "--python", BIN / "python")
    # compiled once here: where Python may not write bytecode, every process would start three seconds later
    run(*install, "--compile-bytecode", "--require-hashes", "-r", pinned)
    run(*install, "--no-deps", "--editable", ROOT)
    run(BIN / "python", "-m", "compileall", "-q", ROOT / "kqueue", ROOT / "webhooks")
    STAMP.write_text(wanted())


def make_lock(*, upgrade: bool) -> None:
    """Resolve pyproject.toml afresh and write uv.lock without hosts.  Kept versions stay unless `upgrade`."""
    uv = make_uv()
    lock = ROOT / "uv.lock"
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy / name)
        before = [] if upgrade or not lock.exists() else pinned_versions(lock.read_text())
        (copy / "constraints.txt").write_text("\n".join(before))
        project = copy / "pyproject.toml"
        if before:
            listed = ", ".join(f'"{c}"' for c in before)
            project.write_text(
                project.read_text().replace("[tool.uv]\n", f"[tool.uv]\nconstraint-dependencies = [{listed}]\n")
            )
        run(uv, "lock", "--quiet", cwd=copy)
        lock.write_text(without_hosts((copy / "uv.lock").read_text()))


def pinned_versions(text: str) -> list[str]:
    """Return `name==version` of every package that the lock has in exactly one version."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(
        r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = \{ registry', text
    ):
        found.setdefault(name, set()).add(version)
    return [f"{name}=={versions.pop()}" for name, versions in sorted(found.items()) if len(versions) == 1]


def without_hosts(text: str) -> str:
    """Return the lock with every address replaced by one in `.invalid`, and without our own constraints."""
    text = re.sub(r"\n\[manifest\]\nconstraints = \[\n(?:.*\n)*?\]\n", "\n", text)
    text = re.sub(r'registry = "[^"]+"', f'registry = "{ANY_INDEX}"', text)
    return HOST.sub(lambda m: m[0] if m[0] == "https://index.invalid/" else ANY_FILES, text)


def main() -> None:
    """Run the command that the flags name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lock", action="store_true", help="bring uv.lock up to date with pyproject.toml")
    parser.add_argument("--upgrade", action="store_true", help="with --lock: take the newest versions")
    flags = parser.parse_args()
    if flags.lock:
        make_lock(upgrade=flags.upgrade)
    else:
        make_venv()


if __name__ == "__main__":
    main()
