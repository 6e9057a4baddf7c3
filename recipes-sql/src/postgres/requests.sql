-- Requests of a session: one call, one transaction, one commit.

-- For a contender whose node is `own`, or the one with the highest number from `since` on if that is '':
-- if others are ahead, it watches the node itself and the two right ahead of it, which is what it would ask
-- for next. Returns for each watch that was set its number, the name, the data and the stat.
CREATE OR REPLACE FUNCTION @schema@.look_ahead(
  me bigint, since bigint, path text, low bigint, own text, numbers bigint[]
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  answer bytea[] := '{}';
  names text[] := '{}';
  sequence bigint;
  node @schema@.nodes;
BEGIN
  IF own = '' THEN
    SELECT n.seq INTO sequence FROM @schema@.nodes n
      WHERE n.dir || '' = path AND n.seq >= low AND n.o = me AND n.c >= since ORDER BY n.c DESC, n.seq DESC LIMIT 1;
  ELSE
    SELECT n.seq INTO sequence FROM @schema@.nodes n WHERE n.dir = path AND n.name = own;
  END IF;
  FOR node IN
    SELECT * FROM @schema@.nodes n WHERE n.dir || '' = path AND n.seq BETWEEN low AND sequence
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
CREATE OR REPLACE FUNCTION @schema@.checks(words text[]) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
-- The directories of all creates that are there are locked first, in order, unless the only create is one of
-- kind S by itself, which finds out its number. Calls that cross do not wait for each other then.
--
-- Returns 'ended'; or 'late', and then nothing was done, and a beat must come first; or the step of the
-- clock, and for each request NULL and the answer. Names are two words after NULL twice: how many there are,
-- and they themselves with '/' between them, or NULL. A refused request's answer is the reason, and of an operation also the index.
--
-- Without a session's name it is part of another call, and fails at the first refusal; it then returns the
-- number of the transaction, which is `seen`, instead of the step.
CREATE OR REPLACE FUNCTION @schema@.requests(
  known_as text, me bigint, timeout bigint, rest bigint, seen bigint, changes boolean,
  up_dirs text[], up_names text[], words text[], data bytea[]
) RETURNS bytea[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  at integer := 1;
  next integer;
  i integer := 0;
  gap integer := 1;
  touched text[] := '{}';
  answers bytea[];
  answer bytea[];
  refused text := '';
  word text; base text; version bigint; sequence bigint; found_names text; count bigint;
  number bigint := seen; given bigint; since bigint; life bigint; low bigint; up tid;
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
        FROM @schema@.sessions s, @schema@.clock_row() k WHERE s.id = me AND s.name = known_as
        FOR KEY SHARE OF s;
    ELSE
      SELECT s.deadline - @schema@.own_now(k.own, k.last, k.step), ARRAY[@schema@.say(k.step)]
        INTO life, answers
        FROM @schema@.sessions s, @schema@.clock_row() k WHERE s.id = me AND s.name = known_as;
    END IF;
    IF NOT FOUND THEN RETURN ARRAY['ended'::bytea]; END IF;
    -- So an answer proves that the session lives for that long.
    IF life < timeout / 4 * 3 THEN RETURN ARRAY['late'::bytea]; END IF;
    IF changes THEN
      number := greatest(@schema@.server_now(), seen + 1);
      IF up_dirs <> '{}' THEN
        SELECT greatest(max(locked.p) + 1, number) INTO number
          FROM unnest(up_dirs, up_names) AS w (dir, name), LATERAL (
            SELECT t.p FROM @schema@.counts t WHERE t.dir = w.dir AND t.name = w.name
              ORDER BY t.p DESC LIMIT 1 FOR UPDATE
          ) AS locked;
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
      -- Others may have given numbers out there since: a directory that was not there was not locked. This
      -- transaction may have, too.
      IF known_as IS NULL THEN gap := CASE WHEN words[at + 3] = ANY (touched) THEN 0 ELSE 1 END; END IF;
      IF words[at + 5] = 'S' THEN
        -- Until the commit nobody else creates there: places in the queue are in the order of the commits.
        SELECT @schema@.signed(t.q), greatest(t.p + gap, number), t.ctid INTO sequence, given, up
          FROM @schema@.counts t WHERE t.dir = words[at + 1] AND t.name = words[at + 2]
          ORDER BY t.p DESC LIMIT 1 FOR UPDATE;
        IF FOUND THEN
          base := base || CASE WHEN sequence < 0 THEN to_char(sequence, 'FM000000000')
            ELSE lpad(sequence::text, 10, '0') END;
          INSERT INTO @schema@.nodes VALUES (
            words[at + 3], base, sequence, given, given, 0, me,
            data[words[at + 6]::integer]
          ) ON CONFLICT DO NOTHING;
          IF FOUND THEN
            UPDATE @schema@.counts t SET q = t.q + 1, p = given, low = least(t.low, sequence)
              WHERE t.ctid = up;
          ELSE
            refused := 'NodeExists';
          END IF;
        ELSE
          refused := @schema@.no_parent(words[at + 1], words[at + 2]);
        END IF;
      ELSE
        SELECT c.number, c.refused INTO given, refused FROM @schema@.create_named(
          me, number, gap, words[at + 1], words[at + 2], words[at + 3], base, words[at + 5],
          data[words[at + 6]::integer], rest) AS c;
      END IF;
      IF refused = '' THEN
        IF known_as IS NOT NULL THEN
          number := given;
        ELSIF given > number THEN
          -- One transaction has one number. The directory has just been made.
          refused := 'NoNode';
        ELSE
          IF gap > 0 THEN touched := touched || words[at + 3]; END IF;
          -- Nothing is created below what goes with a session.
          IF words[at + 5] IN ('P', 'C') THEN
            touched := touched || @schema@.path_of(words[at + 3], base);
          END IF;
        END IF;
      END IF;
      answer := ARRAY['', @schema@.say(@schema@.path_of(words[at + 3], base)), @schema@.say(number)];
      next := at + 7;
    ELSIF word = 'delete' THEN
      version := nullif(words[at + 5], '');
      -- What goes with its session has no children, and its directory is left alone: who releases a lock
      -- does not wait for the commits of those who enter. If somebody has fenced the node it is refused: a
      -- wait would hold up others of the session.
      DELETE FROM @schema@.nodes n USING (
          SELECT x.dir, x.name FROM @schema@.nodes x
            WHERE x.dir = words[at + 3] AND x.name = words[at + 4]
              -- See `leave`.
              AND x.o + 0 <> 0 AND (version IS NULL OR x.v = version) FOR UPDATE SKIP LOCKED
        ) AS found WHERE n.dir = found.dir AND n.name = found.name;
      IF NOT FOUND THEN
        refused := @schema@.delete_lasting(
          number, words[at + 1], words[at + 2], words[at + 3], words[at + 4], version);
        IF known_as IS NULL AND refused = '' THEN touched := touched || words[at + 3]; END IF;
      END IF;
      -- Rings whoever else watches it, at the commit. See `leave`.
      WITH gone AS (
        DELETE FROM @schema@.watches w WHERE w.ctid = ANY (ARRAY(
          SELECT o.ctid FROM @schema@.watches o
            WHERE o.dir = words[at + 3] AND o.name = words[at + 4] AND o.session <> me AND refused = ''
            FOR UPDATE SKIP LOCKED
        )) RETURNING w.session, w.number,
          (SELECT s.name FROM @schema@.sessions s WHERE s.id = w.session) AS called
      )
      SELECT count(pg_notify('lock_recipes_' || g.session, @schema@.deletion(g.called, 'D', g.number))) INTO count
        FROM gone g;
      answer := ARRAY[''::bytea];
      next := at + 6;
    ELSIF word = 'look' THEN
      SELECT string_agg(n.name, '/'), count(n.name), min(n.seq), max(u.low), max(u.p)
        INTO found_names, count, sequence, low, given
        FROM (
          SELECT t.low, t.p FROM @schema@.counts t
            WHERE t.dir = words[at + 1] AND t.name = words[at + 2] ORDER BY t.p DESC LIMIT 1
        ) AS u LEFT JOIN @schema@.nodes n
          ON n.dir || '' = @schema@.path_of(words[at + 1], words[at + 2]) AND n.seq >= u.low;
      answer := ARRAY['', NULL, NULL, @schema@.say(count), @schema@.say(found_names)];
      -- Now and then, unless somebody has created a child since: the listing may not have it.
      IF changes AND sequence > low + 8 THEN
        UPDATE @schema@.counts t SET low = sequence WHERE t.ctid = (
          SELECT x.ctid FROM @schema@.counts x
            WHERE x.dir = words[at + 1] AND x.name = words[at + 2] AND x.p = given FOR UPDATE SKIP LOCKED);
      END IF;
      IF count > 1 THEN
        answer := answer || @schema@.look_ahead(me, since,
          @schema@.path_of(words[at + 1], words[at + 2]), low, words[at + 3],
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
        SELECT string_agg(n.name, '/'), count(*) INTO found_names, count FROM @schema@.nodes n
          WHERE n.dir || '' = @schema@.path_of(words[at + 1], words[at + 2])
            AND n.seq >= (SELECT t.low FROM @schema@.counts t
              WHERE t.dir = words[at + 1] AND t.name = words[at + 2] ORDER BY t.p DESC LIMIT 1);
        answer := ARRAY['', NULL, NULL, @schema@.say(count), @schema@.say(found_names)];
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
      answers := answers || (NULL::bytea || answer);
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
  -- As many as are made may be left behind. Last, as it keeps their locks and waits for nobody any more.
  IF changes AND known_as IS NOT NULL AND 'C' = ANY (words) THEN
    PERFORM @schema@.reap(@schema@.own_now(k.own, k.last, k.step), rest, 2 * i) FROM @schema@.clock_row() k;
  END IF;
  RETURN answers;
END $$;

