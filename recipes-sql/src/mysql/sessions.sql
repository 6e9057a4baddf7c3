-- How sessions begin, live and end. The tables, and an overview, are in schema.sql.

DELIMITER //

-- Opens a session.
--
-- `p_known`: whether the caller knows that nobody held a lock before.
--
-- Selects one row: the id, how long nobody may be granted a lock, how long sessions may be kept that are over,
-- and the step of the clock.
CREATE PROCEDURE IF NOT EXISTS @prefix@open(
  p_secret VARBINARY(64), p_timeout BIGINT, p_connection BIGINT, p_run VARBINARY(255), p_known BOOLEAN)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_now, v_last, v_own, v_step, v_number, v_longest, v_quarantine, v_doubt BIGINT;
  DECLARE v_run VARBINARY(255);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT last, own, step, number, run, longest, quarantine, doubt
    INTO v_last, v_own, v_step, v_number, v_run, v_longest, v_quarantine, v_doubt
    FROM @prefix@clock WHERE id = 1 FOR UPDATE;
  -- The run of the server, and of these tables. They come to be others when somebody restores them, which brings
  -- back what was before.
  SET p_run = CONCAT(p_run, ' ', COALESCE((SELECT CREATE_TIME FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '@prefix@clock'), ''));
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  -- After a gap the store's clock does not say how long a session was silent. Whoever is in contact is heard
  -- before it is due.
  IF v_now - v_last > v_step THEN SELECT COALESCE(MAX(deadline), 0) INTO v_doubt FROM @prefix@beats; END IF;
  SET v_own = v_own + GREATEST(0, LEAST(v_step, v_now - v_last)), v_number = GREATEST(v_number + 1, v_now),
    v_longest = GREATEST(v_longest, p_timeout),
    v_step = LEAST(IF(v_step = 0, p_timeout, v_step), p_timeout DIV 4);
  -- Contenders of a server's new run may not see what it has forgotten. So none is granted a lock before
  -- every holder of the run before must have noticed: it gives up after half of its timeout, and the clock
  -- may be set forward once.
  IF v_run <> p_run AND NOT (v_run = '' AND p_known) THEN
    SET v_quarantine = v_own + v_longest * 3 DIV 4;
  END IF;
  INSERT INTO @prefix@sessions VALUES (v_number, p_secret, p_timeout, p_connection);
  INSERT INTO @prefix@beats VALUES (v_number, v_own + p_timeout);
  UPDATE @prefix@clock SET last = v_now, own = v_own, step = v_step, due = LEAST(due, v_own + p_timeout),
    number = v_number, run = p_run, longest = v_longest, quarantine = v_quarantine, doubt = v_doubt WHERE id = 1;
  COMMIT;
  SELECT v_number AS id, GREATEST(0, v_quarantine - v_own) AS wait, GREATEST(0, v_doubt - v_own) AS doubt,
    v_step AS step;
END//

-- Goes on with a session over a new connection. What was sent over an earlier one and arrives late finds no
-- session from now on, and what has found it is over: it had locked the session.
--
-- `p_known_by`: the numbers of the connections by which the server may know it, with commas between them.
-- One that has forgotten its last transactions knows an earlier one.
--
-- Selects one row: state (0 done, 1 ended), how long nobody may be granted a lock, and the step of the clock.
CREATE PROCEDURE IF NOT EXISTS @prefix@resume(
  p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT, p_known_by LONGBLOB, p_run VARBINARY(255))
  MODIFIES SQL DATA SQL SECURITY INVOKER
