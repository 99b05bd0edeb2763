-- How far one message is. No row: it is gone.
select sent_at, given_up_at, tries, error, send_at from pgcron.alerts where id = %(alert_id)s
