-- What the connection of requests carries most: the acquire and the release of one lock, and the look of who
-- waits for it.
--
-- All are in `requests`, too. They are here once more for their cost: `requests` takes five times as many
-- statements and expressions for them. If anything is not simple they change nothing and return NULL, or fail
-- (23505, the name exists), and `requests` finds out why: the session has ended or is late, the directory is
-- missing or goes with a session, the node is missing, lasting or fenced.
--
-- They do not settle anything: the client calls them over connections only that have the settings from the
-- beginning.

-- Watches the node with this place and the two right ahead of it, as far as the session does not watch them
-- yet: who looks again has to write nothing then, and waits for no disk. Returns each as its watch's number,
-- name, data (hexadecimal) and stat, with '/' between all; NULL if none is new. The numbers of the watches
-- begin with `first`.
--
-- A watch and its node are looked at by one statement, so the data are those that are watched. Who had begun
-- to delete the node before this is committed rings nobody: see `poll`.
CREATE OR REPLACE FUNCTION @schema@.watch_ahead(
  me bigint, dir text, low bigint, place bigint, first bigint
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  answer text;
BEGIN
  WITH found AS MATERIALIZED (
    SELECT x.*, row_number() OVER () + first - 1 AS number, coalesce(t.q, 0) AS q, coalesce(t.p, x.c) AS p,
      -- A node that goes with a session has none.
      CASE WHEN x.o <> 0 THEN 0 ELSE (
        SELECT count(*) FROM @schema@.nodes y WHERE y.dir || '' = @schema@.path_of(x.dir, x.name) AND y.seq >= t.low
      ) END AS children
    FROM (
      SELECT * FROM @schema@.nodes n WHERE n.dir || '' = dir AND n.seq BETWEEN low AND place
        ORDER BY n.seq DESC LIMIT 3
    ) AS x LEFT JOIN LATERAL (
      SELECT t.q, t.p, t.low FROM @schema@.counts t WHERE x.o = 0 AND t.dir = x.dir AND t.name = x.name
        ORDER BY t.p DESC LIMIT 1
    ) AS t ON true
    WHERE NOT EXISTS (
      SELECT FROM @schema@.watches w WHERE w.dir = x.dir AND w.name = x.name AND w.session = me
    )
  ), watched AS (
    INSERT INTO @schema@.watches SELECT f.dir, f.name, me, f.number FROM found f
  )
  SELECT string_agg(concat_ws('/', f.number, f.name, encode(f.d, 'hex'), f.c, f.m, f.v, f.o,
      f.children, @schema@.signed(f.q * 2 - f.children), f.p), '/') INTO answer
    FROM found f;
  RETURN answer;
END $$;

-- Creates a node that is ephemeral and sequential, and looks: an acquire.
--
-- Arguments: session with the number of the connection, its id, its timeout, the highest number of a
-- transaction that the client has seen, the directory as that of its parent and its name, its path, the name
-- without the sequence, the data, and the first of three numbers for watches.
--
-- Returns the step of the clock, the number of the transaction, the sequence, how many names there are, the
-- names, and what `watch_ahead` has watched, with '/' between all.
CREATE OR REPLACE FUNCTION @schema@.enter(
  known_as text, me bigint, timeout bigint, seen bigint, up_dir text, up_name text, dir text, base text,
  data bytea, first bigint
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  begun text; place bigint; number bigint; low bigint; at tid; names text; ahead bigint;
BEGIN
  -- As `requests` does: nobody ends the session before this is committed, an answer proves that it lives for
  -- three quarters of its timeout, and until the commit nobody else creates there.
  WITH caller AS (
    SELECT k.step FROM @schema@.sessions s, @schema@.clock_row() k
      WHERE s.id = me AND s.name = known_as
        AND s.deadline - @schema@.own_now(k.own, k.last, k.step) >= timeout / 4 * 3
      FOR KEY SHARE OF s
  ), up AS (
    SELECT c.step, t.at, t.q AS place, t.low, greatest(t.p + 1, seen + 1, @schema@.server_now()) AS number
      FROM caller c, LATERAL (
        SELECT t.ctid AS at, t.q, t.p, t.low FROM @schema@.counts t
          -- The session is locked first.
          WHERE c.step IS NOT NULL AND t.dir = up_dir AND t.name = up_name ORDER BY t.p DESC LIMIT 1 FOR UPDATE
      ) AS t
      -- Sequences that are not simple are left to `requests`.
      WHERE t.q BETWEEN 0 AND 2147483646
  ), node AS (
    INSERT INTO @schema@.nodes
      SELECT dir, base || lpad(u.place::text, 10, '0'), u.place, u.number, u.number, 0, me, data FROM up u
  )
  SELECT u.step || '/' || u.number || '/' || u.place, u.place, u.number, u.low, u.at
    INTO begun, place, number, low, at FROM up u;
  IF place IS NULL THEN RETURN NULL; END IF;
  -- A statement of its own: the one before may have waited for another's commit, and has not seen what that
  -- changed. A listing without a node that is ahead would grant the lock to two.
  WITH listed AS MATERIALIZED (
    SELECT count(*) AS count, string_agg(n.name, '/') AS names, count(*) FILTER (WHERE n.seq <= place) AS ahead,
        min(n.seq) AS low
      FROM @schema@.nodes n WHERE n.dir || '' = dir AND n.seq >= low
  ), up AS (
    UPDATE @schema@.counts t SET q = place + 1, p = number, low = l.low FROM listed l WHERE t.ctid = at
  )
  SELECT begun || '/' || l.count || '/' || l.names, l.ahead INTO names, ahead FROM listed l;
  IF ahead > 1 THEN
    RETURN names || coalesce('/' || @schema@.watch_ahead(me, dir, low, place, first), '');
  END IF;
  RETURN names;
END $$;

-- Looks again for a contender whose node is `own`: who has come nearer. Arguments and answer are those of `enter`,
-- but that nothing is created: the answer has neither a number nor a sequence.
CREATE OR REPLACE FUNCTION @schema@.look(
  known_as text, me bigint, timeout bigint, dir text, own text, first bigint
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  step bigint; place bigint; low bigint; names text; ahead bigint;
BEGIN
  SELECT k.step, n.seq INTO step, place
    FROM @schema@.sessions s, @schema@.clock_row() k, @schema@.nodes n
    WHERE s.id = me AND s.name = known_as
      AND s.deadline - @schema@.own_now(k.own, k.last, k.step) >= timeout / 4 * 3
      AND n.dir = dir AND n.name = own;
  IF place IS NULL THEN RETURN NULL; END IF;
  WITH up AS MATERIALIZED (
    SELECT t.low FROM @schema@.counts t
      WHERE t.dir = @schema@.parent_of(dir) AND t.name = @schema@.name_of(dir) ORDER BY t.p DESC LIMIT 1
  )
  SELECT step || '/' || count(*) || '/' || string_agg(n.name, '/'), count(*) FILTER (WHERE n.seq <= place),
      (SELECT u.low FROM up u)
    INTO names, ahead, low
    FROM @schema@.nodes n WHERE n.dir || '' = dir AND n.seq >= (SELECT u.low FROM up u);
  IF ahead > 1 THEN
    RETURN names || coalesce('/' || @schema@.watch_ahead(me, dir, low, place, first), '');
  END IF;
  -- NULL if there is no node any more.
  RETURN names;
END $$;

-- Deletes a node that goes with a session, and all watches on it: a release. Returns the step of the clock.
--
-- It rings the other sessions that watched it, and reports whether anything was ahead of the node: if nothing was, whoever
-- comes right behind it need not look for that.
CREATE OR REPLACE FUNCTION @schema@.leave(
  known_as text, me bigint, timeout bigint, up_dir text, up_name text, dir text, name text
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  step bigint; place bigint; rung bigint;
BEGIN
  -- It waits for nobody but who resumes or ends the session. A node that was changed since the statement began
  -- is not found by its place, and left to `requests`.
  WITH caller AS (
    SELECT k.step FROM @schema@.sessions s, @schema@.clock_row() k
      WHERE s.id = me AND s.name = known_as
        AND s.deadline - @schema@.own_now(k.own, k.last, k.step) >= timeout / 4 * 3
      FOR KEY SHARE OF s
  ), found AS (
    SELECT n.ctid, c.step FROM caller c, @schema@.nodes n
      -- With `+ 0`, as a plan that is made while there are few nodes would use the index by session.
      WHERE n.dir = dir AND n.name = name AND n.o + 0 <> 0 FOR UPDATE OF n SKIP LOCKED
  )
  DELETE FROM @schema@.nodes n USING found f WHERE n.ctid = f.ctid RETURNING f.step, n.seq INTO step, place;
  IF step IS NOT NULL THEN
    -- A statement of its own: it sees the watches that were set until the node was deleted. A session that is
    -- removing its watch wants no news.
    WITH gone AS (
      DELETE FROM @schema@.watches w WHERE w.ctid = ANY (ARRAY(
        SELECT o.ctid FROM @schema@.watches o WHERE o.dir = dir AND o.name = name FOR UPDATE SKIP LOCKED
      )) RETURNING w.session, w.number,
        -- No join: a plan for few sessions would look through all.
        (SELECT s.name FROM @schema@.sessions s WHERE s.id = w.session) AS called,
        -- What has a number ahead of this one was there before it. Without a number of the store's it is not known
        -- what is ahead of it.
        CASE WHEN place > 0 AND NOT EXISTS (
          SELECT FROM @schema@.nodes n WHERE n.dir || '' = dir AND n.seq < place AND n.seq >= (
            SELECT t.low FROM @schema@.counts t WHERE t.dir = up_dir AND t.name = up_name ORDER BY t.p DESC LIMIT 1)
        ) THEN 'F' ELSE 'D' END AS what
    )
    SELECT count(pg_notify('lock_recipes_' || g.session, @schema@.deletion(g.called, g.what, g.number))) INTO rung
      FROM gone g WHERE g.session <> me;
  END IF;
  RETURN step;
END $$;