proc: BEGIN
  DECLARE v_timeout, v_now, v_last, v_own, v_step, v_longest, v_quarantine BIGINT;
  DECLARE v_run VARBINARY(255);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT timeout INTO v_timeout FROM @prefix@sessions
    WHERE id = p_id AND secret = p_secret AND FIND_IN_SET(connection, p_known_by) FOR UPDATE;
  IF v_timeout IS NULL THEN
    ROLLBACK;
    SELECT 1 AS state, 0 AS wait, 0 AS step;
    LEAVE proc;
  END IF;
  UPDATE @prefix@sessions SET connection = p_connection WHERE id = p_id;
  SELECT last, own, step, run, longest, quarantine
    INTO v_last, v_own, v_step, v_run, v_longest, v_quarantine
    FROM @prefix@clock WHERE id = 1 FOR UPDATE;
  SET p_run = CONCAT(p_run, ' ', COALESCE((SELECT CREATE_TIME FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '@prefix@clock'), ''));
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SET v_own = v_own + GREATEST(0, LEAST(v_step, v_now - v_last));
  -- As in `open`.
  IF v_run <> p_run THEN SET v_quarantine = v_own + GREATEST(v_longest, v_timeout) * 3 DIV 4; END IF;
  UPDATE @prefix@beats SET deadline = v_own + v_timeout WHERE session = p_id;
  UPDATE @prefix@clock SET last = v_now, own = v_own, run = p_run, quarantine = v_quarantine WHERE id = 1;
  COMMIT;
  SELECT 0 AS state, GREATEST(0, v_quarantine - v_own) AS wait, v_step AS step;
END//

