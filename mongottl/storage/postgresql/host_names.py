"""Addresses of hosts by name: looked up beside each other, and used as they were where name servers do not answer.

`getaddrinfo` takes 5 seconds and more for a name whose server is gone, as it may be with the machine of a primary that
has failed. Nobody is to wait for that who can connect to another host.
"""

import socket
import threading
from collections.abc import Sequence
from typing import Final, TypeAlias

# A host, and its port in text.
_Host: TypeAlias = tuple[str, str]
# Seconds for which all names are waited for where one of them, or an earlier look-up, has given an address.
_ENOUGH_S: Final = 0.5


class HostNames:
    """Looks up hosts. Threads may share it.

    _known: what was found last. _pending: the hosts whose look-ups have not ended. _failed: why the last one failed.
    """

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        self._known: dict[_Host, list[str]] = {}
        self._pending: set[_Host] = set()
        self._failed: dict[_Host, OSError] = {}

    def look_up(self, hosts: Sequence[_Host], patience_s: float) -> dict[_Host, list[str] | OSError]:
        """The addresses of each host, or why there are none. Takes `patience_s` seconds at most."""
        wanted = set(hosts)
        with self._changed:
            for host in wanted - self._pending:
                self._pending.add(host)
                # A daemon: the process does not wait at its end for a name server.
                threading.Thread(target=self._look_up_one, args=(host,), daemon=True).start()
            self._changed.wait_for(lambda: not wanted & self._pending, min(_ENOUGH_S, patience_s))
            self._changed.wait_for(
                lambda: not wanted & self._pending or any(map(self._known.get, wanted)), max(patience_s - _ENOUGH_S, 0)
            )
            return {host: self._found(host) for host in wanted}

    def _found(self, host: _Host) -> list[str] | OSError:
        known = self._known.get(host)
        if known:
            return known
        if host in self._pending:
            return TimeoutError(0, "no name server has answered")
        return self._failed[host]

    def _look_up_one(self, host: _Host) -> None:
        found: list[str] = []
        failure: OSError | None = None
        try:
            entries = socket.getaddrinfo(host[0], host[1], type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        except OSError as error:
            failure = error
        except UnicodeError as error:
            failure = OSError(0, str(error))  # the name is none
        with self._changed:
            self._pending.discard(host)
            if failure is None:
                self._known[host] = found
            else:
                self._failed[host] = failure
                if failure.errno != socket.EAI_AGAIN:
                    # There is no such host any more. Its address may be another's by now.
                    self._known.pop(host, None)
            self._changed.notify_all()
