-- compatible
-- What is said of channels and routes is looked at when it is saved, also where it is written by hand. Whether Apprise knows a
-- scheme is beyond SQL: channel add and doctor tell that.
--   check_channel, check_route   triggers
-- No error may quote a target, which may be a secret. The constraints of the table would: the server shows the whole row with them.

create function pgcron.check_channel() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    target text := btrim(new.target, E' \t\r\n');
    problem text;
    example text := 'Such as slack://TOKEN_A/TOKEN_B/TOKEN_C, pagerduty://ROUTING_KEY, or a place where the workers find one: env:OPS_URL, file:/run/secrets/ops-url.';
begin
    if not isfinite(new.muted_until) then
        raise exception 'muted_until: % is not an instant', quote_literal(new.muted_until) using errcode = 'check_violation', column = 'muted_until',
            hint = 'Such as now() + interval ''1 hour''. For good: enabled = false.';
    end if;
    -- A channel that was made before these checks can still be muted.
    if tg_op = 'UPDATE' and (new.name, new.target, new.timezone, new.quiet_from, new.quiet_until, new.digest_every) is not distinct from
                            (old.name, old.target, old.timezone, old.quiet_from, old.quiet_until, old.digest_every) then
        return new;
    end if;
    if new.name is null or new.name !~ '^[A-Za-z0-9_.:-]{1,63}$' then
        raise exception 'name: % is not a name of a channel', coalesce(quote_literal(new.name), 'null') using errcode = 'check_violation', column = 'name',
            hint = '1 to 63 of letters, digits and _ . : -, such as ops.';
    end if;
    problem := case
        when target is null or target = '' then 'it is empty'
        when target ~ '^env:' then case when target !~ '^env:\s*[A-Za-z_][A-Za-z0-9_]*$' then 'after env: there is no name of an environment variable' end
        when target ~ '^file:' then case when target !~ '^file:\s*/.' then 'after file: there is no whole path' end
        when target !~ '^[A-Za-z][A-Za-z0-9+.-]*://.' then 'it is not a URL'
        when target ~* '^https?://' then 'it is a web address'
        when target ~* '^pagerduty://' then case when target !~* '^pagerduty://[^/?#@]+/*([?#].*)?$' then 'after pagerduty:// there is not just one routing key' end
        when target ~* '^webhook[+]https?://' then case when target !~* '^webhook[+]https?://[^/?#]' then 'it has no host' end
    end;
    if problem is not null then
        raise exception 'target: %', problem using errcode = 'check_violation', column = 'target',
            detail = format('Nothing was saved of channel %s.', coalesce(quote_literal(new.name), 'null')),
            hint = case when target ~* '^https?://' then 'For JSON of our own put webhook+ in front, such as webhook+https://example.org/hook.' else example end;
    end if;
    if new.timezone is not null then
        begin
            if new.timezone !~ '^([A-Za-z_]+(/[A-Za-z0-9_+-]+){1,2}|[A-Z][A-Za-z-]+)$' or new.timezone ~ '^(posix|right)/' then
                raise exception using errcode = 'invalid_parameter_value';
            end if;
            perform now() at time zone new.timezone;
        exception when invalid_parameter_value then
            raise exception 'timezone: % is not a known time zone', quote_literal(new.timezone)
                using errcode = 'invalid_parameter_value', column = 'timezone', hint = 'An IANA name, such as Europe/Berlin or UTC.';
        end;
    end if;
    if new.digest_every <= interval '0' or not isfinite(new.digest_every) then
        raise exception 'digest_every: % is not a pause', quote_literal(new.digest_every) using errcode = 'check_violation', column = 'digest_every', hint = 'Such as ''15 minutes''; null for a message each.';
    end if;
    if num_nulls(new.quiet_from, new.quiet_until) = 1 then
        raise exception 'quiet_from, quiet_until: only one of them is given' using errcode = 'check_violation', column = 'quiet_from',
            hint = 'Both, such as ''22:00'' and ''07:00'', or none.';
    elsif new.quiet_from is not null and new.timezone is null then
        raise exception 'timezone: quiet hours need a zone' using errcode = 'not_null_violation', column = 'timezone', hint = 'An IANA name, such as Europe/Berlin or UTC.';
    end if;
    return new;
end $$;
revoke all on function pgcron.check_channel() from public;
comment on function pgcron.check_channel() is 'Trigger of pgcron.channels: validates a row in words that never quote the target.';
create trigger check_channel before insert or update of name, target, timezone, quiet_from, quiet_until, digest_every, muted_until on pgcron.channels
    for each row execute function pgcron.check_channel();

create function pgcron.check_route() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    known constant text[] := '{failed,timed_out,lost,launch_failed,invalid,late,missed,long,recovered}';
    unknown text;
begin
    select event into unknown from unnest(new.events) as event where event is null or event <> all (known) limit 1;
    if found then
        raise exception 'events: % is none of them', coalesce(quote_literal(unknown), 'null') using errcode = 'check_violation', column = 'events',
            hint = 'Of: ' || array_to_string(known, ', ') || '.';
    end if;
    if cardinality(new.events) = 0 then
        raise exception 'events: there is none, so nobody would be told' using errcode = 'check_violation', column = 'events',
            hint = 'Of: ' || array_to_string(known, ', ') || '.';
    end if;
    if btrim(new.job_pattern, E' \t\r\n') = '' then
        raise exception 'job_pattern: it is empty' using errcode = 'check_violation', column = 'job_pattern', hint = 'Names of jobs with * for any text, such as billing-*, or * for all.';
    end if;
    return new;
end $$;
revoke all on function pgcron.check_route() from public;
comment on function pgcron.check_route() is 'Trigger of pgcron.routes: validates a row in words.';
create trigger check_route before insert or update of events, job_pattern on pgcron.routes
    for each row execute function pgcron.check_route();
