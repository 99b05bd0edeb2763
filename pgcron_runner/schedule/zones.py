"""Time-zone names and where their rules come from. It knows no schedules.

Rules are taken from the `tzdata` package first and from the system's files second, the other way round than
zoneinfo does: hosts with the same packages then agree on every instant, whatever their distributions ship
(seen: a Debian whose rules for Vancouver were a year behind the package).
"""

from __future__ import annotations

import difflib
import importlib
import re
import zoneinfo
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pgcron_runner.errors import InvalidInput

FIELD: Final = "timezone"

_LONGEST: Final = 64
_SHAPE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", re.ASCII)
_EXAMPLE: Final = "Europe/Berlin, America/New_York or UTC"
_COPIES: Final = ("posix/", "right/")
# No zones but settings of one host.
_HOST: Final = ("localtime", "posixrules", "factory", "local", "system")
# Abbreviations say an offset, not a place, and most mean several; the commonest reading is first.
_ABBREVIATIONS: Final = {
    "acst": "Australia/Darwin",
    "aest": "Australia/Brisbane or Australia/Sydney",
    "aedt": "Australia/Sydney",
    "akst": "America/Anchorage",
    "ast": "America/Halifax, America/Puerto_Rico or Asia/Riyadh",
    "awst": "Australia/Perth",
    "bst": "Europe/London or Asia/Dhaka",
    "brt": "America/Sao_Paulo",
    "cdt": "America/Chicago",
    "cest": "Europe/Berlin",
    "cet": "Europe/Berlin",
    "cst": "America/Chicago, Asia/Shanghai or America/Havana",
    "cst6cdt": "America/Chicago",
    "eat": "Africa/Nairobi",
    "edt": "America/New_York",
    "eest": "Europe/Athens",
    "eet": "Europe/Athens",
    "est": "America/New_York, or America/Panama without daylight saving",
    "est5edt": "America/New_York",
    "gmt": "UTC, or Europe/London with daylight saving",
    "hkt": "Asia/Hong_Kong",
    "hst": "Pacific/Honolulu",
    "ist": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem",
    "jst": "Asia/Tokyo",
    "kst": "Asia/Seoul",
    "mdt": "America/Denver",
    "met": "Europe/Berlin",
    "msk": "Europe/Moscow",
    "mst": "America/Phoenix, or America/Denver with daylight saving",
    "mst7mdt": "America/Denver",
    "nzst": "Pacific/Auckland",
    "nzdt": "Pacific/Auckland",
    "pdt": "America/Los_Angeles",
    "pkt": "Asia/Karachi",
    "prc": "Asia/Shanghai",
    "pst": "America/Los_Angeles or Asia/Manila",
    "pst8pdt": "America/Los_Angeles",
    "roc": "Asia/Taipei",
    "rok": "Asia/Seoul",
    "sast": "Africa/Johannesburg",
    "sgt": "Asia/Singapore",
    "uct": "UTC",
    "wat": "Africa/Lagos",
    "west": "Europe/Lisbon",
    "wet": "Europe/Lisbon",
    "wib": "Asia/Jakarta",
    "z": "UTC",
    "zulu": "UTC",
}
_OFFSET: Final = re.compile(r"(?P<word>[A-Za-z]*)(?P<sign>[+-])?(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?", re.ASCII)
_ETC: Final = re.compile(r"Etc/GMT(?P<sign>[+-])(?P<hours>[1-9]\d?)", re.ASCII)


def check_timezone(name: str) -> ZoneInfo:
    """The zone of an exact IANA name; InvalidInput(field="timezone") proposes the right one otherwise.

    Accepted are the names of the IANA data (also old ones such as US/Eastern), UTC, and Etc/GMT+5 with its
    inverted sign (`zone_note`). Refused are abbreviations and POSIX strings, whose meaning differs between
    Postgres, libraries and people, and names that depend on the host.
    """
    return _zone(name) if isinstance(name, str) else _refuse_type(name)


