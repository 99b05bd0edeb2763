-- Demo: four more jobs. slow is due twice as often as it can run, flaky fails the first time, and backup will be running
-- when its worker is killed. noted.sh and backup.sh lie in the folder that the demo's workers were started in.
insert into pgcron.jobs (name, schedule, timezone, kind, command, max_attempts, retry_delay)
values ('ping', '@every 3s', 'UTC', 'shell', 'sh noted.sh echo pong', default, default),
       ('slow', '@every 2s', 'UTC', 'shell', 'sh noted.sh sleep 4', default, default),
       ('flaky', '@every 5s', 'UTC', 'shell', 'sh noted.sh test $PGCRON_ATTEMPT -gt 1', 2, '1 second'),
       ('backup', to_char(now() at time zone 'UTC' + interval '4 seconds', '"@at "YYYY-MM-DD"T"HH24:MI:SS'), 'UTC', 'shell',
        'sh noted.sh sh backup.sh', 3, '1 second')
