-- The database's clock, which all times shown to people are counted from. Row: now.
select clock_timestamp() as now