-- Deletes nodes of a session that has ended, up to a bound: a session may have had very many. Whoever waits
-- for such a node waits a little longer; nobody is granted a lock too early. It leaves out nodes that
-- somebody fences, and returns how many it may still delete.
CREATE PROCEDURE IF NOT EXISTS @prefix@purge(p_id BIGINT, INOUT p_max INT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_left BIGINT;
  DECLARE v_dir, v_name VARBINARY(1500);
  DECLARE v_is_over BOOLEAN DEFAULT FALSE;
  DECLARE v_nodes CURSOR FOR SELECT dir, name FROM @prefix@nodes FORCE INDEX (by_owner)
    WHERE o = p_id LIMIT p_max FOR UPDATE SKIP LOCKED;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_is_over = TRUE;

  OPEN v_nodes;
  REPEAT
    FETCH v_nodes INTO v_dir, v_name;
    IF NOT v_is_over THEN
      DELETE FROM @prefix@nodes WHERE dir = v_dir AND name = v_name;
      SET p_max = p_max - 1;
    END IF;
  UNTIL v_is_over END REPEAT;
  CLOSE v_nodes;
  -- A statement of its own: a condition would wait for whoever has locked them.
  SELECT MIN(o) INTO v_left FROM @prefix@nodes FORCE INDEX (by_owner) WHERE o = p_id;
  IF v_left IS NULL THEN
    DELETE FROM @prefix@ended WHERE id = p_id;
  END IF;
END//

-- Removes containers that have been empty for a while, up to a bound, and leaves those that somebody uses just now.
-- A call that creates some removes twice as many: however fast they are made, they go as fast.
--
-- None is to be looked at before `p_from`. What was removed stays in the index until no transaction on the
-- server may want to see it, and is not passed again.
CREATE PROCEDURE IF NOT EXISTS @prefix@tidy(p_from BIGINT, p_own BIGINT, p_now BIGINT, p_rest BIGINT, p_max INT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_tried, v_skipped INT DEFAULT 0;
  -- A node, and its parent.
  DECLARE v_child, v_p BIGINT;
  DECLARE v_dir, v_name, v_up_dir, v_up_name VARBINARY(1500);
  containers: WHILE v_tried < p_max DO
    SET v_tried = v_tried + 1, v_name = NULL;
    SELECT dir, name INTO v_dir, v_name FROM @prefix@containers WHERE look BETWEEN p_from AND p_own
      ORDER BY look LIMIT 1 OFFSET v_skipped;
    IF v_name IS NULL THEN LEAVE containers; END IF;
    SET v_up_name = SUBSTRING_INDEX(v_dir, '/', -1), v_p = NULL;
    SET v_up_dir = LEFT(v_dir, LENGTH(v_dir) - LENGTH(v_up_name) - 1);
    IF v_up_dir = '' AND v_up_name <> '' THEN SET v_up_dir = '/'; END IF;
    SELECT c.p INTO v_p FROM @prefix@nodes u, @prefix@nodes c
      WHERE u.dir = v_up_dir AND u.name = v_up_name AND c.dir = v_dir AND c.name = v_name
      FOR UPDATE SKIP LOCKED;
    SELECT MIN(seq) INTO v_child FROM @prefix@nodes FORCE INDEX (by_seq)
      WHERE dir = CONCAT(IF(v_dir = '/', '', v_dir), '/', v_name);
    IF v_p IS NULL THEN
      -- Somebody creates nodes there.
      SET v_skipped = v_skipped + 1;
    ELSEIF v_child IS NOT NULL THEN
      UPDATE @prefix@containers SET look = p_own + p_rest WHERE dir = v_dir AND name = v_name;
    ELSE
      DELETE FROM @prefix@nodes WHERE dir = v_dir AND name = v_name;
      DELETE FROM @prefix@containers WHERE dir = v_dir AND name = v_name;
      -- Whatever the clock does, numbers must not fall in a directory that is made anew.
      UPDATE @prefix@nodes SET p = GREATEST(p, v_p, p_now) WHERE dir = v_up_dir AND name = v_up_name;
    END IF;
  END WHILE;
END//

-- Closes a session, which deletes its nodes.
--
-- Selects one row: whether nodes of it are left that may be deleted at once. The client then calls it again.
CREATE PROCEDURE IF NOT EXISTS @prefix@close(p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_id BIGINT;
  DECLARE v_left INT DEFAULT 500;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT id INTO v_id FROM @prefix@sessions
    WHERE id = p_id AND secret = p_secret AND connection = p_connection FOR UPDATE;
  IF v_id IS NOT NULL THEN
    DELETE FROM @prefix@beats WHERE session = p_id;
    DELETE FROM @prefix@sessions WHERE id = p_id;
    INSERT INTO @prefix@ended VALUES (p_id);
  END IF;
  SELECT id INTO v_id FROM @prefix@ended WHERE id = p_id FOR UPDATE SKIP LOCKED;
  IF v_id IS NOT NULL THEN CALL @prefix@purge(p_id, v_left); END IF;
  -- Somebody fences a node of it. The next beat of any session comes back to it.
  SELECT MIN(id) INTO v_id FROM @prefix@ended WHERE id = p_id;
  IF v_id IS NOT NULL THEN UPDATE @prefix@clock SET due = 0 WHERE id = 1; END IF;
  COMMIT;
  SELECT v_left = 0 AS more;
END//

-- Keeps a session alive for another timeout. Now and then it also advances the store's clock, ends sessions
-- that were silent for their timeout, deletes nodes of ended ones, and removes empty containers.
--
-- `p_rest` is how long a container may be empty. `p_again`: this session has found work that is not done.
--
-- Selects one row: state (0 done, 1 ended), the step of the clock, in how many microseconds to beat again at
-- the latest, and whether because work is left.
CREATE PROCEDURE IF NOT EXISTS @prefix@beat(
  p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT, p_rest BIGINT, p_again BOOLEAN)
  MODIFIES SQL DATA SQL SECURITY INVOKER
proc: BEGIN
  DECLARE v_timeout, v_deadline, v_now, v_last, v_own, v_step, v_due, v_tidied BIGINT;
  -- Another session.
  DECLARE v_other BIGINT;
  -- Bounds: one beat must not take long. `v_soon`: something is left to do.
  DECLARE v_tried, v_ended INT DEFAULT 0;
  DECLARE v_purged INT DEFAULT 500;
  DECLARE v_sweeps, v_soon BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT timeout INTO v_timeout FROM @prefix@sessions
    WHERE id = p_id AND secret = p_secret AND connection = p_connection;
  -- Whoever ends a session has locked this row, if only for a moment.
  SELECT deadline INTO v_deadline FROM @prefix@beats WHERE session = p_id FOR UPDATE;
  IF v_timeout IS NULL OR v_deadline IS NULL THEN
    ROLLBACK;
    SELECT 1 AS state, 0 AS step, 0 AS next, FALSE AS again;
    LEAVE proc;
  END IF;
  SELECT last, own, step, due INTO v_last, v_own, v_step, v_due FROM @prefix@clock WHERE id = 1;
  -- The gap rule. A server that stood still, was restarted, or whose clock was set forward must not end
  -- sessions that had no chance to be heard. Sessions in use send more often than that.
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SET v_own = v_own + GREATEST(0, LEAST(v_step, v_now - v_last));
  -- What is missing to a whole timeout is less than the time between two beats.
  IF v_own + v_timeout * 23 DIV 24 > v_deadline THEN
    UPDATE @prefix@beats SET deadline = v_own + v_timeout WHERE session = p_id;
  END IF;
  IF v_now < v_last OR v_now > v_last + v_step DIV 8 OR v_own >= v_due OR p_again THEN
    SELECT TRUE, last, own, step, due INTO v_sweeps, v_last, v_own, v_step, v_due
      FROM @prefix@clock WHERE id = 1 FOR UPDATE SKIP LOCKED;
  END IF;
  IF v_sweeps THEN
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET v_own = v_own + GREATEST(0, LEAST(v_step, v_now - v_last));
    IF v_own >= v_due OR p_again THEN
      -- The ones that are due. All rows are read, but only about once in a timeout.
      SELECT MIN(session) INTO v_other FROM @prefix@beats WHERE deadline <= v_own;
      WHILE v_other IS NOT NULL DO
        SET v_tried = v_tried + 1, v_deadline = NULL;
        -- A session with a transaction under way, or a beat, lives. It is due the next time.
        SELECT b.deadline INTO v_deadline FROM @prefix@sessions s, @prefix@beats b
          WHERE s.id = v_other AND b.session = v_other FOR UPDATE SKIP LOCKED;
        IF v_deadline IS NULL THEN
          SET v_soon = TRUE;
        ELSEIF v_deadline <= v_own THEN
          DELETE FROM @prefix@beats WHERE session = v_other;
          DELETE FROM @prefix@sessions WHERE id = v_other;
          INSERT INTO @prefix@ended VALUES (v_other);
          SET v_ended = v_ended + 1;
        END IF;
        SELECT MIN(session) INTO v_other FROM @prefix@beats WHERE deadline <= v_own AND session > v_other;
        IF v_other IS NOT NULL AND (v_ended = 4 OR v_tried = 16) THEN SET v_soon = TRUE, v_other = NULL; END IF;
      END WHILE;
      SELECT MIN(id) INTO v_other FROM @prefix@ended;
      WHILE v_other IS NOT NULL AND v_purged > 0 DO
        CALL @prefix@purge(v_other, v_purged);
        SELECT MIN(id) INTO v_other FROM @prefix@ended WHERE id > v_other;
      END WHILE;
      -- As in `purge`.
      SELECT MIN(id) INTO v_other FROM @prefix@ended;
      IF v_other IS NOT NULL THEN SET v_soon = TRUE; END IF;
      SELECT COALESCE(MIN(deadline), v_own) INTO v_due FROM @prefix@beats;
      SELECT COALESCE(MIN(timeout) DIV 4, 0) INTO v_step FROM @prefix@sessions;
      -- Only this session comes back at once. Another does if it does not.
      IF v_soon THEN SET v_due = v_own + v_step DIV 8; END IF;
    END IF;
    SELECT tidied INTO v_tidied FROM @prefix@clock WHERE id = 1;
    CALL @prefix@tidy(v_tidied, v_own, v_now, p_rest, 16);
    SELECT LEAST(COALESCE(MIN(look), v_own), v_own) INTO v_tidied FROM @prefix@containers WHERE look >= v_tidied;
    UPDATE @prefix@clock SET last = v_now, own = v_own, step = v_step, due = v_due, tidied = v_tidied WHERE id = 1;
  END IF;
  COMMIT;
  SELECT 0 AS state, v_step AS step, IF(v_soon, IF(v_purged = 0 OR v_ended = 4, 0, 20000),
    GREATEST(v_due - v_own, v_step DIV 8)) AS next, v_soon AS again;
END//
