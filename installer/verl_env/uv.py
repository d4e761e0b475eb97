"""The only door to uv: which uv, with what settings, and what it said."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output, paths, process, toml
from verl_env.errors import InstallError, ResolveError
from verl_env.indexes import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from verl_env.process import Completed

# Settings of the user's that say how to reach an index or where to keep things, and change nothing that is installed.
_KEPT = (
    "UV_CACHE_DIR", "UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES",
    "UV_INSECURE_HOST", "UV_KEYRING_PROVIDER", "UV_LINK_MODE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS", "UV_OFFLINE", "UV_NO_PROGRESS",
)  # fmt: skip
# Where distributions keep the system's certificates; first that exists (Go's crypto/x509 looks in the same places).
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
# No ambient configuration; bytecode whose validity rests on contents, not on a clock (PEP 552); and uv is to say what
# it leaves out of a wheel.
_FIXED = {"UV_NO_CONFIG": "1", "PYC_INVALIDATION_MODE": "CHECKED_HASH", "RUST_LOG": "uv_extract=warn"}
# Locks that uv keeps for as long as it runs: when we are killed and uv is not, nobody else takes its target.
held_locks: set[int] = set()
_INDEX_VARIABLES = {"--default-index": "UV_DEFAULT_INDEX", "--index": "UV_INDEX", "--find-links": "UV_FIND_LINKS"}
# Whatever is built gets what build.txt pins, by hash, and nothing else: an empty one lets nothing in.
_BUILD_WORDS = (
    "--build-constraints", "build.txt", "--require-build-hashes", "--preview-features", "build-dependency-hashes",
)  # fmt: skip
LEAST = (0, 13, 9)  # hashes of what builds are made with are compared from here on
_CERTIFICATE_SETTINGS = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def executable() -> str:
    """Return the uv to use; raises InstallError when there is none."""
    if found := find():
        return found
    raise InstallError("uv is not here", hint="install verl-env with install.sh, which brings it, or `pip install uv`")


def find() -> str | None:
    """Return VERL_ENV_UV, the uv installed beside verl-env, or the one on PATH."""
    if chosen := os.environ.get("VERL_ENV_UV"):
        return chosen
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file():
        return str(beside)
    try:
        from uv import find_uv_bin

        return os.fspath(find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    return shutil.which("uv")


@cache
def refuse_old(path: str) -> None:
    """Raise InstallError where a uv is older than the one that verl-env was tried with, such as one found on PATH."""
    said = process.run([path, "--version"]).stdout.split()
    version = said[1] if len(said) > 1 else "no version"
    if tuple(int(part) for part in version.split(".")[:3] if part.isdigit()) < LEAST:
        raise InstallError(
            f"`{path}` is uv {version}, and verl-env needs {'.'.join(map(str, LEAST))}",
            hint="install verl-env with install.sh, which brings a uv, or name another: VERL_ENV_UV=PATH",
        )


def environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment uv runs in: none of the ambient pip and uv settings but those in `_KEPT`."""
    kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    settings = {**_FIXED, "UV_CACHE_DIR": str(paths.uv_cache()), **kept, **dict(extra or {})}
    chosen, system = certificates()
    if chosen:
        settings["SSL_CERT_FILE"] = chosen
    elif system:
        settings.setdefault("UV_SYSTEM_CERTS", "true")
    return process.clean_environ(settings)


def certificates() -> tuple[str | None, str | None]:
    """Return the bundle of certificates that the user's settings name, and the system's own."""
    chosen = next((os.environ[name] for name in _CERTIFICATE_SETTINGS if os.environ.get(name)), None)
    system = next((place for place in _BUNDLES if Path(place).is_file()), None)
    return chosen if chosen and Path(chosen).is_file() else None, system


def default_index() -> str:
    """Return the index that uv asks when none is set up; it is uv's to say which."""
    done = run(["pip", "compile", "-", "--emit-index-url", "--no-header"], stdin="")
    for line in done.stdout.splitlines():
        if line.startswith("--index-url "):
            return line.split()[1]
    raise ResolveError("uv does not say which index is its default", details=done.tail(), hint="name one: --index URL")


def run(words: Sequence[str], *, show: bool = False, stdin: str | None = None, cwd: Path | None = None) -> Completed:
    """Run uv; with `show`, its progress goes to the user's terminal as it comes."""
    progress = () if show and sys.stderr.isatty() else ("--no-progress",)
    color = "always" if show and output.colored(sys.stderr) else "never"
    open_words, hidden = hide_logins(words)
    argv = [executable(), *open_words, *progress, "--color", color]
    try:
        refuse_old(argv[0])
        return process.run(
            argv, env=environ(hidden), stdin=stdin, cwd=cwd, show_stderr=show, pass_fds=tuple(held_locks)
        )
    except OSError as err:
        raise InstallError(f"uv could not be started: {err}", hint="reinstall verl-env") from err


