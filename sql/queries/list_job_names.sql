-- Names of jobs that begin with a text, at most `limit`: for completion on the command line.
select name from pgcron.jobs where starts_with(name, %(beginning)s) order by name limit %(limit)s
