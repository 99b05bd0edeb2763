-- For the doctor: a notification to whoever listens on channel pgcron_doctor.
select pg_notify('pgcron_doctor', %(payload)s)
