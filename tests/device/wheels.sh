#!/usr/bin/env bash
# Downloads the run-time dependencies of Bursar for the Python of the GPU machine into build/wheels, which is carried there.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-.venv/bin/python}"
version="${1:-3.12}"
rm -rf build/wheels
"$python" -m pip download --quiet --require-hashes --no-deps --python-version "$version" --only-binary=:all: \
  --dest build/wheels --requirement requirements/run.txt
du -sh build/wheels
