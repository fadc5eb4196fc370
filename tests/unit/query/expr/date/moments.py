"""Dates as tests write them."""

import datetime

from bson.datetime_ms import DatetimeMS


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, ms: int = 0) -> DatetimeMS:
    moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return DatetimeMS(int(moment.timestamp()) * 1000 + ms)


DAY = at(2024, 2, 29, 22, 5, 6, 7)  # a Thursday
