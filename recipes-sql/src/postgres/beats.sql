-- Beats, news, and what users call.

-- Removes containers that have been empty for a while, up to so many. `own` is the store's clock.
CREATE OR REPLACE FUNCTION @schema@.reap(own bigint, rest bigint, most integer) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.containers;
  up_dir text; up_name text;
  refused text;
BEGIN
  FOR k IN
    SELECT * FROM @schema@.containers c WHERE c.due <= own ORDER BY c.due LIMIT most
      FOR UPDATE SKIP LOCKED
  LOOP
    up_dir := @schema@.parent_of(k.dir);
    up_name := @schema@.name_of(k.dir);
    -- It waits for nobody.
    PERFORM 1 FROM @schema@.counts t WHERE t.dir = up_dir AND t.name = up_name
      ORDER BY t.p DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM 1 FROM @schema@.counts t WHERE t.dir = k.dir AND t.name = k.name
      ORDER BY t.p DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM 1 FROM @schema@.nodes n WHERE n.dir = k.dir AND n.name = k.name FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    refused := @schema@.delete_lasting(
      @schema@.server_now(), up_dir, up_name, k.dir, k.name, NULL);
    IF refused = '' THEN
      PERFORM pg_notify('lock_recipes_' || w.session, '') FROM @schema@.watches w
        WHERE w.dir = k.dir AND w.name = k.name GROUP BY w.session;
    ELSE
      UPDATE @schema@.containers c SET due = own + rest WHERE c.dir = k.dir AND c.name = k.name;
    END IF;
  END LOOP;
END $$;

