-- What connection A runs. The tables, and an overview, are in schema.sql.

DELIMITER //

-- Carries out requests of a session, in order. Each is refused or done by itself.
--
-- It never writes the deadline, so beats need not wait until it is flushed. The client sends requests only
-- if it has sent a beat a moment ago that was answered. So an answer proves that the session lives on for three
-- quarters of its timeout after the requests were sent.
--
-- `p_seen` is the highest number that the client has seen, `p_rest` how long a container may be empty.
-- `p_words` has words: a length of eight digits, then so many bytes. First the count of directories that
-- get new nodes, and their paths, sorted. Then the requests: a letter, and its words.
--
-- | request   | words              | answer |
-- |-----------|--------------------|--------|
-- | m, multi  | count, operations  | create: number, place; set: stat |
-- | k, look   | path, own          | names, count of watched nodes, for each: name, data, stat |
-- | l, list   | path               | names |
-- | r, read   | dir, name          | data, stat |
-- | s, stat   | dir, name          | stat |
--
-- | operation | words |
-- |-----------|-------|
-- | P, create | dir, name, data: persistent |
-- | C, create | dir, name, data: container |
-- | E, create | dir, name, data: ephemeral |
-- | S, create | dir, name without the place, data: ephemeral and sequential |
-- | W, set    | dir, name, data, version |
-- | D, delete | dir, name, version |
-- | X, check  | dir, name, version |
--
-- A version is '' for any. A stat: created by, changed by, version, owner, count of children, children
-- created so far, children changed by. The place is that of the name, which begins with 0.
--
-- `look` lists for a contender whose node is `own`, or was created there by this call if that is ''. If
-- others are ahead, it watches the node itself and the two right ahead of it.
--
-- Selects a row: state (0 done, 1 ended, 2 locked by others), the highest number given, and the answers.
-- Answers that are too long for one packet begin in rows before that, with state 3.
--
-- Answers are numbers with a blank after each, and bytes after their count and a blank. An answer begins with
-- 0, or why it is refused: 1 no node, 2 node exists, 3 other version, 4 not empty, 5 parent is ephemeral, 6
-- locked by others; of a multi, the index of the operation follows. Names are their count, and bytes with
-- slashes between them.
CREATE PROCEDURE IF NOT EXISTS @prefix@requests(
  p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT, p_seen BIGINT, p_rest BIGINT, p_words LONGBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
proc: BEGIN
  DECLARE v_id BIGINT;
  -- The number of the present multi, and its operations.
  DECLARE v_number, v_first, v_count, v_index, v_failed BIGINT DEFAULT 0;
  -- Where in the words, the end of them, and the length of one.
  DECLARE v_at, v_end, v_k BIGINT;
  DECLARE v_what BINARY(1);
  DECLARE v_path, v_dir, v_name, v_own VARBINARY(1500);
  DECLARE v_version VARBINARY(11);
  DECLARE v_data, v_names LONGBLOB;
  -- The directory that was loaded last.
  DECLARE v_up, v_up_dir, v_up_name VARBINARY(1500);
  DECLARE v_up_o, v_up_q, v_up_p, v_up_low BIGINT;
  -- A node.
  DECLARE v_c, v_m, v_v, v_o, v_q, v_p, v_seq, v_children BIGINT;
  DECLARE v_refused INT DEFAULT 0;
  -- Containers that were created, and the store's clock.
  DECLARE v_made INT DEFAULT 0;
  DECLARE v_clock, v_tidied BIGINT;
  -- The answer to a multi, and all answers.
  DECLARE v_answer, v_answers LONGBLOB DEFAULT '';

  DECLARE CONTINUE HANDLER FOR 1062 SET v_refused = 2;
  DECLARE CONTINUE HANDLER FOR 1205 SET v_refused = 6;
  /*!80400 DECLARE CONTINUE HANDLER FOR 3572 SET v_refused = 6; */
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT id INTO v_id FROM @prefix@sessions
    WHERE id = p_id AND secret = p_secret AND connection = p_connection FOR UPDATE;
  IF v_id IS NULL AND v_refused = 0 THEN
    ROLLBACK;
    SELECT 1 AS state, 0 AS number, '' AS answers;
    LEAVE proc;
  END IF;

  -- Directories first: until this is flushed nobody else gives out numbers or places there, so they rise in
  -- the order of the commits.
  SET v_end = LENGTH(p_words), v_k = SUBSTR(p_words, 1, 8), v_count = SUBSTR(p_words, 9, v_k),
    v_at = 9 + v_k;
  SET v_first = GREATEST(p_seen, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  WHILE v_count > 0 AND v_refused = 0 DO
    SET v_k = SUBSTR(p_words, v_at, 8), v_up = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
    SET v_up_name = SUBSTRING_INDEX(v_up, '/', -1);
    SET v_up_dir = LEFT(v_up, LENGTH(v_up) - LENGTH(v_up_name) - 1);
    IF v_up_dir = '' AND v_up_name <> '' THEN SET v_up_dir = '/'; END IF;
    SET v_up_o = NULL, v_up_p = 0;
    SELECT o, q, p, low INTO v_up_o, v_up_q, v_up_p, v_up_low
      FROM @prefix@nodes WHERE dir = v_up_dir AND name = v_up_name FOR UPDATE;
    SET v_first = GREATEST(v_first, v_up_p), v_count = v_count - 1;
  END WHILE;
  IF v_refused <> 0 THEN
    ROLLBACK;
    SELECT 2 AS state, 0 AS number, '' AS answers;
    LEAVE proc;
  END IF;
  SET v_number = v_first;

  WHILE v_at <= v_end DO
    SET v_what = SUBSTR(p_words, v_at, 1), v_at = v_at + 1;
    SET v_k = SUBSTR(p_words, v_at, 8), v_path = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
    SET v_refused = 0;
    IF v_what = 'm' THEN
      SET v_number = v_number + 1, v_count = v_path, v_index = 0, v_failed = NULL, v_answer = '';
      IF v_count > 1 THEN SAVEPOINT multi; END IF;
      WHILE v_index < v_count DO
        SET v_what = SUBSTR(p_words, v_at, 1), v_at = v_at + 1;
        SET v_k = SUBSTR(p_words, v_at, 8), v_dir = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
        SET v_k = SUBSTR(p_words, v_at, 8), v_name = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
        IF v_what NOT IN ('D', 'X') THEN
          SET v_k = SUBSTR(p_words, v_at, 8), v_data = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
        END IF;
        IF v_what IN ('D', 'X', 'W') THEN
          SET v_k = SUBSTR(p_words, v_at, 8), v_version = SUBSTR(p_words, v_at + 8, v_k),
            v_at = v_at + 8 + v_k;
        END IF;
        operation: BEGIN
          -- Of a refused multi, the rest is only read.
          IF v_refused <> 0 THEN LEAVE operation; END IF;

          IF v_what = 'D' THEN
            -- A release does not touch its directory: it must not wait for the flush of somebody's acquire.
            -- If somebody fences the node it is refused: a wait would hold up others of the session.
            /*!80400 SELECT 1 INTO v_k FROM @prefix@nodes WHERE dir = v_dir AND name = v_name AND o <> 0
                FOR UPDATE NOWAIT;
              IF v_refused <> 0 THEN LEAVE operation; END IF; */
            /*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
              DELETE FROM @prefix@nodes WHERE dir = v_dir AND name = v_name AND o <> 0
              AND (v_version = '' OR v = v_version);
            IF v_refused <> 0 OR ROW_COUNT() > 0 THEN
              -- It may have been the directory that was loaded.
              SET v_up = NULL;
              LEAVE operation;
            END IF;
            SET v_o = NULL, v_up = NULL, v_up_name = SUBSTRING_INDEX(v_dir, '/', -1);
            SELECT o, v INTO v_o, v_v FROM @prefix@nodes WHERE dir = v_dir AND name = v_name;
            IF v_o = 0 AND v_name <> '' THEN
              SET v_up_dir = LEFT(v_dir, LENGTH(v_dir) - LENGTH(v_up_name) - 1);
              IF v_up_dir = '' AND v_up_name <> '' THEN SET v_up_dir = '/'; END IF;
              SELECT p INTO v_up_p FROM @prefix@nodes WHERE dir = v_up_dir AND name = v_up_name
                FOR UPDATE;
              SET v_o = NULL;
              SELECT o, v, p INTO v_o, v_v, v_p FROM @prefix@nodes WHERE dir = v_dir AND name = v_name
                FOR UPDATE;
            END IF;
            IF v_refused = 0 THEN
              SET v_refused = CASE
                WHEN v_o IS NULL THEN 1
                WHEN v_version <> '' AND v_v <> v_version THEN 3
                -- Made anew a moment ago.
                WHEN v_o <> 0 THEN 6
                WHEN v_name = '' OR EXISTS (SELECT 1 FROM @prefix@nodes FORCE INDEX (by_seq)
                  WHERE dir = CONCAT(IF(v_dir = '/', '', v_dir), '/', v_name)) THEN 4
                ELSE 0 END;
            END IF;
            IF v_refused = 0 THEN
              DELETE FROM @prefix@nodes WHERE dir = v_dir AND name = v_name;
              DELETE FROM @prefix@containers WHERE dir = v_dir AND name = v_name;
              -- Whatever the clock does, numbers must not fall in a directory that is made anew.
              UPDATE @prefix@nodes SET p = GREATEST(p, v_p, v_number)
                WHERE dir = v_up_dir AND name = v_up_name;
            END IF;

          ELSEIF v_what = 'W' THEN
            /*!80400 SELECT 1 INTO v_k FROM @prefix@nodes WHERE dir = v_dir AND name = v_name FOR UPDATE NOWAIT;
              IF v_refused <> 0 THEN LEAVE operation; END IF; */
            /*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
              UPDATE @prefix@nodes SET d = v_data, v = v + 1, m = IF(m = v_number, m, GREATEST(m + 1, v_number))
              WHERE dir = v_dir AND name = v_name AND (v_version = '' OR v = v_version);
            IF v_refused <> 0 THEN LEAVE operation; END IF;
            SET v_k = ROW_COUNT(), v_c = NULL;
            SELECT c, m, v, o, q, p, IF(o <> 0, 0, (SELECT COUNT(*) FROM @prefix@nodes i FORCE INDEX (by_seq)
                WHERE i.dir = CONCAT(IF(n.dir = '/', '', n.dir), '/', n.name)))
              INTO v_c, v_m, v_v, v_o, v_q, v_p, v_children
              FROM @prefix@nodes n WHERE dir = v_dir AND name = v_name;
            IF v_c IS NULL THEN
              SET v_refused = 1;
            ELSEIF v_k = 0 THEN
              SET v_refused = 3;
            END IF;
            SET v_answer = CONCAT_WS(' ', v_answer, v_c, v_m, v_v, v_o, v_children, v_q, v_p);

          ELSEIF v_what = 'X' THEN
            -- Locked, as the rest of the multi relies on it.
            SET v_v = NULL;
            SELECT v INTO v_v FROM @prefix@nodes WHERE dir = v_dir AND name = v_name
              LOCK IN SHARE MODE;
            IF v_refused = 0 AND v_v IS NULL THEN
              SET v_refused = 1;
            ELSEIF v_refused = 0 AND v_version <> '' AND v_v <> v_version THEN
              SET v_refused = 3;
            END IF;

          ELSE
            IF v_up IS NULL OR v_up <> v_dir THEN
              SET v_up = v_dir, v_up_name = SUBSTRING_INDEX(v_up, '/', -1), v_up_o = NULL;
              SET v_up_dir = LEFT(v_up, LENGTH(v_up) - LENGTH(v_up_name) - 1);
              IF v_up_dir = '' AND v_up_name <> '' THEN SET v_up_dir = '/'; END IF;
              SELECT o, q, p, low INTO v_up_o, v_up_q, v_up_p, v_up_low
                FROM @prefix@nodes WHERE dir = v_up_dir AND name = v_up_name FOR UPDATE;
              -- Somebody has created it since the directories were locked.
              IF v_up_p > v_number THEN SET v_up_o = NULL; END IF;
            END IF;
            IF v_name = '' AND v_what <> 'S' THEN
              SET v_refused = 2;
            ELSEIF v_refused = 0 AND COALESCE(v_up_o, 1) <> 0 THEN
              SET v_refused = IF(v_up_o IS NULL, 1, 5);
            END IF;
            IF v_refused <> 0 THEN LEAVE operation; END IF;
            SET v_seq = 0;
            IF v_what = 'S' THEN
              -- Signed 32-bit numbers, as in ZooKeeper.
              SET v_seq = v_up_q + 1, v_k = (v_up_q + 2147483648) MOD 4294967296 - 2147483648;
              SET v_name = CONCAT(v_name, IF(v_k < 0, CONCAT('-', LPAD(-v_k, GREATEST(9, LENGTH(-v_k)), '0')), LPAD(v_k, 10, '0')));
            END IF;
            INSERT INTO @prefix@nodes VALUES (v_dir, v_name, v_seq, v_number, v_number, 0,
              IF(v_what IN ('S', 'E'), p_id, 0), 0, v_number, 0, v_data);
            IF v_refused <> 0 THEN LEAVE operation; END IF;
            SET v_answer = CONCAT_WS(' ', v_answer, v_number, v_up_q), v_up_q = v_up_q + 1;
            UPDATE @prefix@nodes SET q = v_up_q, p = v_number
              WHERE dir = v_up_dir AND name = v_up_name;
            IF v_what = 'C' THEN
              SET v_made = v_made + 1;
              IF v_clock IS NULL THEN
                SELECT own + GREATEST(0, LEAST(step, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - last)), tidied
                  INTO v_clock, v_tidied FROM @prefix@clock WHERE id = 1;
              END IF;
              REPLACE INTO @prefix@containers VALUES (v_dir, v_name, v_clock + p_rest);
            END IF;
          END IF;
        END operation;
        IF v_refused <> 0 AND v_failed IS NULL THEN SET v_failed = v_index; END IF;
        SET v_index = v_index + 1;
      END WHILE;
      IF v_refused = 0 THEN
        SET v_answers = CONCAT(v_answers, '0', v_answer, ' ');
      ELSE
        -- A server can be set up to undo all of a transaction then.
        IF v_refused = 6 AND @@innodb_rollback_on_timeout THEN
          ROLLBACK;
          SELECT 2 AS state, 0 AS number, '' AS answers;
          LEAVE proc;
        END IF;
        SET v_answers = CONCAT(v_answers, v_refused, ' ', v_failed, ' ');
        IF v_count > 1 THEN
          ROLLBACK TO SAVEPOINT multi;
          SET v_up = NULL;
        END IF;
      END IF;

    ELSEIF v_what IN ('k', 'l') THEN
      IF v_what = 'k' THEN
        SET v_k = SUBSTR(p_words, v_at, 8), v_own = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
      END IF;
      IF v_up IS NULL OR v_up <> v_path THEN
        SET v_up = v_path, v_up_name = SUBSTRING_INDEX(v_up, '/', -1), v_up_o = NULL;
        SET v_up_dir = LEFT(v_up, LENGTH(v_up) - LENGTH(v_up_name) - 1);
        IF v_up_dir = '' AND v_up_name <> '' THEN SET v_up_dir = '/'; END IF;
        SELECT o, q, low INTO v_up_o, v_up_q, v_up_low
          FROM @prefix@nodes WHERE dir = v_up_dir AND name = v_up_name;
        -- Not locked.
        SET v_up = NULL;
      END IF;
      IF v_up_o IS NULL THEN
        SET v_answers = CONCAT(v_answers, '1 ');
      ELSE
        SELECT COUNT(*), COALESCE(GROUP_CONCAT(name SEPARATOR '/'), ''), MIN(IF(seq = 0, NULL, seq))
          INTO v_count, v_names, v_seq
          FROM @prefix@nodes FORCE INDEX (by_seq) WHERE dir = v_path AND (seq = 0 OR seq >= v_up_low);
        -- Now and then, and only who has locked the directory: see schema.sql.
        IF v_up IS NOT NULL AND v_seq > v_up_low + 8 THEN
          UPDATE @prefix@nodes SET low = v_seq WHERE dir = v_up_dir AND name = v_up_name;
          SET v_up_low = v_seq;
        END IF;
        SET v_answers = CONCAT(v_answers, '0 ', v_count, ' ', LENGTH(v_names), ' ', v_names);
        IF v_what = 'k' THEN
          SET v_seq = NULL, v_k = 0, v_data = '';
          IF v_count > 1 THEN
            IF v_own <> '' THEN
              SELECT seq INTO v_seq FROM @prefix@nodes WHERE dir = v_path AND name = v_own;
            ELSE
              SELECT seq INTO v_seq FROM @prefix@nodes FORCE INDEX (by_seq)
                WHERE dir = v_path AND seq >= v_up_low AND o = p_id AND c > v_first
                ORDER BY seq DESC LIMIT 1;
            END IF;
            -- One after the other: a derived table with data would be a file.
            SET v_seq = v_seq + 1;
            WHILE v_seq IS NOT NULL AND v_k < 3 DO
              SET v_c = NULL;
              SELECT seq, name, d, c, m, v, o, q, p, IF(o <> 0, 0, (
                  SELECT COUNT(*) FROM @prefix@nodes i FORCE INDEX (by_seq)
                  WHERE i.dir = CONCAT(IF(n.dir = '/', '', n.dir), '/', n.name)))
                INTO v_seq, v_name, v_names, v_c, v_m, v_v, v_o, v_q, v_p, v_children
                FROM @prefix@nodes n FORCE INDEX (by_seq) WHERE dir = v_path AND seq < v_seq
                ORDER BY seq DESC LIMIT 1;
              IF v_c IS NULL THEN
                SET v_seq = NULL;
              ELSE
                SET v_k = v_k + 1, v_data = CONCAT(v_data, LENGTH(v_name), ' ', v_name, LENGTH(v_names), ' ',
                  v_names, CONCAT_WS(' ', v_c, v_m, v_v, v_o, v_children, v_q, v_p), ' ');
              END IF;
            END WHILE;
          END IF;
          -- The first has nobody to wait for.
          IF v_k = 1 THEN SET v_k = 0, v_data = ''; END IF;
          SET v_answers = CONCAT(v_answers, v_k, ' ', v_data);
        END IF;
      END IF;

    ELSE
      SET v_k = SUBSTR(p_words, v_at, 8), v_name = SUBSTR(p_words, v_at + 8, v_k), v_at = v_at + 8 + v_k;
      SET v_c = NULL;
      SELECT c, m, v, o, q, p, IF(v_what = 'r', d, ''), IF(o <> 0, 0, (
          SELECT COUNT(*) FROM @prefix@nodes i FORCE INDEX (by_seq)
          WHERE i.dir = CONCAT(IF(n.dir = '/', '', n.dir), '/', n.name)))
        INTO v_c, v_m, v_v, v_o, v_q, v_p, v_data, v_children
        FROM @prefix@nodes n WHERE dir = v_path AND name = v_name;
      IF v_c IS NULL THEN
        SET v_answers = CONCAT(v_answers, '1 ');
      ELSE
        IF v_what = 'r' THEN SET v_answers = CONCAT(v_answers, '0 ', LENGTH(v_data), ' ', v_data);
        ELSE SET v_answers = CONCAT(v_answers, '0 '); END IF;
        SET v_answers = CONCAT(v_answers, CONCAT_WS(' ', v_c, v_m, v_v, v_o, v_children, v_q, v_p), ' ');
      END IF;
    END IF;
    IF LENGTH(v_answers) > 100000 THEN
      SELECT 3 AS state, 0 AS number, v_answers AS answers;
      SET v_answers = '';
    END IF;
  END WHILE;
  IF v_made > 0 THEN
    -- At the end, as it raises numbers of directories that were loaded above.
    SET v_refused = 0;
    CALL @prefix@tidy(v_tidied, v_clock, v_number, p_rest, 2 * v_made);
    IF v_refused <> 0 THEN
      ROLLBACK;
      SELECT 2 AS state, 0 AS number, '' AS answers;
      LEAVE proc;
    END IF;
  END IF;
  COMMIT;
  SELECT 0 AS state, v_number AS number, v_answers AS answers;
END//
