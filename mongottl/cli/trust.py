"""`mongottl trust [LANGUAGE]`: how clients in a language trust the server's certificate.

A certificate that the server has made (`--tls-self-signed`, the emulator) is signed by an authority of its own, which
no client trusts by itself. Drivers take authorities from different places: the table `RECIPES` has one for each
language, and a test of each language that is installed uses it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.subcommands import fail
from mongottl.config import ServerConfig, SettingError

if TYPE_CHECKING:
    from mongottl.server.server import Server

_NAME: Final = "trust"
# The password of a trust store, which holds nothing secret; Java wants one.
STORE_PASSWORD: Final = "changeit"

# What to do, by language. {ca}: the certificate's file. {uri_ca}: the same, percent-encoded. {store}: a trust store.
RECIPES: Final[dict[str, tuple[str, ...]]] = {
    "python": (
        "PyMongo and Motor: add tlsCAFile={uri_ca} to the URI.",
        "Without a change of the URI: export SSL_CERT_FILE={ca}",
    ),
    "node": (
        "The driver and Mongoose: add tlsCAFile={uri_ca} to the URI.",
        "Without a change of the URI: export NODE_EXTRA_CA_CERTS={ca}",
    ),
    "java": (
        "The driver ignores tlsCAFile. Make a trust store, once:",
        "  mongottl trust java --certificate {ca} --trust-store {store}",
        "or by the JDK's own tool:",
        "  keytool -importcert -noprompt -alias mongottl -file {ca} -storetype PKCS12 \\",
        "    -keystore {store} -storepass " + STORE_PASSWORD,
        "and give it to the JVM:",
        "  -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=" + STORE_PASSWORD,
    ),
    "dotnet": (
        "The driver ignores tlsCAFile. On Linux: export SSL_CERT_FILE={ca}",
        "Anywhere, without checking the certificate: add tlsInsecure=true to the URI.",
        "With a certificate that .NET trusts already: dotnet dev-certs https --trust, then",
        "  dotnet dev-certs https --export-path dev.pem --format Pem --no-password",
        "and start the server with --tls-cert dev.pem --tls-key dev.key.",
    ),
    "go": (
        "The driver: add tlsCAFile={uri_ca} to the URI.",
        "Without a change of the URI, on Linux: export SSL_CERT_FILE={ca}",
    ),
    "mongosh": ("Add tlsCAFile={uri_ca} to the URI, or start it with --tlsCAFile {ca}",),
}


def main(arguments: list[str]) -> int:
    """Exit status 0, or 1 if there is no such certificate, or the trust store cannot be written."""
    parser = ArgumentParser(_NAME)
    parser.add_argument("language", metavar="LANGUAGE", nargs="?", choices=[*RECIPES], help=", ".join(RECIPES))
    parser.add_argument("--certificate", metavar="FILE", help="by default that of a server without a data folder")
    parser.add_argument("--data-dir", metavar="FOLDER", help="the data folder of the server")
    parser.add_argument("--trust-store", metavar="FILE", help="also write a PKCS#12 trust store for Java to this file")
    given = parser.parse_args(arguments)
    try:
        ca_file = given.certificate or _kept_certificate(given.data_dir)
    except (OSError, SettingError) as error:
        return fail(_NAME, str(error))
    if not Path(ca_file).is_file():
        return fail(_NAME, f"there is no certificate {ca_file}: start the server once, or name it by --certificate")
    if given.trust_store is not None:
        try:
            write_trust_store(Path(ca_file), Path(given.trust_store))
        except ImportError:
            return fail(_NAME, "--trust-store needs the package cryptography, which trustme brings")
        except (OSError, ValueError) as error:
            return fail(_NAME, f"cannot write {given.trust_store}: {getattr(error, 'strerror', None) or error}")
        print(f"{given.trust_store} is a trust store with the password {STORE_PASSWORD}")
    languages = [given.language] if given.language else [*RECIPES]
    if given.language is None or given.trust_store is None:
        for language in languages:
            print("\n".join(_recipe(language, os.path.abspath(ca_file))))
    return 0


def _kept_certificate(data_dir: str | None) -> str:
    """The certificate that a server makes and keeps for this machine, or with this data folder."""
    from mongottl.server.transport.certificates import kept_ca_file

    return kept_ca_file(ServerConfig(data_dir=data_dir, tls_self_signed=True))


def write_trust_store(ca_file: Path, target: Path) -> None:
    """Writes a PKCS#12 trust store with the certificate, for a JVM. ImportError without the library `cryptography`,
    ValueError for what is no certificate, OSError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    certificate = PKCS12Certificate(x509.load_pem_x509_certificate(ca_file.read_bytes()), b"mongottl")
    target.write_bytes(serialize_java_truststore([certificate], BestAvailableEncryption(STORE_PASSWORD.encode())))


def _recipe(language: str, ca_file: str) -> Iterator[str]:
    places = {"ca": ca_file, "uri_ca": quote(ca_file, safe="/"), "store": "mongottl.p12"}
    yield f"{language}:"
    for line in RECIPES[language]:
        yield "  " + line.format_map(places)


def emulator_lines(server: "Server") -> Iterator[str]:
    """What a server in the emulator's place says after its first line: the emulator's own connection string, and how
    to trust its certificate."""
    users = server.dialect_users
    assert users is not None
    login = f"{quote(users.name, safe='')}:{quote(users.password, safe='')}"
    encryption = "ssl=true&" if server.ca_file is not None else ""
    yield "The emulator's connection string, its key percent-encoded as today's drivers want it:"
    yield f"  mongodb://{login}@localhost:{server.port}/admin?{encryption}retrywrites=false"
    if server.ca_file is None:
        return
    ca_file = os.path.abspath(server.ca_file)
    fetched = "" if server.certificate_url is None else f", also at {server.certificate_url}"
    yield f"The certificate that clients have to trust: {ca_file}{fetched}"
    yield f"  in the URI (Python, Node, Go, mongosh): tlsCAFile={quote(ca_file, safe='/')}"
    yield f"  .NET and Go on Linux, Python: SSL_CERT_FILE={ca_file}"
    yield f"  Node: NODE_EXTRA_CA_CERTS={ca_file}"
    yield f"  Java: mongottl trust java --certificate {ca_file} --trust-store mongottl.p12"
    yield "  mongottl trust LANGUAGE says more."
