-- Claim of a queue with a limit, first step: one worker at a time counts and claims. No row: another worker is at it.
select name from pgcron.queues where name = %(queue)s for no key update skip locked
