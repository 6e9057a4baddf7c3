-- What runs inside the server: functions in PL/pgSQL, for PostgreSQL 12 and later.
--
-- A call is one statement and one transaction, and keeps nothing in its connection, so it may go through
-- a pooler that shares connections. Every statement of a function sees what was committed before it (READ
-- COMMITTED), also what was committed while the call waited for a lock.
--
-- Who waits for whom: `requests` locks its session, then the directories in which it creates, in order,
-- then what it deletes. `beat` waits for its own session only, and skips whatever somebody else has locked.
-- `open` and `resume` lock the session first and the clock last. What remains, as two calls that delete the
-- same nodes in another order, the server finds out after a second (40P01), and one of them is sent again.
--
-- A path is two words, that of its parent and the name: the client has split it. Those of '/' are '' and ''.
--
-- What takes the time is the number of statements and expressions, much more than their size: PL/pgSQL
-- makes each ready once in a transaction.

-- ---- Small things. PostgreSQL puts them in the place of their calls.

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

-- The store's clock, from the row in `clock`.
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
-- What a call changes must be on disk before it is answered, whatever the server's default is. Nobody
-- waits longer for a lock than an eighth of the session timeout. A plan is made once, and must be good for
-- tables that grow and shrink all the time.
CREATE OR REPLACE FUNCTION @schema@.settle(timeout bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION SQLSTATE 'LR002' USING
      MESSAGE = 'the locks of schema @schema@ need the isolation level read committed';
  END IF;
  PERFORM set_config('lock_timeout', greatest(timeout / 8000, 10)::text, true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true);
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- ---- Nodes.

-- The stat of a node: created by, changed by, version, owner, count of children, version of the
-- children, children changed by.
CREATE OR REPLACE FUNCTION @schema@.stat_of(n @schema@.nodes) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  children bigint := 0;
BEGIN
  -- A node that goes with a session has none.
  IF n.o = 0 THEN
    SELECT count(*) INTO children FROM @schema@.nodes x WHERE x.dir = @schema@.path_of(n.dir, n.name);
  END IF;
  RETURN ARRAY[
    @schema@.say(n.c), @schema@.say(n.m), @schema@.say(n.v), @schema@.say(n.o),
    @schema@.say(children), @schema@.say(@schema@.signed(n.q * 2 - children)), @schema@.say(n.p)
  ];
END $$;

-- Creates a node that stays in its place and has no sequence. Returns '', or why it is refused.
CREATE OR REPLACE FUNCTION @schema@.create_named(
  me bigint, number bigint, up_dir text, up_name text, up text, base text, kind text, data bytea,
  rest bigint
) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n
    WHERE n.dir = up_dir AND n.name = up_name AND n.o = 0 FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN @schema@.no_parent(up_dir, up_name); END IF;
  -- The root has no name.
  IF base = '' THEN RETURN 'NodeExists'; END IF;
  INSERT INTO @schema@.nodes VALUES (
    up, base, 0, number, number, 0, CASE kind WHEN 'E' THEN me ELSE 0 END, 0, number, data
  ) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN 'NodeExists'; END IF;
  UPDATE @schema@.nodes n SET q = n.q + 1, p = number WHERE n.dir = up_dir AND n.name = up_name;
  IF kind = 'C' THEN
    INSERT INTO @schema@.containers
      SELECT up, base, @schema@.own_now(k.own, k.last, k.step) + rest FROM @schema@.clock k
      ON CONFLICT DO NOTHING;
  END IF;
  RETURN '';
END $$;

-- Returns '' if there is a node, otherwise 'NoNode'.
CREATE OR REPLACE FUNCTION @schema@.no_node(at_dir text, at_name text) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name;
  RETURN CASE WHEN FOUND THEN '' ELSE 'NoNode' END;
END $$;

-- Why nothing is created there.
CREATE OR REPLACE FUNCTION @schema@.no_parent(up_dir text, up_name text) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = up_dir AND n.name = up_name;
  RETURN CASE WHEN FOUND THEN 'EphemeralParent' ELSE 'NoNode' END;
END $$;

-- Deletes a node that may have children, if it has none. Returns '', or why it is refused.
CREATE OR REPLACE FUNCTION @schema@.delete_lasting(
  number bigint, up_dir text, up_name text, at_dir text, at_name text, version bigint
) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  node @schema@.nodes;
BEGIN
  -- First, as a create there does.
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = up_dir AND n.name = up_name FOR NO KEY UPDATE;
  SELECT * INTO node FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name FOR UPDATE;
  IF NOT FOUND THEN RETURN 'NoNode'; END IF;
  IF node.v <> version THEN RETURN 'BadVersion'; END IF;
  -- Only now, when nobody can create one.
  PERFORM 1 FROM @schema@.nodes n WHERE n.dir = @schema@.path_of(at_dir, at_name) LIMIT 1;
  IF FOUND OR at_name = '' THEN RETURN 'NotEmpty'; END IF;
  DELETE FROM @schema@.nodes n WHERE n.dir = at_dir AND n.name = at_name;
  DELETE FROM @schema@.containers k WHERE k.dir = at_dir AND k.name = at_name;
  -- Should it be made anew, its numbers go on from there.
  UPDATE @schema@.nodes n SET p = greatest(n.p, node.p, number)
    WHERE n.dir = up_dir AND n.name = up_name;
  RETURN '';
END $$;

-- ---- Requests.

-- For a contender whose node is `own`, or the one with the highest number from `since` on if that is '':
-- if others are ahead, it watches the node itself and the two right ahead of it, which is what it would ask
-- for next. Returns for each watch that was set its number, the name, the data and the stat.
CREATE OR REPLACE FUNCTION @schema@.look_ahead(
  me bigint, since bigint, path text, own text, numbers bigint[]
) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  answer bytea[] := '{}';
  names text[] := '{}';
  sequence bigint;
  node @schema@.nodes;
BEGIN
  IF own = '' THEN
    SELECT n.seq INTO sequence FROM @schema@.nodes n
      WHERE n.dir = path AND n.o = me AND n.c >= since ORDER BY n.c DESC, n.seq DESC LIMIT 1;
  ELSE
    SELECT n.seq INTO sequence FROM @schema@.nodes n WHERE n.dir = path AND n.name = own;
  END IF;
  FOR node IN
    SELECT * FROM @schema@.nodes n WHERE n.dir = path AND n.seq <= sequence
      ORDER BY n.seq DESC LIMIT 3
  LOOP
    names := names || node.name;
    answer := answer
      || ARRAY[@schema@.say(numbers[cardinality(names)]), @schema@.say(node.name), node.d]
      || @schema@.stat_of(node);
  END LOOP;
  -- The first in the queue watches nobody.
  IF cardinality(names) < 2 THEN RETURN '{}'; END IF;
  INSERT INTO @schema@.watches
    SELECT path, w.name, me, w.number
      FROM unnest(names, numbers[1 : cardinality(names)]) AS w (name, number);
  RETURN answer;
END $$;

-- Checks of nodes, in one look. Returns '', or why the first is refused, and its index.
CREATE OR REPLACE FUNCTION @schema@.checks(words text[]) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  refused text; i bigint;
BEGIN
  SELECT CASE WHEN n.dir IS NULL THEN 'NoNode' ELSE 'BadVersion' END, w.i INTO refused, i
    FROM generate_series(0, cardinality(words) / 4 - 1) AS w (i)
    LEFT JOIN @schema@.nodes n ON n.dir = words[w.i * 4 + 2] AND n.name = words[w.i * 4 + 3]
    WHERE n.dir IS NULL OR n.v <> nullif(words[w.i * 4 + 4], '')::bigint
    ORDER BY w.i LIMIT 1;
  RETURN CASE WHEN FOUND THEN ARRAY[@schema@.say(refused), @schema@.say(i)] ELSE ARRAY[''::bytea] END;
END $$;

-- All of these operations, or none. Returns the number of the transaction and the answer.
CREATE OR REPLACE FUNCTION @schema@.together(
  me bigint, number bigint, rest bigint, words text[], data bytea[]
) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  answers bytea[];
  refused text; i text;
BEGIN
  answers := @schema@.requests(NULL, me, 0, rest, number, true, '{}', '{}', words, data);
  -- Those of the operations begin with NULL and ''.
  RETURN ARRAY[answers[1], ''] || array_remove(array_remove(answers[2:], NULL), '');
EXCEPTION WHEN SQLSTATE 'LR003' THEN
  GET STACKED DIAGNOSTICS refused = MESSAGE_TEXT, i = PG_EXCEPTION_DETAIL;
  RETURN ARRAY[@schema@.say(number), @schema@.say(refused), @schema@.say(i)];
END $$;

-- Carries out requests of a session, in order. Each is refused or done by itself.
--
-- Arguments: session with the number of the connection, its id, its timeout, how long a container may be
-- empty, the highest number of a transaction that the client has seen, whether anything changes, the
-- directories to lock first, the requests, and the data in them.
--
-- | request                      | answer after '' |
-- |------------------------------|-----------------|
-- | create UP PATH KIND DATA     | path, created by |
-- | delete UP PATH VERSION       | |
-- | set PATH VERSION DATA        | stat |
-- | check PATH VERSION           | |
-- | together LENGTH, operations  | those of the operations (the four above) |
-- | checks LENGTH, checks        | |
-- | list PATH                    | names |
-- | look PATH OWN N1 N2 N3       | names; for each watch that was set: number, name, data, stat |
-- | read PATH                    | data, stat |
-- | stat PATH                    | stat |
-- | watch PATH NUMBER            | data, stat |
-- | unwatch PATH                 | |
-- | beat                         | |
-- | refuse REASON                | |
--
-- UP and PATH are two words each, UP the path of the directory. A kind is P (persistent), C (container), E
-- (ephemeral) or S (ephemeral and sequential). A version is '' for any. Data are a place in `data`. A
-- length is that of the words that follow and belong to it. What changes is one transaction.
--
-- The directories of all creates are locked first, in order, unless the only create is one of kind S by
-- itself, which finds out its number. Calls that cross do not wait for each other then.
--
-- Returns 'ended'; or 'late', and then nothing was done, and a beat must come first; or the step of the
-- clock, and for each request NULL and the answer. Names are one word with '/' between them, or NULL,
-- after NULL twice. A refused request's answer is the reason, and of an operation also the index.
--
-- Without a session's name it is part of another call, and fails at the first refusal; it then returns the
-- number of the transaction, which is `seen`, instead of the step.
CREATE OR REPLACE FUNCTION @schema@.requests(
  known_as text, me bigint, timeout bigint, rest bigint, seen bigint, changes boolean,
  up_dirs text[], up_names text[], words text[], data bytea[]
) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  at integer := 1;
  next integer;
  i integer := 0;
  gap integer := 0;
  answers bytea[];
  answer bytea[];
  refused text := '';
  word text; base text; version bigint; sequence bigint; found_names text; count bigint;
  number bigint := seen; since bigint; life bigint;
  node @schema@.nodes;
BEGIN
  IF known_as IS NOT NULL THEN
    IF current_setting('lock_recipes.settled', true) IS DISTINCT FROM timeout::text THEN
      PERFORM @schema@.settle(timeout);
    END IF;
    -- Nobody ends the session before this is committed. A beat may write it.
    IF changes THEN
      SELECT s.deadline - @schema@.own_now(k.own, k.last, k.step), ARRAY[@schema@.say(k.step)]
        INTO life, answers
        FROM @schema@.sessions s, @schema@.clock k WHERE s.id = me AND s.name = known_as
        FOR KEY SHARE OF s;
    ELSE
      SELECT s.deadline - @schema@.own_now(k.own, k.last, k.step), ARRAY[@schema@.say(k.step)]
        INTO life, answers
        FROM @schema@.sessions s, @schema@.clock k WHERE s.id = me AND s.name = known_as;
    END IF;
    IF NOT FOUND THEN RETURN ARRAY['ended'::bytea]; END IF;
    -- So an answer proves that the session lives for that long.
    IF life < timeout / 4 * 3 THEN RETURN ARRAY['late'::bytea]; END IF;
    IF changes THEN
      number := greatest(@schema@.server_now(), seen + 1);
      IF up_dirs <> '{}' THEN
        SELECT greatest(max(locked.p) + 1, number) INTO number FROM (
          SELECT n.p FROM unnest(up_dirs, up_names) AS w (dir, name), @schema@.nodes n
            WHERE n.dir = w.dir AND n.name = w.name ORDER BY n.dir, n.name FOR NO KEY UPDATE OF n
        ) AS locked;
      ELSE
        gap := 1;
      END IF;
      since := number;
    END IF;
  ELSE
    answers := ARRAY[@schema@.say(number)];
  END IF;
  WHILE at <= cardinality(words) LOOP
    word := words[at];
    IF word = 'create' THEN
      base := words[at + 4];
      IF words[at + 5] = 'S' THEN
        -- Until the commit nobody else creates there: places in the queue are in the order of the commits.
        UPDATE @schema@.nodes n SET q = n.q + 1, p = greatest(n.p + gap, number)
          WHERE n.dir = words[at + 1] AND n.name = words[at + 2] AND n.o = 0
          RETURNING @schema@.signed(n.q - 1), n.p INTO sequence, number;
        IF FOUND THEN
          base := base || CASE WHEN sequence < 0 THEN to_char(sequence, 'FM000000000')
            ELSE lpad(sequence::text, 10, '0') END;
          INSERT INTO @schema@.nodes VALUES (
            words[at + 3], base, sequence, number, number, 0, me, 0, number,
            data[words[at + 6]::integer]
          ) ON CONFLICT DO NOTHING;
          IF NOT FOUND THEN
            UPDATE @schema@.nodes n SET q = n.q - 1
              WHERE n.dir = words[at + 1] AND n.name = words[at + 2];
            refused := 'NodeExists';
          END IF;
        ELSE
          refused := @schema@.no_parent(words[at + 1], words[at + 2]);
        END IF;
      ELSE
        refused := @schema@.create_named(me, number, words[at + 1], words[at + 2], words[at + 3],
          base, words[at + 5], data[words[at + 6]::integer], rest);
      END IF;
      answer := ARRAY['', @schema@.say(@schema@.path_of(words[at + 3], base)), @schema@.say(number)];
      next := at + 7;
    ELSIF word = 'delete' THEN
      version := nullif(words[at + 5], '');
      -- What goes with its session has no children, and its directory is left alone: who releases a lock
      -- does not wait for the commits of those who enter.
      DELETE FROM @schema@.nodes n WHERE n.dir = words[at + 3] AND n.name = words[at + 4]
        AND n.o <> 0 AND (version IS NULL OR n.v = version);
      IF NOT FOUND THEN
        refused := @schema@.delete_lasting(
          number, words[at + 1], words[at + 2], words[at + 3], words[at + 4], version);
      END IF;
      -- Rings whoever else watches it, at the commit. What has happened they ask themselves.
      PERFORM pg_notify('lock_recipes_' || w.session, '') FROM @schema@.watches w
        WHERE w.dir = words[at + 3] AND w.name = words[at + 4] AND w.session <> me
        GROUP BY w.session;
      answer := ARRAY[''::bytea];
      next := at + 6;
    ELSIF word = 'look' THEN
      SELECT string_agg(n.name, '/'), count(*) INTO found_names, count FROM @schema@.nodes n
        WHERE n.dir = @schema@.path_of(words[at + 1], words[at + 2]);
      answer := ARRAY['', NULL, NULL, @schema@.say(found_names)];
      IF count > 1 THEN
        answer := answer || @schema@.look_ahead(me, since,
          @schema@.path_of(words[at + 1], words[at + 2]), words[at + 3],
          words[at + 4 : at + 6]::bigint[]);
      ELSIF count = 0 THEN
        refused := @schema@.no_node(words[at + 1], words[at + 2]);
      END IF;
      next := at + 7;
    ELSIF word = 'set' THEN
      version := nullif(words[at + 3], '');
      UPDATE @schema@.nodes n
        SET d = data[words[at + 4]::integer], v = n.v + 1,
          -- Others may have changed it under a higher number; this transaction may have created it.
          m = CASE WHEN n.m = number AND i > 0 THEN number ELSE greatest(n.m + 1, number) END
        WHERE n.dir = words[at + 1] AND n.name = words[at + 2]
          AND (version IS NULL OR n.v = version)
        RETURNING * INTO node;
      IF FOUND THEN
        answer := ''::bytea || @schema@.stat_of(node);
        PERFORM pg_notify('lock_recipes_' || w.session, '') FROM @schema@.watches w
          WHERE w.dir = node.dir AND w.name = node.name AND w.session <> me GROUP BY w.session;
      ELSE
        refused := coalesce(
          nullif(@schema@.no_node(words[at + 1], words[at + 2]), ''), 'BadVersion');
      END IF;
      next := at + 5;
    ELSIF word = 'check' THEN
      -- It must still be so when the rest is committed.
      SELECT * INTO node FROM @schema@.nodes n
        WHERE n.dir = words[at + 1] AND n.name = words[at + 2] FOR SHARE;
      IF NOT FOUND THEN
        refused := 'NoNode';
      ELSIF node.v <> nullif(words[at + 3], '')::bigint THEN
        refused := 'BadVersion';
      END IF;
      answer := ARRAY[''::bytea];
      next := at + 4;
    ELSIF word = 'together' THEN
      next := at + 2 + words[at + 1]::integer;
      answer := @schema@.together(me, number, rest, words[at + 2 : next - 1], data);
      number := convert_from(answer[1], 'UTF8')::bigint;
      answer := answer[2:];
    ELSIF word = 'checks' THEN
      next := at + 2 + words[at + 1]::integer;
      answer := @schema@.checks(words[at + 2 : next - 1]);
    ELSIF word = 'unwatch' THEN
      DELETE FROM @schema@.watches w
        WHERE w.dir = words[at + 1] AND w.name = words[at + 2] AND w.session = me;
      answer := ARRAY[''::bytea];
      next := at + 3;
    ELSIF word = 'refuse' THEN
      refused := words[at + 1];
      next := at + 2;
    ELSIF word = 'beat' THEN
      answer := ARRAY[''::bytea];
      next := at + 1;
    ELSE
      SELECT * INTO node FROM @schema@.nodes n
        WHERE n.dir = words[at + 1] AND n.name = words[at + 2];
      IF NOT FOUND THEN
        refused := 'NoNode';
      ELSIF word = 'list' THEN
        SELECT string_agg(n.name, '/') INTO found_names FROM @schema@.nodes n
          WHERE n.dir = @schema@.path_of(words[at + 1], words[at + 2]);
        answer := ARRAY['', NULL, NULL, @schema@.say(found_names)];
      ELSIF word = 'stat' THEN
        answer := ''::bytea || @schema@.stat_of(node);
      ELSE
        IF word = 'watch' THEN
          INSERT INTO @schema@.watches
            VALUES (words[at + 1], words[at + 2], me, words[at + 3]::bigint);
        END IF;
        answer := ARRAY['', node.d] || @schema@.stat_of(node);
      END IF;
      next := at + CASE word WHEN 'watch' THEN 4 ELSE 3 END;
    END IF;
    IF refused = '' THEN
      answers := answers || NULL::bytea || answer;
    ELSIF known_as IS NULL THEN
      RAISE EXCEPTION SQLSTATE 'LR003' USING MESSAGE = refused, DETAIL = i;
    ELSE
      answers := answers || ARRAY[NULL, @schema@.say(refused), '0'];
      refused := '';
    END IF;
    at := next;
    i := i + 1;
    -- What is one transaction has one number.
    IF known_as IS NOT NULL THEN number := number + 1; END IF;
  END LOOP;
  RETURN answers;
END $$;

-- ---- Sessions.

-- Contenders of a server's new run may not see what it has forgotten. So none is granted a lock before
-- every holder of the run before must have noticed. Returns the row of the clock with the end of that.
--
-- `is_known`: whether the caller knows that nobody held a lock before, or that the server has been up for
-- long enough.
CREATE OR REPLACE FUNCTION @schema@.quarantine(
  k @schema@.clock, new_run text, timeout bigint, is_known boolean
) RETURNS @schema@.clock LANGUAGE plpgsql AS $$
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

-- Opens a session over its first connection. Returns its id, and how long nobody may be granted a lock.
CREATE OR REPLACE FUNCTION @schema@.open(
  secret text, timeout bigint, run text, is_known boolean, OUT id bigint, OUT wait bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.clock;
BEGIN
  PERFORM @schema@.settle(timeout);
  SELECT * INTO k FROM @schema@.clock FOR UPDATE;
  k.own := @schema@.own_now(k.own, k.last, k.step);
  k.last := @schema@.server_now();
  id := greatest(k.last, k.session + 1);
  INSERT INTO @schema@.sessions
    VALUES (id, id || ':' || timeout || ':' || secret || ':1', timeout, k.own + timeout);
  k := @schema@.quarantine(k, run, timeout, is_known);
  UPDATE @schema@.clock c SET last = k.last, own = k.own, session = open.id, run = k.run,
    longest = k.longest, quarantine = k.quarantine, due = least(c.due, k.own + timeout),
    step = (SELECT min(s.timeout) / 4 FROM @schema@.sessions s);
  wait := greatest(0, k.quarantine - k.own);
END $$;

-- Deletes nodes of sessions that have ended, up to a bound: a session may have had very many. Whoever waits
-- for such a node waits a little longer; nobody is granted a lock too early. It skips nodes that somebody
-- has locked, as a user's transaction does that was fenced by one.
CREATE OR REPLACE FUNCTION @schema@.purge() RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  ended bigint;
  room integer := 500;
  count integer;
BEGIN
  FOR ended IN SELECT e.session FROM @schema@.ended e LIMIT 16 FOR UPDATE SKIP LOCKED LOOP
    WITH found AS MATERIALIZED (
      SELECT n.dir, n.name FROM @schema@.nodes n WHERE n.o = ended LIMIT room FOR UPDATE SKIP LOCKED
    ), gone AS (
      DELETE FROM @schema@.nodes n USING found f WHERE n.dir = f.dir AND n.name = f.name
        RETURNING n.dir, n.name
    ), rung AS MATERIALIZED (
      SELECT pg_notify('lock_recipes_' || w.session, '')
        FROM gone g, @schema@.watches w WHERE w.dir = g.dir AND w.name = g.name GROUP BY w.session
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM rung) INTO count;
    room := room - count;
    PERFORM 1 FROM @schema@.nodes n WHERE n.o = ended LIMIT 1;
    IF NOT FOUND THEN
      DELETE FROM @schema@.ended e WHERE e.session = ended;
      DELETE FROM @schema@.watches w WHERE w.session = ended;
    END IF;
    EXIT WHEN room <= 0;
  END LOOP;
END $$;

-- Ends a session that nobody else can write any more: its row is locked.
CREATE OR REPLACE FUNCTION @schema@.end_session(me bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM @schema@.sessions s WHERE s.id = me;
  INSERT INTO @schema@.ended VALUES (me);
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
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.clock;
  deadline bigint;
BEGIN
  PERFORM @schema@.settle(timeout);
  SELECT s.deadline INTO deadline FROM @schema@.sessions s
    WHERE s.id = me AND s.name IN (SELECT called || ':' || i FROM unnest(known) AS i) FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO k FROM @schema@.clock;
  IF deadline <= @schema@.own_now(k.own, k.last, k.step) THEN
    PERFORM @schema@.end_session(me);
    RETURN;
  END IF;
  IF k.run IS DISTINCT FROM run OR k.longest < timeout THEN
    SELECT * INTO k FROM @schema@.clock FOR UPDATE;
  END IF;
  k.own := @schema@.own_now(k.own, k.last, k.step);
  IF k.run IS DISTINCT FROM run OR k.longest < timeout THEN
    k.last := @schema@.server_now();
    k := @schema@.quarantine(k, run, timeout, true);
    UPDATE @schema@.clock c SET last = k.last, own = k.own, run = k.run, longest = k.longest,
      quarantine = k.quarantine;
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
  INSERT INTO @schema@.watches
    SELECT w.dir, w.name, me, w.number
      FROM unnest(dirs, names, numbers, news) AS w (dir, name, number, news)
      WHERE w.news = '' AND NOT EXISTS (
        SELECT FROM @schema@.watches h
          WHERE h.dir = w.dir AND h.name = w.name AND h.session = me AND h.number = w.number
      );
  nodes := '{}';
  IF wants_nodes THEN
    SELECT coalesce(array_agg(@schema@.path_of(n.dir, n.name)), '{}') INTO nodes
      FROM @schema@.nodes n WHERE n.o = me;
  END IF;
END $$;

-- Removes containers that have been empty for a while, a few at a time. `own` is the store's clock.
CREATE OR REPLACE FUNCTION @schema@.reap(own bigint, rest bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  k @schema@.containers;
  up_dir text; up_name text;
  refused text;
BEGIN
  FOR k IN
    SELECT * FROM @schema@.containers c WHERE c.due <= own ORDER BY c.due LIMIT 16
      FOR UPDATE SKIP LOCKED
  LOOP
    up_dir := @schema@.parent_of(k.dir);
    up_name := @schema@.name_of(k.dir);
    -- A beat waits for nobody.
    PERFORM 1 FROM @schema@.nodes n WHERE n.dir = up_dir AND n.name = up_name
      FOR NO KEY UPDATE SKIP LOCKED;
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
) LANGUAGE plpgsql AS $$
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
    FROM @schema@.clock c WHERE s.id = me AND s.name = known_as
      AND s.deadline > @schema@.own_now(c.own, c.last, c.step);
  IF NOT FOUND THEN
    PERFORM 1 FROM @schema@.sessions s WHERE s.id = me AND s.name = known_as FOR UPDATE SKIP LOCKED;
    IF FOUND THEN PERFORM @schema@.end_session(me); END IF;
    RETURN;
  END IF;
  SELECT * INTO k FROM @schema@.clock;
  now := @schema@.server_now();
  -- All sessions beat, so the row would be written very often. It must be in time for the gap rule.
  IF now < k.last OR now > k.last + k.step / 8
    OR @schema@.own_now(k.own, k.last, k.step) >= k.due
  THEN
    SELECT * INTO k FROM @schema@.clock FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      k.own := @schema@.own_now(k.own, k.last, k.step);
      k.last := @schema@.server_now();
      -- Sessions that were silent for their timeout, unless a request of theirs is being carried out.
      WITH found AS MATERIALIZED (
        SELECT s.id FROM @schema@.sessions s WHERE s.deadline <= k.own
          ORDER BY s.deadline LIMIT 4 FOR UPDATE SKIP LOCKED
      ), gone AS (
        DELETE FROM @schema@.sessions s USING found f WHERE s.id = f.id RETURNING s.id
      )
      INSERT INTO @schema@.ended SELECT g.id FROM gone g;
      PERFORM @schema@.purge();
      PERFORM @schema@.reap(k.own, rest);
      SELECT min(s.timeout) / 4, min(s.deadline) INTO k.step, k.due FROM @schema@.sessions s;
      PERFORM 1 FROM @schema@.ended LIMIT 1;
      IF FOUND THEN k.due := 0; END IF;
      UPDATE @schema@.clock c
        SET last = k.last, own = k.own, step = k.step, due = k.due;
    END IF;
  END IF;
  SELECT c.step, greatest(0, c.due - @schema@.own_now(c.own, c.last, c.step)) INTO step, due
    FROM @schema@.clock c;
END $$;

-- Closes a session, which deletes its nodes. Returns whether some are left; the client then calls it again.
CREATE OR REPLACE FUNCTION @schema@.close(known_as text, me bigint, timeout bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  PERFORM @schema@.settle(timeout);
  PERFORM 1 FROM @schema@.sessions s WHERE s.id = me AND s.name = known_as FOR UPDATE;
  IF FOUND THEN
    PERFORM @schema@.end_session(me);
  ELSE
    PERFORM @schema@.purge();
  END IF;
  PERFORM 1 FROM @schema@.ended e WHERE e.session = me;
  RETURN FOUND;
END $$;

-- ---- News.

-- The news for watches of a session: 'D' if the node was deleted, 'C' if its data were changed, '' if
-- neither, all of one moment. `ahead` is the least count of nodes that are ahead of a watched node of
-- another session, if that is wanted; no more than 50.
--
-- Of each watch: its number, the path, the transactions that created and last changed the node.
CREATE OR REPLACE FUNCTION @schema@.poll(
  me bigint, numbers bigint[], dirs text[], names text[], created bigint[], changed bigint[],
  wants_ahead boolean, OUT news text[], OUT ahead bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  SELECT
    array_agg(
      CASE WHEN n.c IS DISTINCT FROM w.c THEN 'D' WHEN n.m <> w.m THEN 'C' ELSE '' END ORDER BY w.i),
    min(CASE WHEN wants_ahead AND n.o <> me THEN (
      SELECT count(*) FROM (
        SELECT FROM @schema@.nodes x WHERE x.dir = n.dir AND x.seq < n.seq LIMIT 50
      ) AS those
    ) END)
    INTO news, ahead
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
CREATE OR REPLACE FUNCTION @schema@.fence(path text, token bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM @schema@.nodes n
    WHERE n.dir = @schema@.parent_of(path) AND n.name = @schema@.name_of(path) AND n.c = token
    FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION SQLSTATE 'LR001' USING
      MESSAGE = format('the lock is not held any more: %s with token %s', path, token);
  END IF;
END $$;
