#!/bin/sh
# Everything that must hold before a change goes in: linters, types, shell scripts, tests.
#
#   sh tests/run.sh [PYTEST OPTIONS]    such as --run-live, --run-gpu, --no-network, -k lock
#
# The tools come from requirements/dev.txt, by hash, into build/tests-venv (VENV names another folder) and are kept there.
set -eu

main() {
    cd "$(dirname "$0")/.."
    venv=${VENV:-build/tests-venv}
    python=$(find_python) || die "no Python 3.10 or newer was found"
    bring_tools
    PYTHONPATH=installer${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    step "ruff" "$venv/bin/ruff" check .
    step "format" "$venv/bin/ruff" format --check .
    step "types" "$venv/bin/mypy"
    bring_programs
    check_shell_scripts
    say "pytest"
    # A file's tests share what they install, so a file stays with one worker.
    "$venv/bin/python" -m pytest -n "${TEST_WORKERS:-$(workers)}" --dist loadfile "$@"
}

# Real installations wait for disks more than for cores; more than eight at once gain nothing.
workers() {
    cores=$(nproc 2>/dev/null || echo 2)
    [ "$cores" -le 8 ] || cores=8
    echo "$cores"
}

say() { printf '== %s\n' "$*"; }

die() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 1
}

# Run one check; the first that fails ends the run.
step() {
    say "$1"
    shift
    "$@"
}

# A name on PATH is not enough: pyenv leaves names there that do not start.
find_python() {
    for name in ${PYTHON:-} python3.12 python3.11 python3.10 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            printf '%s\n' "$name"
            return 0
        fi
    done
    return 1
}

# The tools are brought once for each state of dev.txt; a broken folder is made anew.
bring_tools() {
    if cmp -s requirements/dev.txt "$venv/dev.txt" && "$venv/bin/python" -c 'import pytest' 2>/dev/null; then
        return 0
    fi
    say "tools ($("$python" --version))"
    rm -rf "$venv"
    # pip, because it reads every setting that leads to an index here; uv where this Python has no pip to offer.
    if "$python" -m venv "$venv" 2>/dev/null; then
        try_thrice "$venv/bin/python" -m pip install --quiet --require-hashes --no-deps -r requirements/dev.txt
    elif command -v uv >/dev/null; then
        uv venv --quiet --python "$python" "$venv"
        try_thrice uv pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements/dev.txt
    else
        die "$python has no ensurepip (Debian: python3-venv), and uv is not here"
    fi
    cp requirements/dev.txt "$venv/dev.txt"
}

# Indexes and proxies fail now and then; what was fetched is in the cache by the next attempt.
try_thrice() {
    "$@" && return 0
    sleep 5
    "$@" && return 0
    sleep 20
    "$@"
}

# What CI's machine lacks is brought where that is possible; elsewhere, what needs it is skipped aloud.
bring_programs() {
    { command -v shellcheck && command -v hyperfine; } >/dev/null && return 0
    if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; then
        { apt-get update && apt-get install -y --no-install-recommends shellcheck hyperfine; } >/dev/null 2>&1 || true
    fi
}

check_shell_scripts() {
    if command -v shellcheck >/dev/null; then
        step "shellcheck" shellcheck install.sh tests/run.sh .ci/run
    else
        say "shellcheck: skipped, it is not here"
    fi
}

main "$@"