-- Keeps a session alive, and now and then looks after all that nobody keeps alive.
--
-- Returns the step of the clock, NULL if the session has ended; and how long it is until a session is due.
CREATE OR REPLACE FUNCTION @schema@.beat(
  known_as text, me bigint, timeout bigint, rest bigint, OUT step bigint, OUT due bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.clock;
  now bigint;
BEGIN
  IF current_setting('lock_recipes.settled', true) IS DISTINCT FROM timeout::text THEN
    PERFORM @schema@.settle(timeout);
  END IF;
  -- First, as whoever has locked the clock must not wait for a session.
  UPDATE @schema@.sessions s
    SET deadline = greatest(s.deadline, @schema@.own_now(c.own, c.last, c.step) + timeout)
    FROM @schema@.clock_row() c WHERE s.id = me AND s.name = known_as
      AND s.deadline > @schema@.own_now(c.own, c.last, c.step);
  IF NOT FOUND THEN
    PERFORM 1 FROM @schema@.sessions s WHERE s.id = me AND s.name = known_as FOR UPDATE SKIP LOCKED;
    IF FOUND THEN PERFORM @schema@.end_session(me); END IF;
    RETURN;
  END IF;
  SELECT * INTO k FROM @schema@.clock_row();
  now := @schema@.server_now();
  -- All sessions beat, so the row would be written very often. It must be in time for the gap rule.
  IF now < k.last OR now > k.last + k.step / 8
    OR @schema@.own_now(k.own, k.last, k.step) >= k.due
  THEN
    SELECT * INTO k FROM @schema@.clock c ORDER BY c.own DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      k.own := @schema@.own_now(k.own, k.last, k.step);
      k.last := @schema@.server_now();
      PERFORM @schema@.end_due(k.own, 4);
      PERFORM @schema@.reap(k.own, rest, 16);
      SELECT min(s.timeout) / 4, min(s.deadline) INTO k.step, k.due FROM @schema@.sessions s;
      PERFORM 1 FROM @schema@.ended LIMIT 1;
      IF FOUND THEN k.due := 0; END IF;
      UPDATE @schema@.clock c
        SET last = k.last, own = k.own, step = k.step, due = k.due
        WHERE c.own = (SELECT max(x.own) FROM @schema@.clock x);
    END IF;
  END IF;
  SELECT c.step, greatest(0, c.due - @schema@.own_now(c.own, c.last, c.step)) INTO step, due
    FROM @schema@.clock_row() c;
END $$;

-- Closes a session, which deletes its nodes. Returns whether nodes may be left that can be deleted at once;
-- the client then calls it again.
CREATE OR REPLACE FUNCTION @schema@.close(known_as text, me bigint, timeout bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  PERFORM @schema@.settle(timeout);
  PERFORM 1 FROM @schema@.sessions s WHERE s.id = me AND s.name = known_as FOR UPDATE;
  IF FOUND THEN RETURN @schema@.end_session(me); END IF;
  PERFORM 1 FROM @schema@.ended e WHERE e.session = me;
  RETURN FOUND AND @schema@.purge();
END $$;

-- ---- News.

-- The news for watches of a session: 'D' if the node was deleted, 'C' if its data were changed, '' if
-- neither, all of one moment. `ahead` is the least count of nodes that are ahead of a watched node of
-- another session, if that is wanted; no more than 50. `still` says that nobody is changing a watched node:
-- whoever does so from now on finds the watch, and rings. Who had begun before may not have found it.
-- `own_still` says so of the session's own nodes.
--
-- Of each watch: its number, the path, the transactions that created and last changed the node.
CREATE OR REPLACE FUNCTION @schema@.poll(
  me bigint, numbers bigint[], dirs text[], names text[], created bigint[], changed bigint[],
  wants_ahead boolean, OUT news text[], OUT ahead bigint, OUT still boolean, OUT own_still boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  SELECT
    array_agg(
      CASE WHEN n.c IS DISTINCT FROM w.c THEN 'D' WHEN n.m <> w.m THEN 'C' ELSE '' END ORDER BY w.i),
    min(CASE WHEN wants_ahead AND n.o <> me THEN (
      SELECT count(*) FROM (
        SELECT FROM @schema@.nodes x WHERE x.dir || '' = n.dir AND x.seq < n.seq
          AND x.seq >= (SELECT t.low FROM @schema@.counts t
            WHERE t.dir = @schema@.parent_of(n.dir) AND t.name = @schema@.name_of(n.dir)
            ORDER BY t.p DESC LIMIT 1)
          LIMIT 50
      ) AS those
    ) END),
    -- Whoever changes it, or locks it, leaves a trace before the commit.
    coalesce(bool_and(n.xmax = '0'::xid), true),
    coalesce(bool_and(n.xmax = '0'::xid) FILTER (WHERE n.o = me), true)
    INTO news, ahead, still, own_still
    FROM unnest(dirs, names, created, changed) WITH ORDINALITY AS w (dir, name, c, m, i)
    LEFT JOIN @schema@.nodes n ON n.dir = w.dir AND n.name = w.name;
  IF 'D' = ANY (news) OR 'C' = ANY (news) THEN
    -- A request that is under way may be deleting them, too.
    DELETE FROM @schema@.watches o WHERE o.ctid = ANY (ARRAY(
      SELECT h.ctid
        FROM unnest(dirs, names, numbers, news) AS w (dir, name, number, news), @schema@.watches h
        WHERE w.news <> '' AND h.dir = w.dir AND h.name = w.name AND h.session = me
          AND h.number <= w.number
        FOR UPDATE OF h SKIP LOCKED
    ));
  END IF;
END $$;

-- ---- For users.

-- Fails unless the lock node of a path stands that was created by this transaction: the path of a guard's
-- node, and its fencing token. Otherwise nobody can delete it until the caller's transaction is over. So
-- that transaction is committed only while the lock is held.
--
-- A node of a session that has ended may stand because another transaction has fenced it. If more could
-- begin, the lock would never be free.
CREATE OR REPLACE FUNCTION @schema@.fence(path text, token bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n
    WHERE n.dir = @schema@.parent_of(path) AND n.name = @schema@.name_of(path) AND n.c = token
      AND NOT EXISTS (SELECT FROM @schema@.ended e WHERE e.session = n.o)
    FOR KEY SHARE OF n;
  IF NOT FOUND THEN
    RAISE EXCEPTION SQLSTATE 'LR001' USING
      MESSAGE = format('the lock is not held any more: %s with token %s', path, token);
  END IF;
END $$;
