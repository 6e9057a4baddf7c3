-- What runs inside the server: functions in PL/pgSQL, for PostgreSQL 12 and later.
--
-- A call is one statement and one transaction, and keeps nothing in its connection, so it may go through
-- a pooler that shares connections. Every statement of a function sees what was committed before it (READ
-- COMMITTED), also what was committed while the call waited for a lock.
--
-- Who waits for whom: `requests` locks its session, then the directories in which it creates, in order,
-- then what it deletes; so do `enter` and `leave`. `beat` waits for its own session only, and skips whatever
-- somebody else has locked. `open` and `resume` lock the session first and the clock last. What remains, as
-- two calls that delete the same nodes in another order, the server finds out after a second (40P01), and one
-- of them is sent again.
--
-- A path is two words, that of its parent and the name: the client has split it. Those of '/' are '' and ''.
--
-- What takes the time is the number of statements and expressions, much more than their size: PL/pgSQL
-- makes each ready once in a transaction.
--
-- A function in SQL is an expression without a table: PostgreSQL puts it in the place of its call. Any other
-- would be planned anew by each statement that calls it (150 us), except in FROM.

-- ---- Small things.

CREATE OR REPLACE FUNCTION @schema@.say(number bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT convert_to(number::text, 'UTF8')
$$;

CREATE OR REPLACE FUNCTION @schema@.say(word text) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT convert_to(word, 'UTF8')
$$;

-- Signed 32-bit numbers, as in ZooKeeper.
CREATE OR REPLACE FUNCTION @schema@.signed(number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT ((number + 2147483648) & 4294967295) - 2147483648
$$;

CREATE OR REPLACE FUNCTION @schema@.path_of(dir text, name text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN length(dir) < 2 THEN '/' || name ELSE dir || '/' || name END
$$;

-- What a session is rung with whose watch of this number was on a node that is deleted: 'D', or 'F' if nothing was
-- ahead of it. Its name is a secret, so nobody else can say this; who hears it learns nothing. NULL without a name.
CREATE OR REPLACE FUNCTION @schema@.deletion(name text, what text, number bigint) RETURNS text LANGUAGE sql STABLE
AS $$
  SELECT what || number || '/' || encode(sha256(convert_to(name || '/' || what || number, 'UTF8')), 'hex')
$$;

-- The parent of a path: that of '/a' is '/', that of '/' is ''.
CREATE OR REPLACE FUNCTION @schema@.parent_of(path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN length(path) < 2 THEN ''
    WHEN strpos(reverse(path), '/') = length(path) THEN '/'
    ELSE left(path, -strpos(reverse(path), '/'))
  END
$$;

-- The last part of a path. That of '/' is ''.
CREATE OR REPLACE FUNCTION @schema@.name_of(path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT right(path, strpos(reverse(path), '/') - 1)
$$;

-- ---- Time.

-- The server's clock.
CREATE OR REPLACE FUNCTION @schema@.server_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- The row in `clock`.
CREATE OR REPLACE FUNCTION @schema@.clock_row() RETURNS SETOF @schema@.clock LANGUAGE sql STABLE AS $$
  SELECT k.* FROM @schema@.clock k ORDER BY k.own DESC LIMIT 1
$$;

-- The store's clock, from that row.
--
-- The gap rule: a server that stood still, was restarted, or whose clock was set forward must not expire
-- sessions that had no chance to be heard. Sessions in use send more often than that.
CREATE OR REPLACE FUNCTION @schema@.own_now(own bigint, last bigint, step bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT own + greatest(0, least(@schema@.server_now() - last, step))
$$;

-- ---- What every call begins with.

-- Settings that hold until the end of the transaction. The client has made them for its connection, and
-- `lock_recipes.settled` then says for which timeout; behind a pooler it may be another connection.
--
-- Nobody waits longer for a lock than an eighth of the session timeout. The others, and why: variables.rs.
CREATE OR REPLACE FUNCTION @schema@.settle(timeout bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION SQLSTATE 'LR002' USING
      MESSAGE = 'the locks of schema @schema@ need the isolation level read committed';
  END IF;
  PERFORM set_config('lock_timeout', greatest(timeout / 8000, 10)::text, true),
    @settings@;
END $$;

-- ---- Nodes.

-- The stat of a node: created by, changed by, version, owner, count of children, version of the
-- children, children changed by.
CREATE OR REPLACE FUNCTION @schema@.stat_of(n @schema@.nodes) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  t @schema@.counts;
  children bigint := 0;
BEGIN
  -- A node that goes with a session has none.
  IF n.o = 0 THEN
    SELECT * INTO t FROM @schema@.counts x WHERE x.dir = n.dir AND x.name = n.name ORDER BY x.p DESC LIMIT 1;
    SELECT count(*) INTO children FROM @schema@.nodes x
      WHERE x.dir || '' = @schema@.path_of(n.dir, n.name) AND x.seq >= t.low;
  END IF;
  RETURN ARRAY[
    @schema@.say(n.c), @schema@.say(n.m), @schema@.say(n.v), @schema@.say(n.o),
    @schema@.say(children), @schema@.say(@schema@.signed(coalesce(t.q, 0) * 2 - children)),
    @schema@.say(coalesce(t.p, n.c))
  ];
END $$;

-- Creates a node that stays in its place and has no sequence. Returns '', or why it is refused; and the
-- number, which is higher if somebody has given one like it out there. `gap` is 0 if the same transaction
-- has, otherwise 1.
CREATE OR REPLACE FUNCTION @schema@.create_named(
  me bigint, INOUT number bigint, gap integer, up_dir text, up_name text, up text, base text, kind text,
  data bytea, rest bigint, OUT refused text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  given bigint;
  at tid;
BEGIN
  SELECT t.p + gap, t.ctid INTO given, at FROM @schema@.counts t
    WHERE t.dir = up_dir AND t.name = up_name ORDER BY t.p DESC LIMIT 1 FOR UPDATE;
  IF NOT FOUND THEN refused := @schema@.no_parent(up_dir, up_name); RETURN; END IF;
  refused := 'NodeExists';
  -- The root has no name.
  IF base = '' THEN RETURN; END IF;
  number := greatest(given, number);
  INSERT INTO @schema@.nodes VALUES (
    up, base, 0, number, number, 0, CASE kind WHEN 'E' THEN me ELSE 0 END, data
  ) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE @schema@.counts t SET q = t.q + 1, p = number, low = least(t.low, 0) WHERE t.ctid = at;
  IF kind <> 'E' THEN INSERT INTO @schema@.counts VALUES (up, base, 0, number, 0); END IF;
  IF kind = 'C' THEN
    INSERT INTO @schema@.containers
      SELECT up, base, @schema@.own_now(k.own, k.last, k.step) + rest FROM @schema@.clock_row() k
      ON CONFLICT DO NOTHING;
  END IF;
  refused := '';
END $$;

-- Returns '' if there is a node, otherwise 'NoNode'.
CREATE OR REPLACE FUNCTION @schema@.no_node(at_dir text, at_name text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name;
  RETURN CASE WHEN FOUND THEN '' ELSE 'NoNode' END;
END $$;

-- Why nothing is created there. A directory that is there now was not a moment ago.
CREATE OR REPLACE FUNCTION @schema@.no_parent(up_dir text, up_name text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = up_dir AND n.name = up_name AND n.o <> 0;
  RETURN CASE WHEN FOUND THEN 'EphemeralParent' ELSE 'NoNode' END;
END $$;

-- Deletes a node that may have children, if it has none. Returns '', or why it is refused.
CREATE OR REPLACE FUNCTION @schema@.delete_lasting(
  number bigint, up_dir text, up_name text, at_dir text, at_name text, version bigint
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  node @schema@.nodes;
  up tid; at tid;
  low bigint; p bigint;
BEGIN
  -- It goes with its session, and somebody has locked it, or was about to delete it.
  SELECT n.v INTO node.v FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name AND n.o <> 0;
  IF FOUND THEN RETURN CASE WHEN node.v <> version THEN 'BadVersion' ELSE 'Busy' END; END IF;
  -- First, as a create there does.
  SELECT t.ctid INTO up FROM @schema@.counts t
    WHERE t.dir = up_dir AND t.name = up_name ORDER BY t.p DESC LIMIT 1 FOR UPDATE;
  SELECT t.ctid, t.low, t.p INTO at, low, p FROM @schema@.counts t
    WHERE t.dir = at_dir AND t.name = at_name ORDER BY t.p DESC LIMIT 1 FOR UPDATE;
  SELECT * INTO node FROM @schema@.nodes n
    WHERE n.dir = at_dir AND n.name = at_name AND n.o = 0 FOR UPDATE;
  IF NOT FOUND THEN RETURN 'NoNode'; END IF;
  IF node.v <> version THEN RETURN 'BadVersion'; END IF;
  -- Only now, when nobody can create one.
  PERFORM 1 FROM @schema@.nodes n
    WHERE n.dir || '' = @schema@.path_of(at_dir, at_name) AND n.seq >= low LIMIT 1;
  IF FOUND OR at_name = '' THEN RETURN 'NotEmpty'; END IF;
  DELETE FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name;
  DELETE FROM @schema@.counts t WHERE t.ctid = at;
  DELETE FROM @schema@.containers k WHERE k.dir = at_dir AND k.name = at_name;
  -- Should it be made anew, its numbers go on from there.
  UPDATE @schema@.counts t SET p = greatest(t.p, p, number) WHERE t.ctid = up;
  RETURN '';
END $$;