def zone_data_version() -> str:
    """The IANA release of the rules in use, such as `2026b`; releases sort by their age.

    `(unknown)` where neither source tells: it sorts before all of them.
    """
    try:
        return str(importlib.import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return _system_version()


def zone_note(name: str) -> str | None:
    """What a person should be told about an accepted name: that Etc/GMT+5 lies five hours behind UTC."""
    found = _ETC.fullmatch(name)
    if not found:
        return None
    sign, side = ("-", "behind") if found["sign"] == "+" else ("+", "ahead of")
    return f"{name} is UTC{sign}{found['hours']}, {found['hours']} h {side} UTC: its sign is inverted"


@lru_cache(maxsize=2_000)
def _zone(name: str) -> ZoneInfo:
    if not name.strip():
        raise InvalidInput(FIELD, name, "is empty; a job must say its zone", example=_EXAMPLE)
    if len(name) > _LONGEST:
        raise InvalidInput(FIELD, f"{name[:_LONGEST]}…", "is too long for a time-zone name", example=_EXAMPLE)
    if problem := _unwanted(name):
        raise InvalidInput(FIELD, name, problem, example=_proposal(name))
    return _load(name)


def _refuse_type(name: object) -> ZoneInfo:
    raise InvalidInput(FIELD, name, "is not a time-zone name", example=_EXAMPLE)


def _unwanted(name: str) -> str | None:
    """Why a name is refused, although some library might take it; None for a right one."""
    lower = name.lower()
    if lower.startswith(_COPIES):
        return "is a copy that not every host has"
    if lower in _HOST:
        return "depends on the host"
    if lower in _ABBREVIATIONS:
        return "is an abbreviation, which names no place and has several meanings"
    if _OFFSET.fullmatch(name):
        return "is an offset or a POSIX string, which knows no daylight saving and whose sign is read both ways"
    if not _SHAPE.fullmatch(name):
        return "is not a time-zone name"
    if name not in _names():
        return f"is not in the time-zone data of this host ({zone_data_version()})"
    return None


def _proposal(name: str) -> str:
    lower = name.lower()
    for copy in _COPIES:
        if lower.startswith(copy):
            return _near(name[len(copy) :]) or _EXAMPLE
    if lower in _ABBREVIATIONS:
        return _ABBREVIATIONS[lower]
    if found := _OFFSET.fullmatch(name):
        return _of_offset(found)
    return _near(name) or _EXAMPLE


def _of_offset(found: re.Match[str]) -> str:
    hours, minutes = int(found["hours"]), int(found["minutes"] or 0)
    if hours == minutes == 0:
        return "UTC"
    if minutes or not found["sign"] or hours > 12:
        return _EXAMPLE
    # Etc names count westward, people eastward.
    sign = "-" if found["sign"] == "+" else "+"
    return f"the name of a place, such as Europe/Berlin, or Etc/GMT{sign}{hours} for UTC{found['sign']}{hours}"


def _near(name: str) -> str | None:
    """The name that was probably meant: other case, blanks for underscores, the city alone, or a slip."""
    wanted = name.strip().lower().replace(" ", "_")[:_LONGEST]
    known = _lower_names()
    if wanted in known:
        return known[wanted]
    cities = {lower.rsplit("/", 1)[-1]: exact for lower, exact in known.items()}
    if wanted in cities:
        return cities[wanted]
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8)
    return known[close[0]] if close else None


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """All names of the data in use that this module accepts or explains."""
    try:
        listed = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    except (ModuleNotFoundError, OSError):
        return frozenset(zoneinfo.available_timezones())
    return frozenset(listed)


@lru_cache(maxsize=1)
def _lower_names() -> dict[str, str]:
    return {name.lower(): name for name in sorted(_names()) if _unwanted(name) is None}


def _load(name: str) -> ZoneInfo:
    try:
        path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        with path.open("rb") as rules:
            return ZoneInfo.from_file(rules, key=name)
    except (ModuleNotFoundError, OSError):
        pass
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise InvalidInput(FIELD, name, "has no zone data on this host", example=_EXAMPLE) from None


def _system_version() -> str:
    for folder in zoneinfo.TZPATH:
        try:
            with (Path(folder) / "tzdata.zi").open(encoding="utf-8") as rules:
                return rules.readline().removeprefix("# version").strip()
        except OSError:
            continue
    return "(unknown)"
