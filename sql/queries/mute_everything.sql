-- No alert about anything before an instant; null: alerts again.
update pgcron.settings set muted_until = %(until)s
