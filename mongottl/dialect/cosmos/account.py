"""The account that a server of the dialect `cosmos` stands for: capabilities, backup, and what is allowed.

All of it comes from the command line, and can be changed while the server runs by `configureCosmos`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mongottl.config.cosmos_choices import (
    BACKUPS,
    BATCH,
    BATCH_TEXTS,
    CAPABILITIES,
    CONTINUOUS,
    METERED,
    NOT_CONTINUOUS,
    PERIODIC,
    REFUSALS,
    THROUGHPUTS,
    VARIANTS,
)


class AccountSettings(NamedTuple):
    """capabilities: of `CAPABILITIES`. backup: one of `BACKUPS`. allow: names of `REFUSALS` and `VARIANTS` that are
    switched off. throughput: one of `THROUGHPUTS`. refuse: names of `VARIANTS` that are switched on. batch_text: one of
    `BATCH_TEXTS`."""

    capabilities: frozenset[str] = frozenset()
    backup: str = PERIODIC
    allow: frozenset[str] = frozenset()
    throughput: str = METERED
    refuse: frozenset[str] = frozenset()
    batch_text: str = BATCH


class Account:
    """settings: see `AccountSettings`. version: the server version that it announces, `major.minor`."""

    def __init__(self, version: str) -> None:
        self.version: Final = version
        self.settings = AccountSettings()
        self.throughput = METERED
        self._usual: Final = frozenset(REFUSALS) | {
            name for name, variant in VARIANTS.items() if version in variant.versions
        }
        self._in_force: frozenset[str] = self._usual

    def can(self, capability: str) -> bool:
        """Whether the account has a capability."""
        return capability in self.settings.capabilities

    def refuses(self, name: str) -> bool:
        """Whether a refusal, or a behaviour of `VARIANTS`, is in force."""
        return name in self._in_force

    @property
    def is_continuous(self) -> bool:
        """Whether the account has continuous backup."""
        return self.settings.backup == CONTINUOUS

    def configure(self, settings: AccountSettings) -> None:
        """Sets all of it. ValueError says what is wrong; then nothing is changed."""
        _check("capability", settings.capabilities, CAPABILITIES)
        _check("backup", [settings.backup], BACKUPS)
        _check("refusal", settings.allow, (*REFUSALS, *VARIANTS))
        _check("behaviour", settings.refuse, VARIANTS)
        _check("throughput", [settings.throughput], THROUGHPUTS)
        _check("text of batches", [settings.batch_text], BATCH_TEXTS)
        for capability in NOT_CONTINUOUS:
            if capability in settings.capabilities and settings.backup == CONTINUOUS:
                raise ValueError(f"{capability} cannot be had with continuous backup")
        for name in sorted(settings.allow & settings.refuse):
            raise ValueError(f"{name} cannot be both allowed and refused")
        self.settings = settings
        self.throughput = settings.throughput
        self._in_force = self._usual - settings.allow | settings.refuse


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; there is {', '.join(known)}")
