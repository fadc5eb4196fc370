"""The server's side of SCRAM, with scramp's client at the other end."""

import sys

import pytest
from scramp import ScramClient

from mongottl.document.types import Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError
from mongottl.security.scram import (
    ITERATIONS,
    MAX_MESSAGE_BYTES,
    MAX_PREPARED_CHARACTERS,
    MECHANISMS,
    SHA_1,
    ScramConversation,
    UnknownUsers,
    make_credentials,
    password_digest,
)


def log_in(mechanism: str, credential: Value, password: str, name: str = "ann") -> None:
    """Raises CommandError if the login is refused."""
    assert isinstance(credential, bytes)
    client = ScramClient([mechanism], name, password_digest(name, password) if mechanism == SHA_1 else password)
    conversation = ScramConversation(mechanism, client.get_client_first().encode())
    assert conversation.user == name
    client.set_server_first(conversation.set_first(credential).decode())
    client.set_server_final(conversation.set_final(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_right_and_wrong_passwords(mechanism: str) -> None:
    credential = make_credentials("ann", "secret", (mechanism,), ITERATIONS)[mechanism]
    log_in(mechanism, credential, "secret")
    for refused in (credential, UnknownUsers(ITERATIONS).credential("admin.ann", mechanism)):
        with pytest.raises(CommandError) as caught:
            log_in(mechanism, refused, "wrong")
        assert (caught.value.code, caught.value.message) == (18, "Authentication failed.")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_that_do_not_exist_look_as_if_they_did(mechanism: str) -> None:
    """The same salt each time, in the form and of the length of a real one."""
    real = make_credentials("ann", "secret", (mechanism,), ITERATIONS)[mechanism]
    assert isinstance(real, bytes)
    unknown = UnknownUsers(ITERATIONS)
    first = unknown.credential("admin.bob", mechanism)
    assert first == unknown.credential("admin.bob", mechanism)
    assert get_value(first, "salt") != get_value(unknown.credential("admin.eve", mechanism), "salt")
    assert get_value(first, "salt") != get_value(UnknownUsers(ITERATIONS).credential("admin.bob", mechanism), "salt")
    assert [(name, len(str(value))) for name, value in fields(first)] == [
        (name, len(str(value))) for name, value in fields(real)
    ]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,r=x",
        b"n,,n=ann",
        b"n,,n=ann,r=",
        b"n,,n=ann,r=a b",
        b"n,,n=ann,r=\xc3\xa4",
        b"n,,n=\xff,r=x",
        b"n,a=bob,n=ann,r=x",
        b"y,,m=x,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"\xff",
        b"n,,n=" + b"a" * MAX_MESSAGE_BYTES + b",r=x",
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(CommandError) as caught:
        ScramConversation("SCRAM-SHA-256", first)
    assert caught.value.code == 18


@pytest.mark.parametrize("final", [b"", b"c=biws", b"c=biws,r=wrong,p=AAAA", b"c=eSws,r=x,p=AAAA", b"\xff", b"p=AAAA"])
def test_malformed_final_messages(final: bytes) -> None:
    credential = UnknownUsers(ITERATIONS).credential("admin.ann", "SCRAM-SHA-256")
    conversation = ScramConversation("SCRAM-SHA-256", b"n,,n=ann,r=abcdefgh")
    assert b"r=abcdefgh" in conversation.set_first(credential)
    with pytest.raises(CommandError) as caught:
        conversation.set_final(final)
    assert caught.value.code == 18


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=a=2Cn=3Dn,"])
def test_headers_and_escaped_names(header: bytes) -> None:
    """A channel is never bound; somebody may log in as themselves by name."""
    conversation = ScramConversation("SCRAM-SHA-256", header + b"n=a=2Cn=3Dn,r=x,extension=1")
    assert conversation.user == "a,n=n"
    challenge = conversation.set_first(UnknownUsers(ITERATIONS).credential("admin.ann", "SCRAM-SHA-256"))
    assert challenge.startswith(b"r=x") and challenge.endswith(b",i=15000")


@pytest.mark.parametrize("name", ["a" * 100_000, "ä" * 60_000, "\u1680" * 40_000, "=2C" * 40_000, "a," * 60_000])
def test_long_names_are_not_prepared(name: str) -> None:
    """SASLprep looks at each character in Python, which clients that have not logged in could make it do at length."""
    before = set(sys.modules)
    first = f"n,,n={name},r=x".encode()
    if "," in name:
        with pytest.raises(CommandError):
            ScramConversation("SCRAM-SHA-256", first)
        return
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    conversation = ScramConversation("SCRAM-SHA-256", first)
    sys.setprofile(count)
    try:
        conversation.set_first(UnknownUsers(ITERATIONS).credential(conversation.user, "SCRAM-SHA-256"))
    finally:
        sys.setprofile(None)
    assert calls < 1000, "the number of steps does not depend on the length of the name"
    assert set(sys.modules) == before


@pytest.mark.parametrize("text", ["ä", "\u0345\u0316", "\ufdfa", "a\u0007"])
def test_a_long_text_that_saslprep_would_change_is_refused(text: str) -> None:
    """It would hold up all threads for a time that grows with the square of its length."""
    longest = "ä" * MAX_PREPARED_CHARACTERS
    make_credentials(longest, longest, ("SCRAM-SHA-256",), ITERATIONS)
    long = text * 200_000
    for name, password in ((long, "secret"), ("ann", long)):
        with pytest.raises(CommandError, match="more than 4096 characters have to be visible ASCII") as caught:
            make_credentials(name, password, ("SCRAM-SHA-256",), ITERATIONS)
        assert caught.value.code == 2


def test_a_login_cannot_be_repeated() -> None:
    """The server's nonce is new each time, so messages that somebody has recorded are worth nothing."""
    credential = make_credentials("ann", "secret", ("SCRAM-SHA-256",), ITERATIONS)["SCRAM-SHA-256"]
    assert isinstance(credential, bytes)
    client = ScramClient(["SCRAM-SHA-256"], "ann", "secret")
    first = client.get_client_first().encode()
    conversation = ScramConversation("SCRAM-SHA-256", first)
    client.set_server_first(conversation.set_first(credential).decode())
    final = client.get_client_final().encode()
    conversation.set_final(final)
    again = ScramConversation("SCRAM-SHA-256", first)
    again.set_first(credential)
    with pytest.raises(CommandError):
        again.set_final(final)
