"""When a job is due: the text people write, as instants, by pure functions. No database, no clock.

Cron lines are read field by field (`expression`, `fields`; croniter expands the values in `expand`), which
gives wall-clock slots (`times`, `dates`, `slots`). `timeline` says what a zone's clock shows, `instants` puts
the two together under the daylight-saving rules, `intervals` holds what has no wall clock, and `schedule` is
the union of all lines.
"""

from pgcron_runner.schedule.expression import parse_expression
from pgcron_runner.schedule.schedule import Schedule, parse_schedule
from pgcron_runner.schedule.zones import check_timezone, zone_data_version, zone_note

__all__ = [
    "Schedule",
    "check_timezone",
    "parse_expression",
    "parse_schedule",
    "zone_data_version",
    "zone_note",
]
