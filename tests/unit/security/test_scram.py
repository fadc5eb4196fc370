"""The server's side of SCRAM, with scramp's client at the other end."""

import pytest
from scramp import ScramClient

from mongottl.document.types import Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError
from mongottl.security.scram import (
    ITERATIONS,
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


@pytest.mark.parametrize("first", [b"", b"n", b"n,,", b"n,,r=x", b"n,,n=ann", b"y,,m=x,n=ann,r=x", b"\xff"])
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
