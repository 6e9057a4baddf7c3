-- Sessions: who lives, what goes with them, and what follows a restart.

-- Contenders of a server's new run may not see what it has forgotten. So none is granted a lock before
-- every holder of the run before must have noticed. Returns the row of the clock with the end of that.
--
-- `is_known`: whether the caller knows that nobody held a lock before.
CREATE OR REPLACE FUNCTION @schema@.quarantine(
  k @schema@.clock, new_run text, timeout bigint, is_known boolean
) RETURNS @schema@.clock LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  k.longest := greatest(k.longest, timeout);
  IF k.run <> new_run OR k.run IS NULL AND NOT is_known THEN
    -- A holder gives up after half of its timeout; the clock may be set forward once.
    k.quarantine := k.own + k.longest / 4 * 3;
  END IF;
  k.run := new_run;
  RETURN k;
END $$;

-- The run of the server, and of these tables. They come to be others when somebody restores them, which brings
-- back what was before.
CREATE OR REPLACE FUNCTION @schema@.run_here(of_server text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN of_server || ' ' || (SELECT c.tableoid FROM @schema@.clock c LIMIT 1);
END $$;

-- Opens a session over its first connection. Returns its id, how long nobody may be granted a lock, and how
-- long sessions may be kept that are over.
CREATE OR REPLACE FUNCTION @schema@.open(
  secret text, timeout bigint, run text, is_known boolean, OUT id bigint, OUT wait bigint,
  OUT doubt bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.clock;
  has_gap boolean;
BEGIN
  PERFORM @schema@.settle(timeout);
  run := @schema@.run_here(run);
  SELECT * INTO k FROM @schema@.clock c ORDER BY c.own DESC LIMIT 1 FOR UPDATE;
  has_gap := @schema@.server_now() - k.last > k.step;
  k.own := @schema@.own_now(k.own, k.last, k.step);
  k.last := @schema@.server_now();
  -- As many as are opened may die.
  IF k.own >= k.due THEN PERFORM @schema@.end_due(k.own, 2); END IF;
  -- After a gap the store's clock does not say how long a session was silent. Whoever is in contact is heard
  -- before it is due.
  IF has_gap THEN SELECT coalesce(max(s.deadline), k.own) INTO k.doubt FROM @schema@.sessions s; END IF;
  id := greatest(k.last, k.session + 1);
  INSERT INTO @schema@.sessions
    VALUES (id, id || ':' || timeout || ':' || secret || ':1', timeout, k.own + timeout);
  k := @schema@.quarantine(k, run, timeout, is_known);
  UPDATE @schema@.clock c SET last = k.last, own = k.own, session = open.id, run = k.run,
    longest = k.longest, quarantine = k.quarantine, doubt = k.doubt, due = least(c.due, k.own + timeout),
    step = (SELECT min(s.timeout) / 4 FROM @schema@.sessions s)
    WHERE c.own = (SELECT max(x.own) FROM @schema@.clock x);
  wait := greatest(0, k.quarantine - k.own);
  doubt := greatest(0, k.doubt - k.own);
END $$;

-- Deletes nodes of sessions that have ended, up to a bound: a session may have had very many. Whoever waits
-- for such a node waits a little longer; nobody is granted a lock too early. It skips nodes that somebody
-- has locked, as a user's transaction does that was fenced by one. Returns whether it has reached the bound.
CREATE OR REPLACE FUNCTION @schema@.purge() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  ended bigint;
  room integer := 500;
  dirs text[]; names text[];
BEGIN
  FOR ended IN SELECT e.session FROM @schema@.ended e FOR UPDATE SKIP LOCKED LOOP
    -- With `o <> 0`, as the index has no others.
    WITH found AS MATERIALIZED (
      SELECT n.dir, n.name FROM @schema@.nodes n WHERE n.o = ended AND n.o <> 0 LIMIT room
        FOR UPDATE SKIP LOCKED
    ), gone AS (
      DELETE FROM @schema@.nodes n USING found f WHERE n.dir = f.dir AND n.name = f.name
        RETURNING n.dir, n.name
    )
    SELECT array_agg(g.dir), array_agg(g.name) INTO dirs, names FROM gone g;
    -- A statement of its own: it sees the watches that were set until the nodes were deleted.
    PERFORM pg_notify('lock_recipes_' || w.session, '')
      FROM unnest(dirs, names) AS g (dir, name), @schema@.watches w
      WHERE w.dir = g.dir AND w.name = g.name GROUP BY w.session;
    room := room - coalesce(cardinality(dirs), 0);
    PERFORM 1 FROM @schema@.nodes n WHERE n.o = ended AND n.o <> 0 LIMIT 1;
    IF NOT FOUND THEN
      DELETE FROM @schema@.ended e WHERE e.session = ended;
      DELETE FROM @schema@.watches w WHERE w.session = ended;
    END IF;
    EXIT WHEN room <= 0;
  END LOOP;
  RETURN room <= 0;
END $$;

-- Ends a session that nobody else can write any more: its row is locked. Returns as `purge` does.
CREATE OR REPLACE FUNCTION @schema@.end_session(me bigint) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM @schema@.sessions s WHERE s.id = me;
  INSERT INTO @schema@.ended VALUES (me);
  RETURN @schema@.purge();
END $$;

-- Ends sessions that were silent for their timeout, up to so many, unless a request of theirs is being carried
-- out; and deletes nodes. `own` is the store's clock, whose row is locked.
CREATE OR REPLACE FUNCTION @schema@.end_due(own bigint, most integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  WITH found AS MATERIALIZED (
    SELECT s.id FROM @schema@.sessions s WHERE s.deadline <= own
      ORDER BY s.deadline LIMIT most FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM @schema@.sessions s USING found f WHERE s.id = f.id RETURNING s.id
  )
  INSERT INTO @schema@.ended SELECT g.id FROM gone g;
  PERFORM @schema@.purge();
END $$;

-- Goes on with a session over a new connection, and watches again what it watched. The client calls it
-- several times if it watches much.
--
-- A session is known by the number of its connection, too. So what was sent over an earlier one and arrives
-- late finds no session, and does nothing; and this waits for what is under way.
--
-- Arguments: its name without that number, its id, its timeout, the number, run of the server, whether to
-- return the nodes of the session, the numbers by which it may be known, then of each watch: its number,
-- the path, the transactions that created and last changed the node when it was watched.
-- Returns how long nobody may be granted a lock, NULL if the session has ended; the news for each watch ('D'
-- for a deletion, 'C' for other data, '' if it stands); and the paths of the nodes.
CREATE OR REPLACE FUNCTION @schema@.resume(
  called text, me bigint, timeout bigint, connection bigint, run text, wants_nodes boolean,
  known bigint[], numbers bigint[], dirs text[], names text[], created bigint[], changed bigint[],
  OUT wait bigint, OUT news text[], OUT nodes text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.clock;
  deadline bigint; known_as text;
BEGIN
  PERFORM @schema@.settle(timeout);
  SELECT s.deadline, s.name INTO deadline, known_as FROM @schema@.sessions s
    WHERE s.id = me AND s.name IN (SELECT called || ':' || i FROM unnest(known) AS i) FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO k FROM @schema@.clock_row();
  IF deadline <= @schema@.own_now(k.own, k.last, k.step) THEN
    PERFORM @schema@.end_session(me);
    RETURN;
  END IF;
  run := @schema@.run_here(run);
  IF k.run IS DISTINCT FROM run OR k.longest < timeout THEN
    SELECT * INTO k FROM @schema@.clock c ORDER BY c.own DESC LIMIT 1 FOR UPDATE;
  END IF;
  k.own := @schema@.own_now(k.own, k.last, k.step);
  IF k.run IS DISTINCT FROM run OR k.longest < timeout THEN
    k.last := @schema@.server_now();
    k := @schema@.quarantine(k, run, timeout, false);
    UPDATE @schema@.clock c SET last = k.last, own = k.own, run = k.run, longest = k.longest,
      quarantine = k.quarantine WHERE c.own = (SELECT max(x.own) FROM @schema@.clock x);
  END IF;
  wait := greatest(0, k.quarantine - k.own);
  UPDATE @schema@.sessions s
    SET name = called || ':' || connection, deadline = greatest(s.deadline, k.own + timeout)
    WHERE s.id = me;
  SELECT coalesce(array_agg(
      CASE WHEN n.c IS DISTINCT FROM w.c THEN 'D' WHEN n.m <> w.m THEN 'C' ELSE '' END ORDER BY w.i
    ), '{}') INTO news
    FROM unnest(dirs, names, created, changed) WITH ORDINALITY AS w (dir, name, c, m, i)
    LEFT JOIN @schema@.nodes n ON n.dir = w.dir AND n.name = w.name;
  -- Those of the connection before. Of some the client has not heard, and of others it is told now.
  IF known_as <> called || ':' || connection THEN
    DELETE FROM @schema@.watches w WHERE w.session = me;
  END IF;
  INSERT INTO @schema@.watches
    SELECT w.dir, w.name, me, w.number
      FROM unnest(dirs, names, numbers, news) AS w (dir, name, number, news) WHERE w.news = '';
  nodes := '{}';
  IF wants_nodes THEN
    SELECT coalesce(array_agg(@schema@.path_of(n.dir, n.name)), '{}') INTO nodes
      FROM @schema@.nodes n WHERE n.o = me AND n.o <> 0;
  END IF;
END $$;

