"""The recovery unit of what is loaded from files at start (`exec.write.loading`)."""

from mongottl.catalog.collection import Collection
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.write_unit import WriteUnit


class LoadingUnit(WriteUnit):
    """A unit of work whose documents are neither logged nor counted. The wheel is armed later, when the server runs."""

    def commit(self) -> None:
        self._work.commit()
        self.collection.writes += 1


class LoadingRecoveryUnit(RecoveryUnit):
    """Writes in such units. There are no snapshots yet that need before-images."""

    def write(self, collection: Collection) -> WriteUnit:
        service = self._service
        return LoadingUnit(service, collection, collection.store, service.engine.unit_of_work())
