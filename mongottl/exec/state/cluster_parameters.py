"""The values of MongoDB's cluster parameters, which setClusterParameter changes while the server runs.

They are stored with the data, as MongoDB stores them in `config.clusterParameters`.
"""

from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import MISSING, Int64, Timestamp, Value
from mongottl.document.walk import fields, fields_by_name, get_value

# Where the catalog has them, and what stands beside a parameter's fields there.
_ENTRY: Final = "clusterParameters"
_SET_AT: Final = "clusterParameterTime"
_MS_PER_S: Final = 1000
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
    images_kept_s: how long images for change streams are kept, in seconds; None while their events are. images_from_ms:
    images from before this wall time have expired for good, by the values that were set before.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._values: dict[str, dict[str, Value]] = {}
        self.set_at: dict[str, Timestamp] = {}
        self.default_max_time_ms = 0
        self.images_kept_s: int | None = None
        self.images_from_ms: int = 0
        self.reload()

    def reload(self) -> None:
        """Reads what is stored: at the start, and after a saved state was restored."""
        self._values = {name: dict(values) for name, values in DEFAULTS.items()}
        self.set_at = {}
        self.default_max_time_ms = 0
        self.images_kept_s = None
        self.images_from_ms = 0
        stored = self._catalog.server_entry(_ENTRY)
        if stored is not None:
            self._load(stored)

    def value(self, name: str) -> dict[str, Value]:
        return self._values[name]

    def has_image(self, written_ms: int, now_ms: int) -> bool:
        """Whether the images of a change at a wall time have not expired."""
        kept_s = self.images_kept_s
        return written_ms >= self.images_from_ms and (kept_s is None or now_ms < written_ms + kept_s * _MS_PER_S)

    def replace(self, name: str, values: dict[str, Value], at: Timestamp, now_ms: int) -> None:
        """Sets all fields of a parameter, and stores it."""
        with Undivided():
            if self.images_kept_s is not None:
                self.images_from_ms = max(self.images_from_ms, now_ms - self.images_kept_s * _MS_PER_S + 1)
            self._values[name] = values
            self.set_at[name] = at
            self._apply()
            parameters: dict[str, Value] = {
                name: encode({**self._values[name], _SET_AT: at}) for name, at in self.set_at.items()
            }
            state: dict[str, Value] = {"imagesFrom": Int64(self.images_from_ms), "parameters": encode(parameters)}
            self._catalog.save_server_entry(_ENTRY, encode(state))

    def _load(self, stored: bytes) -> None:
        images_from = get_value(stored, "imagesFrom")
        parameters = get_value(stored, "parameters")
        assert isinstance(images_from, int) and isinstance(parameters, bytes)
        self.images_from_ms = int(images_from)
        for name, document in fields(parameters):
            assert isinstance(document, bytes)
            values = fields_by_name(document)
            at = values.pop(_SET_AT)
            assert isinstance(at, Timestamp)
            if name in DEFAULTS:
                self._values[name] = {**DEFAULTS[name], **values}
                self.set_at[name] = at
        self._apply()

    def _apply(self) -> None:
        """Derives from the values what has an effect."""
        limit = self._values["defaultMaxTimeMS"]["readOperations"]
        assert isinstance(limit, int)
        self.default_max_time_ms = int(limit)
        images = self._values["changeStreamOptions"]["preAndPostImages"]
        kept_s = get_value(images, "expireAfterSeconds") if isinstance(images, bytes) else MISSING
        self.images_kept_s = int(kept_s) if isinstance(kept_s, int) else None
