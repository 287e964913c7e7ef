#!/usr/bin/env bash
# The steps of the Dockerfile, so that they can be run where no image can be built.
#
#   tools/image.sh build FOLDER    an environment in FOLDER: what uv.lock pins, kqueue as a wheel, all of it compiled
#   tools/image.sh check FOLDER    it runs as somebody without rights, writes nothing, and starts fast
#
# PYTHON is the interpreter (python3), EXTRAS what the image has beside the least ("uvloop").  `build` needs a package index, or what uv has cached; `check` needs neither.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
user=65532

build() {
    local folder=$1 scratch
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' RETURN
    local uv=${UV:-$scratch/tools/bin/uv}
    if [ ! -x "$uv" ]; then
        "$python" -m venv "$scratch/tools"
        "$scratch/tools/bin/pip" install --quiet --disable-pip-version-check \
            "uv==$(sed -n 's/^UV_VERSION = "\(.*\)"$/\1/p' tools/environment.py)"
    fi
    rm -rf "$folder"
    "$python" -m venv --without-pip "$folder"
    local extra extras=()
    for extra in ${EXTRAS-uvloop}; do extras+=(--extra "$extra"); done
    "$uv" export --quiet --frozen --no-emit-project --no-default-groups "${extras[@]}" -o "$scratch/requirements.txt"
    "$uv" pip install --quiet --python "$folder/bin/python" --link-mode copy --require-hashes \
        -r "$scratch/requirements.txt"
    "$uv" build --quiet --wheel --out-dir "$scratch/wheel" .
    "$uv" pip install --quiet --python "$folder/bin/python" --link-mode copy --no-deps "$scratch"/wheel/*.whl
    # Tests and headers of libraries are never read.
    find "$folder/lib" -depth -type d \( -name tests -o -name include \) -path '*/site-packages/numpy/*' -exec rm -rf {} +
    # Trusted unread: no source file is looked at when a process starts, whatever time it was copied at.
    find "$folder/lib" -name '*.pyc' -delete
    "$folder/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$folder/lib"
    echo "built $folder: $(du -sm "$folder" | cut -f1) MiB"
}

# As somebody without rights where that is possible: root may write even where nobody may.
unprivileged() {
    local try=(setpriv --reuid "$user" --regid "$user" --clear-groups)
    if [ "$(id -u)" = 0 ] && "${try[@]}" env "$folder/bin/python" -c pass 2>/dev/null; then
        "${try[@]}" env -i HOME=/nonexistent PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 "$@"
    else
        env -i HOME=/nonexistent PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 "$@"
    fi
}

check() {
    local folder=$1 before began took
    chmod -R a-w "$folder"
    before=$(find "$folder" | sort | cksum)
    for source in "$folder"/lib/python*/site-packages/{kqueue,webhooks,numpy,aiohttp}; do
        find "$source" -name '*.py' ! -path '*/__pycache__/*' -print | while read -r file; do
            compgen -G "$(dirname "$file")/__pycache__/$(basename "$file" .py).*.pyc" >/dev/null ||
                { echo "not compiled: $file"; exit 1; }
        done
    done
    cd /
    unprivileged "$folder/bin/kqueue" version
    unprivileged "$folder/bin/kqueue" controller --help >/dev/null
    unprivileged "$folder/bin/kqueue" webhook --help >/dev/null
    unprivileged "$folder/bin/python" -c 'import kqueue.manager.process, kqueue.manager.operator, kqueue.manager.admission'
    began=$(date +%s%N)
    unprivileged "$folder/bin/kqueue" --help >/dev/null
    took=$((($(date +%s%N) - began) / 1000000))
    [ "$before" = "$(find "$folder" | sort | cksum)" ] || { echo "$folder was written to"; exit 1; }
    echo "checked $folder: --help took $took ms"
}

case "${1:-} ${2:-}" in
    "build "?*) build "$2" ;;
    "check "?*) check "$(cd "$2" && pwd)" ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
