"""Write a release's wheel and locked dependencies into a copy of install.sh, so that it can check what it fetches.

    python3 scripts/stamp_release.py dist/verl_env-0.1.0-py3-none-any.whl

writes dist/install.sh beside the wheel; both are uploaded to the release `v0.1.0`. Same input, same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_WHEEL_NAME = re.compile(r"verl_env-(?P<version>[0-9][0-9A-Za-z.+!]*)-py3-none-any\.whl")
_PIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*==[^\s;\\]+")
_END = "END_OF_REQUIREMENTS"


class StampError(Exception):
    """What keeps this release from being stamped."""


def hashed_requirements(text: str) -> str:
    """Return the requirements without comments; StampError unless each is one version with its hashes."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    for requirement in joined:
        if not _PIN.match(requirement):
            raise StampError(f"not pinned to one version: `{requirement.split(' ', 1)[0]}`")
        if not re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", requirement):
            raise StampError(f"no sha256: `{requirement.split(' ', 1)[0]}`")
    return "".join(f"{line}\n" for line in lines)


def stamp(script: str, *, wheel_name: str, sha256: str, requirements: str) -> str:
    """Return the script with the release's version, wheel hash and requirements in the places kept for them."""
    found = _WHEEL_NAME.fullmatch(wheel_name)
    if not found:
        raise StampError(f"not a wheel of verl-env: `{wheel_name}`")
    for name, value in (("RELEASE_VERSION", found["version"]), ("RELEASE_SHA256", sha256)):
        script, count = re.subn(rf'^{name}="[^"]*"$', f'{name}="{value}"', script, flags=re.MULTILINE)
        if count != 1:
            raise StampError(f"install.sh has {count} lines for {name}, not one")
    block = re.compile(rf"(?<=cat <<'{_END}'\n).*?(?=^{_END}$)", re.DOTALL | re.MULTILINE)
    script, count = block.subn(lambda _: requirements, script)
    if count != 1:
        raise StampError(f"install.sh has {count} places for requirements, not one")
    return script


def main(arguments: list[str] | None = None) -> int:
    """Stamp, and write the result by one rename."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("wheel", type=Path, help="the release's wheel")
    parser.add_argument("--install-sh", type=Path, default=ROOT / "install.sh", help="the script to stamp")
    locked = ROOT / "requirements" / "runtime.txt"
    parser.add_argument("--requirements", type=Path, default=locked, help="the locked dependencies")
    parser.add_argument("--output", type=Path, help="where to write (default: install.sh beside the wheel)")
    asked = parser.parse_args(arguments)
    output = asked.output or asked.wheel.parent / "install.sh"
    try:
        stamped = stamp(
            asked.install_sh.read_text(encoding="utf-8"),
            wheel_name=asked.wheel.name,
            sha256=hashlib.sha256(asked.wheel.read_bytes()).hexdigest(),
            requirements=hashed_requirements(asked.requirements.read_text(encoding="utf-8")),
        )
        temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        temporary.write_text(stamped, encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(output)
    except (OSError, StampError) as error:
        print(f"stamp_release: {error}\nhint: build the wheel and requirements/runtime.txt first", file=sys.stderr)
        return 2
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
