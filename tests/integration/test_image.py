"""What the Dockerfile does, done: an environment that runs without rights, from a folder that nobody may write."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = Path("/usr/bin/python3")
"""Other users may run it, which is not so of an interpreter in somebody's home."""

pytestmark = pytest.mark.slow


def steps(source: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script that lies in `source`."""
    uv = Path(sys.executable).with_name("uv")
    given = {"UV": str(uv)} if uv.exists() else {}
    return subprocess.run(
        [source / "tools" / "image.sh", *map(str, arguments)],
        env={**os.environ, **given, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def interpreter() -> str:
    """The system's where that is new enough, else ours."""
    asked = [str(SYSTEM), "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]
    fits = SYSTEM.exists() and subprocess.run(asked, check=False, capture_output=True).returncode == 0
    return str(SYSTEM) if fits else sys.executable


def copied(into: Path) -> Path:
    """What the Dockerfile copies before it builds, and nothing else."""
    into.mkdir()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, into / name)
    return into


def test_the_image_is_compiled_runs_without_rights_and_starts_fast(tmp_path: Path) -> None:
    """Nothing is written while it runs; a file that was not compiled is found."""
    tmp_path.chmod(0o755)
    source, folder = copied(tmp_path / "source"), tmp_path / "kqueue"
    built = steps(
        source, "build", folder, PYTHON=interpreter(), UV_OFFLINE="1"
    )  # what this environment was made from is cached
    if built.returncode:
        built = steps(source, "build", folder, PYTHON=interpreter())
    assert built.returncode == 0, built.stderr
    checked = steps(source, "check", folder)
    compiled = next(folder.glob("lib/python*/site-packages/webhooks/__pycache__/server.*.pyc"))
    compiled.parent.chmod(0o755)
    compiled.unlink()
    again = steps(source, "check", folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    took = re.search(r"--help took (\d+) ms", checked.stdout)
    assert took is not None
    assert int(took[1]) < 2_000  # a guard, not a measurement: other tests run beside it
    assert (again.returncode, "not compiled" in again.stdout) == (1, True)


def test_a_wrong_call_is_told_what_there_is() -> None:
    """And does nothing."""
    done = steps(ROOT, "bild", "/nowhere")

    assert done.returncode == 2
    assert "tools/image.sh build FOLDER" in done.stderr
