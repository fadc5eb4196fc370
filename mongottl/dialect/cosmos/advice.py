"""What to do about a refusal, in the sentences that the log and the page show; the reply is Cosmos DB's own.

    No index serves this sort: create the index {at: 1}, or allow it with --cosmos-allow sort-without-index.
    └── what is refused ─────┘ └── ways, the best first ──────────────────────────────────────────────────┘

An advice is true as it stands: who follows one of its ways gets the command through. `configureCosmos` has the same
names as the options.
"""

from collections.abc import Sequence
from typing import Final

from mongottl.config import COSMOS_VERSIONS
from mongottl.config.cosmos_choices import NOT_CONTINUOUS, PERIODIC
from mongottl.dialect.cosmos.account import Account
from mongottl.document.types import Value
from mongottl.versions import parse_version, since

NO_SETTING: Final = "no setting changes that"


def advice(what: str, *ways: str) -> str:
    """The sentence. what: is refused, and begins with a capital letter. ways: such as those below, "" for none; without
    any nothing helps."""
    helping = [way for way in ways if way]
    return f"{what}: {', or '.join(helping) if helping else NO_SETTING}."


def allow(refusal: str) -> str:
    """refusal: of `cosmos_choices.REFUSALS`."""
    return f"allow it with --cosmos-allow {refusal}"


def allow_variant(account: Account, name: str) -> str:
    """name: of `cosmos_choices.VARIANTS`; what is refused on demand cannot be allowed as well."""
    return f"take {name} out of --cosmos-refuse" if name in account.settings.refuse else allow(name)


def allow_since(account: Account, refusal: str, kind: str, name: str) -> str:
    """`allow` for a name of `versions`, which is only there if the announced version of MongoDB has it; "" if none does
    that the dialect can announce."""
    introduced = since(kind, name)
    if introduced <= parse_version(account.version):
        return allow(refusal)
    return next(
        (
            f"{allow(refusal)} and --server-version {version}"
            for version in COSMOS_VERSIONS
            if parse_version(version) >= introduced
        ),
        "",
    )


def capability(account: Account, name: str, first_version: str = "3.6") -> str:
    """name: of `cosmos_choices.CAPABILITIES`. first_version: that has it, if the account has it."""
    way = f"set --cosmos-capability {name}"
    if parse_version(account.version) < parse_version(first_version):
        way += f" and --server-version {first_version}"
    if account.is_continuous and name in NOT_CONTINUOUS:
        way += f" and --cosmos-backup {PERIODIC}"
    return way


def create_index(key: Sequence[tuple[str, Value]]) -> str:
    return f"create the index {shown_key(key)}"


def shown_key(key: Sequence[tuple[str, Value]]) -> str:
    """The key pattern of an index, as it is written in JavaScript: `{at: 1, 'customer.name': -1}`."""
    return "{" + ", ".join(f"{_shown_path(path)}: {direction}" for path, direction in key) + "}"


def _shown_path(path: str) -> str:
    if path.isidentifier():
        return path
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
