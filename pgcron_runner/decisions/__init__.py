"""What a worker decides, in one place. Pure: each rule is handed the time and the facts, and says what is to be done.

`standing`: what the worker may do by what it knows, and what a heartbeat, a new session, a request to stop or the mere
passing of time makes of that. `agenda`: when it fires, what it claims, how long it sleeps. `actions`: what follows.
Whether *others* are alive is judged in `leases`. `tenure` and the duties send the statements and perform the actions.
"""

from pgcron_runner.decisions.actions import Action, Beat, End, Feed, Look, Say, StopRuns
from pgcron_runner.decisions.agenda import Agenda, Lane, LaneDue, NextDue
from pgcron_runner.decisions.standing import Adopted, Beaten, InHand, Phase, Standing

__all__ = [
    "Action",
    "Adopted",
    "Agenda",
    "Beat",
    "Beaten",
    "End",
    "Feed",
    "InHand",
    "Lane",
    "LaneDue",
    "Look",
    "NextDue",
    "Phase",
    "Say",
    "Standing",
    "StopRuns",
]
