"""Why a job ran, ran late or did not run at a time, in plain words. Pure: it has no clock and asks no database.

`values` holds what is asked about and what is answered, `moments` what a clock shows, `attempts` the sentences on a
run, and `story` the verdict on a time.
"""

from pgcron_runner.explain.moments import moments_shown
from pgcron_runner.explain.story import MOST, excluded_on, explain
from pgcron_runner.explain.values import Circumstances, ExplainedJob, Explanation, Moment, OccurrenceRun

__all__ = [
    "MOST",
    "Circumstances",
    "ExplainedJob",
    "Explanation",
    "Moment",
    "OccurrenceRun",
    "excluded_on",
    "explain",
    "moments_shown",
]
