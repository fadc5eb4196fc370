"""The certificate with which the server speaks TLS: from files, or made at start.

`--tls-self-signed` makes a certificate authority and a certificate for localhost. They are kept, so that clients which
trust the authority go on doing so after a restart:

    <data directory>/tls/            or, without data directory, <cache of the user>/mongottl/tls/<names>/
      ca.pem                         the authority's certificate, for clients: `tlsCAFile`
      server.pem                     the server's key and certificate; only its owner may read it
      names                          the names and addresses that the certificate is for

The authority's key is kept nowhere: nobody can make another certificate that these clients would trust.
"""

import hashlib
import ipaddress
import os
import re
import shutil
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Final

from mongottl.config import ServerConfig
from mongottl.extras import to_install

_CA_NAME: Final = "ca.pem"
_SERVER_NAME: Final = "server.pem"
_NAMES_NAME: Final = "names"
_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
# Names that a certificate can have. Those of machines may have underscores, longer parts, and hyphens anywhere.
_LABEL: Final = r"(?!-|..--)[a-z0-9-]{1,63}(?<!-)"
_CERTIFIABLE: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.IGNORECASE)


class CertificateError(OSError):
    """The certificate cannot be used. The text says why."""


class ServerTls:
    """What the server needs to speak TLS. ca_file: the certificate that clients have to trust, or None if unknown."""

    def __init__(self, context: ssl.SSLContext, ca_file: str | None, certificate: str, key: str | None) -> None:
        self.context = context
        self.ca_file = ca_file
        self._certificate = certificate
        self._key = key

    def reload(self) -> None:
        """Reads the certificate's files again, for new connections. CertificateError for bad files, without effect."""
        _load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self._certificate, self._key)
        _load(self.context, self._certificate, self._key)


def server_tls(config: ServerConfig) -> ServerTls | None:
    """The server's TLS, None without. CertificateError for bad files."""
    if not config.tls_self_signed and config.tls_cert is None:
        return None
    if config.tls_self_signed:
        folder = _self_signed(config)
        certificate, key, ca_file = str(folder / _SERVER_NAME), None, str(folder / _CA_NAME)
    else:
        assert config.tls_cert is not None
        certificate, key, ca_file = config.tls_cert, config.tls_key, config.tls_ca or config.tls_cert
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load(context, certificate, key)
    if config.tls_ca is not None:
        try:
            context.load_verify_locations(config.tls_ca)
        except (OSError, ValueError) as error:
            raise CertificateError(f"cannot use the certificate authority {config.tls_ca}: {_why(error)}") from error
        optional = config.tls_allow_connections_without_certificates
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    return ServerTls(context, ca_file, certificate, key)


def _load(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Loads the certificate and its key from their files. CertificateError."""
    if key is not None:
        try:
            open(key, "rb").close()  # the error of loading both would not say which file it is about
        except OSError as error:
            raise CertificateError(f"cannot use the key {key}: {error.strerror}") from error
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        why = _why(error) if error.reason else _missing(certificate, key)
        raise CertificateError(f"cannot use the certificate {certificate}: {why}") from error
    except (OSError, ValueError) as error:
        raise CertificateError(f"cannot use the certificate {certificate}: {_why(error)}") from error


def _no_password() -> str:
    # OpenSSL would ask for it on the terminal.
    raise ValueError("the key is encrypted; decrypt it first, for example by `openssl pkey`")


def _missing(certificate: str, key: str | None) -> str:
    """What OpenSSL has not found in files, of which it says no more than that."""
    if b"-----BEGIN CERTIFICATE" not in Path(certificate).read_bytes():
        return "it is no certificate in PEM form"
    return "its key is missing, which another file may have" if key is None else f"{key} is no key in PEM form"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)


def kept_ca_file(config: ServerConfig) -> str:
    """The file with the authority's certificate of a server with a certificate of its own, whether it has been made
    yet or not."""
    return str(_folder(config, _names(config)) / _CA_NAME)


def _folder(config: ServerConfig, names: tuple[str, ...]) -> Path:
    """The folder of the server's own certificate for these names."""
    if config.data_dir is not None:
        return (Path(config.data_dir) / "tls").absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # Servers for other names do not replace each other's certificates.
    digest = hashlib.sha256(" ".join(names).encode()).hexdigest()
    return (Path(cache) / "mongottl" / "tls" / digest[:16]).absolute()


def _self_signed(config: ServerConfig) -> Path:
    """The folder with the server's own certificate, made unless it is there."""
    names = _names(config)
    folder = _folder(config, names)
    try:
        if _covers(folder, names):
            return folder
        _make(folder, names)
    except OSError as error:
        raise CertificateError(f"cannot keep a certificate in {folder}: {error.strerror or error}") from error
    return folder


def _names(config: ServerConfig) -> tuple[str, ...]:
    """The names and addresses by which clients may reach the server."""
    names = dict.fromkeys(_LOCAL_NAMES)
    advertised = (config.advertise_host or "").rpartition(":")[0].strip("[]")
    for name in (config.host, advertised):
        if name and not _is_wildcard(name) and name.isascii():
            names[name] = None
    own = socket.gethostname()
    if _CERTIFIABLE.fullmatch(own):
        names[own] = None
    return tuple(names)


def _is_wildcard(host: str) -> bool:
    if host == "*":
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _covers(folder: Path, names: tuple[str, ...]) -> bool:
    """Whether a usable certificate for these names is in the folder."""
    server, ca = folder / _SERVER_NAME, folder / _CA_NAME
    if not server.exists() or not ca.exists():
        return False
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(ca))
        context.load_cert_chain(server, password=_no_password)
    except (OSError, ValueError):
        return False
    noted = folder / _NAMES_NAME
    return noted.exists() and set(names) <= set(noted.read_text(encoding="utf-8").split())


def _make(folder: Path, names: tuple[str, ...]) -> None:
    """Makes an authority and a certificate in a new folder, and then gives it its name: nobody sees half of them."""
    try:
        import trustme
    except ImportError:
        raise CertificateError(f"--tls-self-signed needs trustme: {to_install('tls')}") from None
    authority = trustme.CA(organization_name="mongottl")
    try:
        certificate = authority.issue_cert(*names, common_name=names[0], organization_name="mongottl")
    except UnicodeError as error:
        raise CertificateError(f"cannot make a certificate for {', '.join(names)}: {error}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".tls-", dir=folder.parent))  # its owner's alone
    try:
        authority.cert_pem.write_to_path(str(new / _CA_NAME))
        with open(os.open(new / _SERVER_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(certificate.private_key_and_cert_chain_pem.bytes())
        (new / _NAMES_NAME).write_text("\n".join(names) + "\n", encoding="utf-8")
        # Clients of other users need the authority's certificate.
        (new / _CA_NAME).chmod(0o644)
        new.chmod(0o755)
        try:
            new.rename(folder)
        except OSError:
            if _covers(folder, names):
                return  # another server has made one meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
