"""Request units per second that are provisioned for a collection, or for all collections of a database together.

Source: Microsoft's "Custom commands to manage data in Azure Cosmos DB for MongoDB".
"""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value

# What a collection has for which nothing was asked, in a database that shares nothing.
DEFAULT_UNITS_PER_S: Final = 400
# Of an autoscale maximum, the part that is always provisioned.
_AUTOSCALE_PART: Final = 10


class Throughput:
    """units_per_s: request units per second; with `autoscale` a maximum, up to which they grow by themselves."""

    def __init__(self, units_per_s: int, autoscale: bool = False) -> None:
        self.units_per_s = units_per_s
        self.autoscale = autoscale

    def document(self) -> bytes:
        """As the catalog stores it."""
        return encode({"unitsPerSecond": self.units_per_s, "autoscale": self.autoscale})

    def described(self) -> dict[str, Value]:
        """`{provisionedThroughput}`, with autoscale a tenth of the maximum, and then `{autoScaleSettings}` as well."""
        if not self.autoscale:
            return {"provisionedThroughput": self.units_per_s}
        return {
            "provisionedThroughput": self.units_per_s // _AUTOSCALE_PART,
            "autoScaleSettings": encode({"maxThroughput": self.units_per_s}),
        }


def throughput_from(document: Value) -> Throughput | None:
    """What `Throughput.document` has stored; None for anything else."""
    units = get_value(document, "unitsPerSecond") if isinstance(document, bytes) else MISSING
    if not isinstance(document, bytes) or not isinstance(units, int):
        return None
    return Throughput(int(units), get_value(document, "autoscale") is True)
