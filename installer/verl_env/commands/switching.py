"""What `use` and `rollback` share: only an environment whose files are all there becomes current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.environment.verify import verify_receipt
from verl_env.errors import InstallError

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.environment.receipt import Receipt

_SHOWN = 5  # faults named in the refusal


def refuse_damaged(folder: Path, receipt: Receipt, *, hint: str) -> None:
    """Look at presence and sizes first: who switches is in need of something that works. Raises InstallError."""
    found = verify_receipt(folder, receipt, deep=False) if receipt.manifest else None
    if found and found.faults:
        raise InstallError(
            f"{folder.name} is damaged: {len(found.faults)} files are not as they were made",
            details=tuple(f"{it.kind}: {it.path}: {it.what}" for it in found.faults[:_SHOWN]),
            hint=hint,
        )
