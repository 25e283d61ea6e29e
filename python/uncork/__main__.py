"""`python -m uncork`: the program that the wheel brought, as `uncork` on the PATH is."""

from __future__ import annotations

import os
import sys
import sysconfig


def program() -> str:
    """Where the program is: with this Python's scripts, or those of its user."""
    places = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable), sysconfig.get_path("scripts", f"{os.name}_user")]
    for place in places:
        path = os.path.join(place, "uncork")
        if os.path.isfile(path):
            return path
    sys.exit(f"there is no program uncork in {' or '.join(places)}: `pip install uncork` puts it there")


if __name__ == "__main__":
    found = program()
    os.execv(found, [found, *sys.argv[1:]])
