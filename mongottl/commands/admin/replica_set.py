"""replSetGetStatus, replSetGetConfig and replSetInitiate: the replica set of this one member.

Source: MongoDB's reference of these commands.
"""

from contextlib import suppress
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, ONE, Field
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Int64, ObjectId, Value
from mongottl.document.utf8 import encode_text
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.writes import insert_document, update_record
from mongottl.storage.errors import WriteConflict

TERM: Final = Int64(1)
_PRIMARY: Final = 1
_CONFIG_COLLECTION: Final = ("local", "system.replset")
_HEARTBEAT_MS: Final = 2000


class ReplSetGetStatusRequest(NamedTuple):
    command: Annotated[Value, Field("replSetGetStatus", ONE)]
    initial_sync: Annotated[Value, Field("initialSync", ANY)] = None


class ReplSetGetConfigRequest(NamedTuple):
    command: Annotated[Value, Field("replSetGetConfig", ONE)]
    commitment_status: Annotated[bool, Field("commitmentStatus", BOOL_FIELD)] = False


class ReplSetInitiateRequest(NamedTuple):
    command: Annotated[Value, Field("replSetInitiate", ANY)]


def _name(op: OperationContext) -> str:
    """The member's name, as in the reply of `hello`."""
    return op.service.config.advertise_host or op.client.local


@command(
    "replSetGetStatus",
    ReplSetGetStatusRequest,
    access=on_cluster("replSetGetStatus"),
    help="Describes the state of the replica set and its one member.",
    admin_only=True,
    strict=False,
)
def repl_set_get_status(op: OperationContext, request: ReplSetGetStatusRequest) -> Reply:
    return describe_status(op)


def describe_status(op: OperationContext) -> dict[str, Value]:
    """The state of the replica set and of its one member."""
    service = op.service
    clock = service.cluster_clock
    at: dict[str, Value] = {"ts": clock.operation_time, "t": TERM}
    written = Date(clock.written_ms)
    started = Date(service.started_ms)
    uptime_s = int(service.clock.monotonic_s() - service.started_monotonic_s)
    return {
        "set": service.config.replica_set,
        "date": Date(op.now_ms),
        "myState": _PRIMARY,
        "term": TERM,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "heartbeatIntervalMillis": Int64(_HEARTBEAT_MS),
        "majorityVoteCount": 1,
        "writeMajorityCount": 1,
        "votingMembersCount": 1,
        "writableVotingMembersCount": 1,
        "optimes": {
            "lastCommittedOpTime": at,
            "lastCommittedWallTime": written,
            "readConcernMajorityOpTime": at,
            "appliedOpTime": at,
            "durableOpTime": at,
            "writtenOpTime": at,
            "lastAppliedWallTime": written,
            "lastDurableWallTime": written,
            "lastWrittenWallTime": written,
        },
        "electionCandidateMetrics": {
            "lastElectionReason": "electionTimeout",
            "lastElectionDate": started,
            "electionTerm": TERM,
            "numVotesNeeded": 1,
            "priorityAtElection": 1.0,
            "newTermStartDate": started,
        },
        "members": [
            {
                "_id": 0,
                "name": _name(op),
                "health": 1.0,
                "state": _PRIMARY,
                "stateStr": "PRIMARY",
                "uptime": uptime_s,
                "optime": at,
                "optimeDate": Date(clock.operation_time.time * 1000),
                "optimeWritten": at,
                "optimeWrittenDate": Date(clock.operation_time.time * 1000),
                "lastAppliedWallTime": written,
                "lastDurableWallTime": written,
                "lastWrittenWallTime": written,
                "syncSourceHost": "",
                "syncSourceId": -1,
                "infoMessage": "",
                "electionDate": started,
                "configVersion": 1,
                "configTerm": 1,
                "self": True,
                "lastHeartbeatMessage": "",
            }
        ],
    }


def _config(op: OperationContext) -> dict[str, Value]:
    """The configuration of the replica set, with the address by which the client knows its member."""
    return {
        "_id": op.service.config.replica_set,
        "version": 1,
        "term": 1,
        "members": [
            {
                "_id": 0,
                "host": _name(op),
                "arbiterOnly": False,
                "buildIndexes": True,
                "hidden": False,
                "priority": 1.0,
                "tags": {},
                "secondaryDelaySecs": Int64(0),
                "votes": 1,
            }
        ],
        "protocolVersion": Int64(1),
        "writeConcernMajorityJournalDefault": False,
        "settings": {
            "chainingAllowed": True,
            "heartbeatIntervalMillis": _HEARTBEAT_MS,
            "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10_000,
            "catchUpTimeoutMillis": -1,
            "catchUpTakeoverDelayMillis": 30_000,
            "getLastErrorModes": {},
            "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
            "replicaSetId": _replica_set_id(op),
        },
    }


def publish(op: OperationContext) -> None:
    """Makes the document of local.system.replset, which tools read, the configuration as this client sees it."""
    document = encode(_config(op))
    with Undivided(), suppress(WriteConflict):  # a client writes to it, too
        collection = op.catalog.lookup(*_CONFIG_COLLECTION) or op.catalog.create_collection(*_CONFIG_COLLECTION)
        records, _ = op.recovery_unit.records(collection).scan(0, 1, True, len(document))
        if not records:
            insert_document(op, collection, document)
        elif records[0][1] != document:
            update_record(op, collection, records[0], document)


@command(
    "replSetGetConfig",
    ReplSetGetConfigRequest,
    access=on_cluster("replSetGetConfig"),
    help="Returns the configuration of the replica set.",
    admin_only=True,
    strict=False,
)
def repl_set_get_config(op: OperationContext, request: ReplSetGetConfigRequest) -> Reply:
    """`{config: {_id, version, members, settings, …}}`; with `commitmentStatus` whether it is committed: always."""
    reply: dict[str, Value] = {"config": _config(op)}
    if request.commitment_status:
        reply["commitmentStatus"] = True
    return reply


def _replica_set_id(op: OperationContext) -> ObjectId:
    """An id that is the same for each set of this name, since sets of one member differ in nothing else."""
    return ObjectId(encode_text(op.service.config.replica_set)[:12].ljust(12, b"\0"))


@command(
    "replSetInitiate",
    ReplSetInitiateRequest,
    access=on_cluster("replSetConfigure"),
    help="Refused, since the replica set is there from the start.",
    admin_only=True,
    strict=False,
)
def repl_set_initiate(op: OperationContext, request: ReplSetInitiateRequest) -> Reply:
    """AlreadyInitialized (23), which health checks of containers expect from the second time on."""
    raise CommandError(ErrorCode.AlreadyInitialized, "already initialized")