def hide_logins(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Move index options with a login into variables: every user of a machine can read a command line."""
    secret = {name for name, value in pairwise(words) if name in _INDEX_VARIABLES and masked(value) != value}
    kept: list[str] = []
    moved: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word in secret:
            moved.setdefault(word, []).append(next(rest))
        else:
            kept.append(word)
    return kept, {_INDEX_VARIABLES[name]: (" " if name == "--index" else ",").join(it) for name, it in moved.items()}


def compile_pylock(requirements: str, options: Sequence[str], files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Resolve with `uv pip compile --format pylock.toml` and return the document it printed.

    `files` are written to a temporary folder that uv runs in (constraints, overrides), so that `options` can
    name them and no project's settings are found. Raises ResolveError with uv's own words.
    """
    with _workplace({"requirements.in": requirements, **dict(files or {})}) as folder:
        words = ["pip", "compile", "requirements.in", "--format", "pylock.toml", "--no-header", "--quiet"]
        done = run([*words, "--python", sys.executable, *options], cwd=folder)
    if done.returncode != 0:
        error = ResolveError(
            "uv could not resolve", details=done.tail(30), hint="read uv's words above: they name the package"
        )
        error.said = done.stderr
        raise error
    return toml.loads(done.stdout)


@contextmanager
def _workplace(files: Mapping[str, str]) -> Iterator[Path]:
    """Give an empty folder with these files in it, away from any project."""
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        for file, content in files.items():
            (Path(name) / file).write_text(content, encoding="utf-8")
        yield Path(name)


def make_venv(folder: Path, python: str) -> None:
    """Make an empty virtual environment; raises InstallError."""
    done = run(["venv", "--python", python, "--no-project", "--no-python-downloads", "--quiet", str(folder)])
    if done.returncode != 0:
        raise InstallError(f"uv could not make `{folder}`", details=done.tail())


def sync(
    python: Path,
    requirements: str,
    build: str,
    index_options: Sequence[str],
    *,
    show: bool,
    again: Sequence[str] = (),
) -> Completed:
    """Install exactly these hashed requirements, from the cache if everything is there, else from the indexes.

    The cache goes first because an index without cache headers would have everything fetched again. The packages in
    `again` are installed anew although they are there.
    """
    files = {"requirements.txt": requirements, "build.txt": build}
    words = _sync_words(python)
    words += [word for name in again for word in ("--reinstall-package", name)]
    with _workplace(files) as folder:
        done = run([*words, *index_options, "--offline"], cwd=folder)
        if done.returncode != 0:
            done = run([*words, *index_options], cwd=folder, show=show)
    return done


def install_commit(python: Path, spec: str, build: str, index_options: Sequence[str]) -> Completed:
    """Build one commit of a repository and install it, without dependencies; its build gets what `build` pins."""
    words = ["pip", "install", "--no-deps", spec, "--python", str(python), *_BUILD_WORDS]
    with _workplace({"build.txt": build}) as folder:
        return run([*words, *index_options], cwd=folder)


def _sync_words(python: Path) -> list[str]:
    return ["pip", "sync", "requirements.txt", "--python", str(python), "--require-hashes", *_BUILD_WORDS]


def install_beside(python: Path, target: Path, requirements: str, files: Path) -> Completed:
    """Install hashed requirements for a Python into a folder of their own, from a folder of files alone."""
    words = ["pip", "install", "--python", str(python), "--target", str(target), "--no-deps", "--require-hashes"]
    with _workplace({"requirements.txt": requirements}) as folder:
        words += ["-r", "requirements.txt", "--offline", "--no-index", "--find-links", str(files.resolve())]
        return run(words, cwd=folder)


def is_cached(python: Path, requirements: str, build: str, index_options: Sequence[str]) -> bool:
    """Whether uv's cache has every one of these files; nothing is installed or fetched."""
    files = {"requirements.txt": requirements, "build.txt": build}
    with _workplace(files) as folder:
        words = [*_sync_words(python), "--dry-run", "--offline", "--target", str(folder / "target")]
        done = run([*words, *index_options], cwd=folder)
    return done.returncode == 0 and "Would download" not in done.stdout + done.stderr


def forget_cached(names: Sequence[str]) -> Completed:
    """Remove packages from uv's cache, so that they are fetched again; environments keep their own links."""
    return run(["cache", "clean", *names])


def fetch_python(minor: str) -> Completed:
    """Let uv bring a Python of its own into its own folder."""
    return run(["python", "install", minor, "--no-bin"], show=sys.stderr.isatty() and not output.quiet)
