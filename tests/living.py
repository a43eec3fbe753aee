"""Whether a process lives, for tests of what a stopped command leaves behind."""

import os
from pathlib import Path


def lives(process: int) -> bool:
    """Whether it runs; on Linux one that has ended, and that nobody has waited for, does not."""
    if not Path("/proc/self").exists():
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False
