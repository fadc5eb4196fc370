"""The values of MongoDB's cluster parameters, which setClusterParameter changes while the server runs.

They are kept in memory until the server ends; MongoDB stores them in `config.clusterParameters`.
"""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.types import MISSING, Int64, Timestamp, Value
from mongottl.document.walk import get_value

# Largest size of what one compaction of encrypted fields reads.
_COMPACTION_BYTES: Final = 256 << 20

DEFAULTS: Final[dict[str, dict[str, Value]]] = {
    "addOrRemoveShardInProgress": {"inProgress": False},
    "changeStreamOptions": {"preAndPostImages": encode({"expireAfterSeconds": "off"})},
    "changeStreams": {"expireAfterSeconds": Int64(3600)},
    "configServerReadPreferenceForCatalogQueries": {"mustAlwaysUseNearest": False},
    "defaultMaxTimeMS": {"readOperations": Int64(0)},
    "fleCompactionOptions": {
        "maxCompactionSize": _COMPACTION_BYTES,
        "maxAnchorCompactionSize": _COMPACTION_BYTES,
        "maxESCEntriesPerCompactionDelete": 350_000,
        "compactAnchorPaddingFactor": 0.0,
    },
    "internalSearchOptions": {"oversubscriptionFactor": 1.064, "batchSizeGrowthFactor": 1.5},
    "pauseMigrationsDuringMultiUpdates": {"enabled": False},
    "shardedClusterCardinalityForDirectConns": {"hasTwoOrMoreShards": False},
}


class ClusterParameters:
    """The current values by name, each the fields of its document.

    set_at: when a parameter was set last; it has no entry while it has its default.
    default_max_time_ms: the limit for reads without `maxTimeMS`, in milliseconds; 0 for none.
    images_kept_s: how long images for change streams are kept, in seconds; None while their events are.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Value]] = {name: dict(values) for name, values in DEFAULTS.items()}
        self.set_at: dict[str, Timestamp] = {}
        self.default_max_time_ms = 0
        self.images_kept_s: int | None = None

    def value(self, name: str) -> dict[str, Value]:
        return self._values[name]

    def replace(self, name: str, values: dict[str, Value], at: Timestamp) -> None:
        """Sets all fields of a parameter."""
        self._values[name] = values
        self.set_at[name] = at
        limit = self._values["defaultMaxTimeMS"]["readOperations"]
        assert isinstance(limit, int)
        self.default_max_time_ms = int(limit)
        images = self._values["changeStreamOptions"]["preAndPostImages"]
        kept_s = get_value(images, "expireAfterSeconds") if isinstance(images, bytes) else MISSING
        self.images_kept_s = int(kept_s) if isinstance(kept_s, int) else None
