"""Pages in a browser that reach a broker on the same machine by a name of their own (DNS rebinding).

A page's own server can give its name the address 127.0.0.1 after the page has been loaded; for the browser what answers
there is that server still, and the page may read and write whatever it likes. Its requests name that server as their
host. So where nobody has to log in, and only this machine can connect, the host must be an address or `localhost`,
which are nobody's to give away.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem

_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")  # and a port


def check_host(request: HttpRequest) -> None:
    """Raises Problem."""
    named = request.headers.get("host", "")
    if named and not _is_nobodys(named):
        raise Problem(
            421,
            "INVALID_REQUEST",
            "Here, where nobody logs in, the host must be localhost or an address: a page in a browser may have made"
            " the name up.",
        )


def _is_nobodys(named: str) -> bool:
    split = _HOST.fullmatch(named)
    if split is None:
        return False
    host = split[1].strip("[]")
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
