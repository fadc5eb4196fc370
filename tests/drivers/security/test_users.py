"""Users and their logins, by PyMongo over real sockets."""

import base64
import hashlib
import hmac
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import ConfigurationError, OperationFailure
from pymongo.server_api import ServerApi

import mongottl
from tests.drivers.security.test_tls import Files
from tests.on_nodes import own_fail_points, own_log, own_logins
from tests.waiting import until

Client = pymongo.MongoClient[dict[str, Any]]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server() as running:
        yield running


@pytest.fixture
def client(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client(server.uri) as connected:
        yield connected


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    """A database of its own for each test, without users."""
    database = f"users_{uuid.uuid4().hex[:8]}"
    yield database
    client[database].command("dropAllUsersFromDatabase")


LogIn = Callable[..., Document]


@pytest.fixture
def log_in(server: mongottl.RunningServer, name: str) -> LogIn:
    """Logs in and gives what `connectionStatus` says of the connection."""

    def run(user: str, password: str, **options: Any) -> Document:
        with Client(server.uri, username=user, password=password, authSource=name, **options) as connected:
            status: Document = connected[name].command("connectionStatus", showPrivileges=True)["authInfo"]
            return status

    return run


def refusal(database: Any, *command: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(OperationFailure) as caught:
        database.command(*command, **options)
    assert caught.value.code is not None and caught.value.details is not None
    return caught.value.code, caught.value.details["errmsg"]


def test_login(client: Client, name: str, log_in: LogIn) -> None:
    client[name].command("createUser", "ann", pwd="secret", roles=["read", {"role": "readWrite", "db": "other"}])
    for options in ({}, {"authMechanism": "SCRAM-SHA-1"}, {"authMechanism": "SCRAM-SHA-256"}):
        status = log_in("ann", "secret", **options)
        assert status["authenticatedUsers"] == [{"user": "ann", "db": name}]
        assert status["authenticatedUserRoles"] == [
            {"role": "read", "db": name},
            {"role": "readWrite", "db": "other"},
        ]
        resources = [privilege["resource"] for privilege in status["authenticatedUserPrivileges"]]
        assert {"db": name, "collection": ""} in resources


def test_login_within_the_stable_api(client: Client, name: str, server: mongottl.RunningServer) -> None:
    """Drivers add `apiVersion` and `apiStrict` to the commands of a login, too."""
    client[name].command("createUser", "ann", pwd="secret", roles=["read"])
    user: dict[str, Any] = {"username": "ann", "password": "secret", "authSource": name}
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
        api = ServerApi("1", strict=True)
        with Client(server.uri, server_api=api, authMechanism=mechanism, **user) as connected:
            assert connected[name].c.find_one({}) is None
    strict = {"apiVersion": "1", "apiStrict": True}
    assert refusal(client[name], "saslStart", 1, mechanism="PLAIN", payload=b"", **strict)[0] == 334
    assert refusal(client[name], "authenticate", 1, mechanism="PLAIN", **strict)[0] == 334


@own_logins
def test_nobody(client: Client) -> None:
    status = client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
    assert status == {"authenticatedUsers": [], "authenticatedUserRoles": [], "authenticatedUserPrivileges": []}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_wrong_password_and_unknown_user_look_alike(client: Client, name: str, log_in: LogIn, mechanism: str) -> None:
    client[name].command("createUser", "ann", pwd="secret", roles=[])
    answers = []
    for user in ("ann", "nobody"):
        with pytest.raises(OperationFailure) as caught:
            log_in(user, "wrong", authMechanism=mechanism)
        assert caught.value.details is not None
        answers.append({key: caught.value.details[key] for key in ("ok", "code", "codeName", "errmsg")})
    assert (answers[0]["code"], answers[0]["codeName"]) == (18, "AuthenticationFailed")
    assert answers[0] == answers[1]


def test_hello_lists_the_mechanisms_of_users(client: Client, name: str) -> None:
    client[name].command("createUser", "old", pwd="secret", roles=[], mechanisms=["SCRAM-SHA-1"])
    client[name].command("createUser", "ann", pwd="secret", roles=[])
    found = {
        user: client.admin.command("hello", saslSupportedMechs=f"{name}.{user}").get("saslSupportedMechs")
        for user in ("old", "ann", "nobody")
    }
    assert found == {"old": ["SCRAM-SHA-1"], "ann": ["SCRAM-SHA-1", "SCRAM-SHA-256"], "nobody": None}


def test_spellings_of_names_and_passwords(client: Client, name: str, log_in: LogIn) -> None:
    """The users of the authentication specification: passwords are prepared by SASLprep, user names are not."""
    client[name].command("createUser", "IX", pwd="IX", roles=[], mechanisms=["SCRAM-SHA-256"])
    client[name].command("createUser", "\u2168", pwd="\u2163", roles=[], mechanisms=["SCRAM-SHA-256"])
    for user, password in (("IX", "IX"), ("IX", "I\u00adX"), ("\u2168", "IV"), ("\u2168", "I\u00adV")):
        assert log_in(user, password)["authenticatedUsers"] == [{"user": user, "db": name}]
    with pytest.raises(OperationFailure):
        log_in("\u2168", "IX")


def test_names_with_separators(client: Client, name: str, log_in: LogIn) -> None:
    for user in ("a,b=c", "a=2Cb", "=3D", "a.b@c d", "ä"):
        client[name].command("createUser", user, pwd="pass,word=", roles=[])
        assert log_in(user, "pass,word=")["authenticatedUsers"] == [{"user": user, "db": name}]


def test_a_password_is_changed(client: Client, name: str, log_in: LogIn) -> None:
    client[name].command("createUser", "ann", pwd="one", roles=[])
    client[name].command("updateUser", "ann", pwd="two")
    log_in("ann", "two")
    with pytest.raises(OperationFailure):
        log_in("ann", "one")
    client[name].command("updateUser", "ann", mechanisms=["SCRAM-SHA-256"])
    log_in("ann", "two")
    with pytest.raises(OperationFailure):
        log_in("ann", "two", authMechanism="SCRAM-SHA-1")
    assert refusal(client[name], "updateUser", "ann", mechanisms=["SCRAM-SHA-1"])[0] == 2


def test_a_digested_password(client: Client, name: str, log_in: LogIn) -> None:
    """Older shells digest the password themselves; then only SCRAM-SHA-1 is possible."""
    digest = hashlib.md5(b"ann:mongo:secret").hexdigest()
    client[name].command("createUser", "ann", pwd=digest, roles=[], digestPassword=False)
    log_in("ann", "secret", authMechanism="SCRAM-SHA-1")
    assert log_in("ann", "secret")["authenticatedUsers"]
    both = ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    assert refusal(client[name], "createUser", "bob", pwd="x", roles=[], digestPassword=False, mechanisms=both)[0] == 2


def test_errors(client: Client, name: str) -> None:
    database = client[name]
    database.command("createUser", "ann", pwd="x", roles=[])
    assert refusal(database, "createUser", "ann", pwd="x", roles=[]) == (51003, f'User "ann@{name}" already exists')
    assert refusal(database, "createUser", "bob", pwd="x", roles=["nothing"]) == (
        31,
        f"Could not find role: nothing@{name}",
    )
    assert refusal(database, "createUser", "bob", pwd="x", roles=["root"])[0] == 31, "root is a role of admin"
    assert refusal(database, "createUser", "bob", roles=[])[0] == 2
    assert refusal(database, "createUser", "bob", pwd="", roles=[])[0] == 2
    assert refusal(database, "createUser", "bob", pwd="\u0007", roles=[])[0] == 2
    assert refusal(database, "createUser", "bob", pwd="x")[0] == 40414
    assert refusal(database, "createUser", "bob", pwd="x", roles=[1])[0] == 2
    assert refusal(database, "createUser", "bob", pwd="x", roles=[], mechanisms=[])[0] == 2
    assert refusal(database, "createUser", "bob", pwd="x", roles=[], mechanisms=["PLAIN"])[0] == 2
    assert refusal(database, "createUser", 1, pwd="x", roles=[])[0] == 14
    assert refusal(client.local, "createUser", "bob", pwd="x", roles=[])[0] == 2
    assert refusal(client["$external"], "createUser", "bob", pwd="x", roles=[])[0] == 2
    for command, options in (
        ("dropUser", {}),
        ("updateUser", {"customData": {}}),
        ("grantRolesToUser", {"roles": ["read"]}),
        ("revokeRolesFromUser", {"roles": ["read"]}),
    ):
        assert refusal(database, command, "nobody", **options) == (11, f"User 'nobody@{name}' not found")
    assert refusal(database, "updateUser", "ann")[0] == 2
    assert refusal(database, "grantRolesToUser", "ann", roles=["nothing"])[0] == 31


def test_roles_of_a_user(client: Client, name: str) -> None:
    database = client[name]
    database.command("createUser", "ann", pwd="x", roles=["read"])

    def roles() -> list[str]:
        [user] = database.command("usersInfo", "ann")["users"]
        return [role["role"] for role in user["roles"]]

    database.command("grantRolesToUser", "ann", roles=["dbAdmin", "read"])
    assert roles() == ["read", "dbAdmin"]
    database.command("revokeRolesFromUser", "ann", roles=["read", "readWrite"])
    assert roles() == ["dbAdmin"]
    database.command("updateUser", "ann", roles=["dbOwner"])
    assert roles() == ["dbOwner"]


def test_users_info(client: Client, name: str) -> None:
    database = client[name]
    database.command("createUser", "bob", pwd="x", roles=[], mechanisms=["SCRAM-SHA-256"])
    database.command("createUser", "ann", pwd="x", roles=["read"], customData={"badge": 7})
    info = database.command("usersInfo", 1)
    ann, bob = info["users"]
    assert ann.pop("userId").subtype == 4
    assert ann == {
        "_id": f"{name}.ann",
        "user": "ann",
        "db": name,
        "customData": {"badge": 7},
        "roles": [{"role": "read", "db": name}],
        "mechanisms": ["SCRAM-SHA-1", "SCRAM-SHA-256"],
    }
    assert bob["mechanisms"] == ["SCRAM-SHA-256"]
    by_name = [
        "ann",
        {"user": "ann", "db": name},
        ["ann", "nobody"],
    ]
    for which in by_name:
        assert [user["user"] for user in database.command("usersInfo", which)["users"]] == ["ann"]
    assert {"ann", "bob"} <= {user["user"] for user in client.admin.command("usersInfo", {"forAllDBs": True})["users"]}
    assert [user["user"] for user in database.command("usersInfo", 1, filter={"customData.badge": 7})["users"]] == [
        "ann"
    ]
    assert "customData" not in database.command("usersInfo", "ann", showCustomData=False)["users"][0]
    [shown] = database.command("usersInfo", "ann", showCredentials=True)["users"]
    assert shown["credentials"]["SCRAM-SHA-1"]["iterationCount"] == 10_000
    assert shown["credentials"]["SCRAM-SHA-256"]["iterationCount"] == 15_000
    [shown] = database.command("usersInfo", "ann", showPrivileges=True)["users"]
    assert shown["inheritedRoles"] == [{"role": "read", "db": name}]
    assert any("find" in privilege["actions"] for privilege in shown["inheritedPrivileges"])
    assert refusal(database, "usersInfo", 1, showPrivileges=True)[0] == 20
    assert refusal(database, "usersInfo", 2)[0] == 2


def test_users_are_documents(client: Client, name: str) -> None:
    """In the form in which MongoDB stores them, so that dumps of `admin` can be restored."""
    client[name].command("createUser", "ann", pwd="x", roles=[])
    stored = client.admin["system.users"].find_one({"_id": f"{name}.ann"})
    assert stored is not None
    assert list(stored) == ["_id", "userId", "user", "db", "credentials", "roles"]
    credential = stored["credentials"]["SCRAM-SHA-256"]
    assert list(credential) == ["iterationCount", "salt", "storedKey", "serverKey"]
    salted = hashlib.pbkdf2_hmac("sha256", b"x", base64.b64decode(credential["salt"]), credential["iterationCount"])
    key = hmac.digest(salted, b"Client Key", "sha256")
    assert hashlib.sha256(key).digest() == base64.b64decode(credential["storedKey"])


@own_logins
def test_dropping_users(client: Client, name: str, server: mongottl.RunningServer) -> None:
    """A connection is not that of a user who is made again under the same name."""
    database = client[name]
    for user in ("ann", "bob", "eve"):
        database.command("createUser", user, pwd="x", roles=[])
    with Client(server.uri, username="ann", password="x", authSource=name) as ann:

        def users() -> list[Any]:
            status: Document = ann[name].command("connectionStatus")["authInfo"]
            return list(status["authenticatedUsers"])

        assert users() == [{"user": "ann", "db": name}]
        database.command("dropUser", "ann")
        assert users() == []
        database.command("createUser", "ann", pwd="x", roles=[])
        assert users() == []
    assert database.command("dropAllUsersFromDatabase")["n"] == 3
    assert database.command("usersInfo")["users"] == []


@own_logins
def test_logout(client: Client, name: str, server: mongottl.RunningServer) -> None:
    client[name].command("createUser", "ann", pwd="x", roles=[])
    with Client(server.uri, username="ann", password="x", authSource=name, maxPoolSize=1) as ann:
        assert ann.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
        ann[name].command("logout")
        assert not ann.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]


def test_restrictions_of_addresses(client: Client, name: str, log_in: LogIn) -> None:
    def create(user: str, *restrictions: Document) -> None:
        client[name].command("createUser", user, pwd="x", roles=[], authenticationRestrictions=list(restrictions))

    create("here", {"clientSource": ["127.0.0.0/8", "::1"], "serverAddress": "127.0.0.1"})
    create("either", {"clientSource": "10.0.0.1"}, {"clientSource": "127.0.0.1"})
    create("there", {"clientSource": ["10.0.0.0/8"]})
    log_in("here", "x")
    log_in("either", "x")
    with pytest.raises(OperationFailure) as caught:
        log_in("there", "x")
    assert caught.value.code == 18
    bad = [{"clientSource": "nowhere"}]
    assert refusal(client[name], "createUser", "bob", pwd="x", roles=[], authenticationRestrictions=bad)[0] == 12


@own_logins
def test_mechanisms_that_are_refused(client: Client, name: str, log_in: LogIn) -> None:
    payload = bson.Binary(b"\0ann\0x")
    assert refusal(client[name], "saslStart", 1, mechanism="PLAIN", payload=payload)[0] == 334
    with pytest.raises(OperationFailure):
        log_in("ann", "x", authMechanism="PLAIN")
    assert refusal(client[name], "authenticate", 1, mechanism="MONGODB-CR")[0] == 334


@own_logins
def test_conversations_out_of_order(client: Client, name: str) -> None:
    first = b"n,,n=ann,r=abcdef"
    assert refusal(client[name], "saslContinue", 1, conversationId=1, payload=b"")[0] == 17
    for payload in (b"", b"n,,", b"\xff\xff", b"p=tls-unique,,n=ann,r=abc", b"n,,n=ann"):
        assert refusal(client[name], "saslStart", 1, mechanism="SCRAM-SHA-256", payload=payload)[0] == 18
    begun = client[name].command("saslStart", 1, mechanism="SCRAM-SHA-256", payload=first)
    assert begun["conversationId"] == 1 and begun["done"] is False
    assert refusal(client[name], "saslContinue", 1, conversationId=2, payload=b"")[0] == 17
    assert refusal(client[name], "saslContinue", 1, conversationId=1, payload=b"c=biws,r=x,p=eA==")[0] == 18
    assert refusal(client[name], "saslContinue", 1, conversationId=1, payload=b"")[0] == 17, "it has ended"


@own_logins
@pytest.mark.parametrize("skip", [True, False])
def test_the_empty_exchange(client: Client, name: str, skip: bool) -> None:
    """Without `skipEmptyExchange` the login ends with an exchange of empty messages."""
    from scramp import ScramClient

    client[name].command("createUser", "ann", pwd="x", roles=[])
    scram = ScramClient(["SCRAM-SHA-256"], "ann", "x")
    with Client(client.address[0] if client.address else "", client.address[1] if client.address else 0) as connected:
        database = connected[name]
        begun = database.command(
            "saslStart",
            1,
            mechanism="SCRAM-SHA-256",
            payload=scram.get_client_first().encode(),
            options={"skipEmptyExchange": skip},
        )
        scram.set_server_first(begun["payload"].decode())
        answered = database.command("saslContinue", 1, conversationId=1, payload=scram.get_client_final().encode())
        scram.set_server_final(answered["payload"].decode())
        assert answered["done"] is skip
        if not skip:
            assert database.command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
            ended = database.command("saslContinue", 1, conversationId=1, payload=b"")
            assert (ended["done"], ended["payload"]) == (True, b"")
        assert database.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [{"user": "ann", "db": name}]


@own_fail_points
def test_passwords_are_not_shown(client: Client, name: str, server: mongottl.RunningServer) -> None:
    """Neither by `$currentOp` while the password's key is computed, nor in the log."""
    client.admin.command("setParameter", 1, logLevel=1)
    try:
        client.admin.command(
            "configureFailPoint",
            "failCommand",
            mode={"times": 1},
            data={"failCommands": ["createUser"], "blockConnection": True, "blockTimeMS": 3_600_000},
        )
        seen: list[Document] = []

        def create() -> None:
            with pytest.raises(OperationFailure, match="interrupted"):
                client[name].command("createUser", "ann", pwd="geheim", roles=[])

        def is_seen() -> bool:
            operations = client.admin.command("currentOp")["inprog"]
            seen.extend(op for op in operations if "createUser" in op.get("command", {}))
            return bool(seen)

        thread = threading.Thread(target=create)
        thread.start()
        until(is_seen)
        client.admin.command("killOp", op=seen[0]["opid"])
        thread.join()
        assert seen[0]["command"]["pwd"] == "xxx"
        client[name].command("createUser", "ann", pwd="geheim", roles=[])
        assert "geheim" not in str(client.admin.command("getLog", "global"))
    finally:
        client.admin.command("setParameter", 1, logLevel=0)


@pytest.mark.slow
def test_users_survive_a_restart(tmp_path: Path) -> None:
    with mongottl.start_server(data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        client.shop.command("createUser", "ann", pwd="secret", roles=["read"])
    with mongottl.start_server(data_dir=str(tmp_path)) as server:
        uri = server.uri.replace("://", "://ann:secret@") + "shop"
        with Client(uri) as client:
            assert client.shop.command("connectionStatus")["authInfo"]["authenticatedUserRoles"] == [
                {"role": "read", "db": "shop"}
            ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@own_log
@pytest.mark.slow
def test_login_over_tls_and_by_certificate(files: Files) -> None:
    settings: dict[str, Any] = {"tls_cert": files.server, "tls_key": files.key, "tls_ca": files.ca}
    with mongottl.start_server(tls_allow_connections_without_certificates=True, **settings) as server:
        plain: dict[str, Any] = {"tlsCAFile": files.ca}
        with Client(server.uri, **plain) as client:
            client.admin.command("createUser", "ann", pwd="secret", roles=["root"])
        with Client(server.uri, username="ann", password="secret", **plain) as client:
            assert client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
        with Client(server.uri, authMechanism="MONGODB-X509", tlsCertificateKeyFile=files.client, **plain) as client:
            with pytest.raises(OperationFailure) as caught:
                client.admin.command("ping")
            assert caught.value.code == 18, "there is no such user yet"
        [subject] = subjects(server, files)
        with Client(server.uri, **plain) as client:
            client["$external"].command("createUser", subject, roles=[{"role": "read", "db": "shop"}])
        with Client(server.uri, authMechanism="MONGODB-X509", tlsCertificateKeyFile=files.client, **plain) as client:
            status = client.admin.command("connectionStatus")["authInfo"]
            assert status["authenticatedUsers"] == [{"user": subject, "db": "$external"}]
        with (
            Client(server.uri, authMechanism="MONGODB-X509", **plain) as client,
            pytest.raises((OperationFailure, ConfigurationError)),
        ):
            client.admin.command("ping")
        with Client(server.uri, **plain) as client:
            given = {"mechanism": "MONGODB-X509", "payload": b"pass-by-mistake"}
            assert refusal(client["$external"], "saslStart", 1, **given)[0] == 18
            given = {"mechanism": "MONGODB-X509", "user": "pass-by-mistake"}
            assert refusal(client["$external"], "authenticate", 1, **given)[0] == 18
            log = str(client.admin.command("getLog", "global"))
        assert "pass-by-mistake" not in log, "a name may be a password that was sent by mistake"
        assert subject in log


def subjects(server: mongottl.RunningServer, files: Files) -> list[str]:
    """The subjects of certificates that have tried to log in, as the log names them."""
    with Client(server.uri, tlsCAFile=files.ca) as client:
        lines = client.admin.command("getLog", "global")["log"]
    found = {bson.json_util.loads(line)["attr"]["user"] for line in lines if "Authentication failed" in line}
    return [user.removesuffix("@$external") for user in found]
