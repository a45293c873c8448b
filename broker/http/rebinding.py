"""Pages in a browser that reach a broker on the same machine by a name of their own (DNS rebinding).

A page's own server can give its name the address 127.0.0.1 after the page has been loaded; for the browser what answers
there is that server still, and the page may read and write whatever it likes. Its requests name that server as their
host. So where nobody has to log in, and only this machine can connect, the host must be an address or `localhost`,
which are nobody's to give away.
"""

from __future__ import annotations

import ipaddress

from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem


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
    host = named.rpartition("]")[0].lstrip("[") if named.startswith("[") else named.partition(":")[0]
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
