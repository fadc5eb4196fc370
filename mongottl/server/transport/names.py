"""Distinguished names of certificates, in the form by which MongoDB names X.509 users.

Source: RFC 4514 (the order, the short names and the escapes); MongoDB's manual, "Use x.509 Certificates to Authenticate
Clients".
"""

from typing import Final, TypeAlias

# As `SSLObject.getpeercert` gives it: relative names, each of one or more attributes.
Subject: TypeAlias = tuple[tuple[tuple[str, str], ...], ...]

# RFC 4514, section 3; an attribute without a short name keeps OpenSSL's long one.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "street",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED: Final = frozenset('",+;<>\\')


def distinguished_name(subject: Subject) -> str:
    """`CN=ann,OU=sales,O=shop`: the most specific part first."""
    return ",".join("+".join(_attribute(*attribute) for attribute in relative) for relative in reversed(subject))


def _attribute(name: str, value: str) -> str:
    escaped = "".join("\\" + character if character in _ESCAPED else character for character in value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT_NAMES.get(name, name)}={escaped}"
