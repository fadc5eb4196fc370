"""mongod's options, and what they are called here: for the image, and for those who type them out of habit."""

from typing import Final

# mongod's options: ours that means the same, and whether it takes a value; None has no effect here.
MONGOD_OPTIONS: Final[dict[str, tuple[str | None, bool]]] = {
    "--auth": ("--auth", False),
    "--bind_ip": ("--host", True),
    "--bind_ip_all": ("--host=*", False),
    "--configdb": (None, True),
    "--configsvr": (None, False),
    "--dbpath": ("--data-dir", True),
    "--directoryperdb": (None, False),
    "--fork": (None, False),
    "--ipv6": (None, False),
    "--journal": (None, False),
    "--keyFile": ("--auth", True),
    "--logappend": (None, False),
    "--logpath": (None, True),
    "--maxConns": ("--max-connections", True),
    "--noauth": ("--auth=false", False),
    "--nojournal": (None, False),
    "--noprealloc": (None, False),
    "--noscripting": ("--no-scripting", False),
    "--oplogSize": ("--oplog-size-mb", True),
    "--quiet": ("--quiet", False),
    "--replSet": ("--replica-set", True),
    "--setParameter": (None, True),
    "--shardsvr": (None, False),
    "--smallfiles": (None, False),
    "--storageEngine": (None, True),
    "--syncdelay": (None, True),
    "--tlsCAFile": ("--tls-ca", True),
    "--tlsCertificateKeyFile": ("--tls-cert", True),
    "--tlsMode": (None, True),
    "--wiredTigerCacheSizeGB": (None, True),
}


def counterpart(option: str) -> str:
    """What an error says of an option of mongod that is none of ours; nothing for what is no such option."""
    if option not in MONGOD_OPTIONS:
        return ""
    ours, _ = MONGOD_OPTIONS[option]
    if ours is None:
        return f"; mongod's {option} has no counterpart here"
    return f"; mongod's {option} is {ours} here"
