-- What connection A runs most: the acquire and the release of one lock. The tables, and an overview, are in
-- schema.sql.

DELIMITER //

-- Creates an ephemeral, sequential node and looks: an acquire, if the session lives and the
-- directory is in order.
-- Otherwise it does nothing and fails (SQLSTATE 45000), and `requests` finds out why.
--
-- It is there for its cost: each statement and each variable of a procedure takes its time.
--
-- Selects one row: the number, the place, the count of all names in the directory and these with slashes between
-- them, the count of nodes ahead that are watched, at most two, and these as for `look`.
CREATE PROCEDURE IF NOT EXISTS @prefix@enter(
  p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT, p_seen BIGINT,
  p_up_dir VARBINARY(1500), p_up_name VARBINARY(1500), p_dir VARBINARY(1500), p_name VARBINARY(1500),
  p_data LONGBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_number, v_q, v_low, v_count BIGINT;
  DECLARE v_watched INT DEFAULT 0;
  DECLARE v_names, v_nodes LONGBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT n.q, n.low,
      GREATEST(p_seen, n.p, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + 1
    INTO v_q, v_low, v_number
    FROM @prefix@sessions s, @prefix@nodes n
    WHERE s.id = p_id AND s.secret = p_secret AND s.connection = p_connection
      AND n.dir = p_up_dir AND n.name = p_up_name AND n.o = 0 AND n.q < 2147483648
    FOR UPDATE;
  IF v_number IS NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not a simple acquire'; END IF;
  INSERT INTO @prefix@nodes VALUES (p_dir, CONCAT(p_name, LPAD(v_q, 10, '0')), v_q + 1, v_number, v_number, 0,
    p_id, 0, v_number, 0, p_data);
  SELECT COUNT(*), GROUP_CONCAT(name SEPARATOR '/') INTO v_count, v_names
    FROM @prefix@nodes FORCE INDEX (by_seq) WHERE dir = p_dir AND (seq = 0 OR seq >= v_low);
  -- See schema.sql.
  IF v_count = 1 THEN
    SET v_low = v_q + 1;
  ELSEIF v_q MOD 16 = 0 THEN
    SELECT MIN(seq) INTO v_low FROM @prefix@nodes FORCE INDEX (by_seq)
      WHERE dir = p_dir AND seq >= GREATEST(v_low, 1);
  END IF;
  UPDATE @prefix@nodes SET q = v_q + 1, p = v_number, low = v_low WHERE dir = p_up_dir AND name = p_up_name;
  IF v_count > 1 THEN
    queue: BEGIN
      DECLARE v_seq BIGINT DEFAULT v_q + 1;
      DECLARE v_ahead LONGBLOB;
      -- One after the other: a derived table with data would be a file.
      WHILE v_seq IS NOT NULL AND v_watched < 2 DO
        SET v_ahead = NULL;
        SELECT seq, CONCAT(LENGTH(name), ' ', name, LENGTH(d), ' ', d, CONCAT_WS(' ', c, m, v, o, IF(o <> 0, 0,
            (SELECT COUNT(*) FROM @prefix@nodes i FORCE INDEX (by_seq)
            WHERE i.dir = CONCAT(IF(n.dir = '/', '', n.dir), '/', n.name))), q, p), ' ')
          INTO v_seq, v_ahead
          FROM @prefix@nodes n FORCE INDEX (by_seq) WHERE dir = p_dir AND seq < v_seq
          ORDER BY seq DESC LIMIT 1;
        IF v_ahead IS NULL THEN
          SET v_seq = NULL;
        ELSE
          SET v_watched = v_watched + 1, v_nodes = CONCAT(v_nodes, v_ahead);
        END IF;
      END WHILE;
    END queue;
  END IF;
  COMMIT;
  SELECT v_number AS number, v_q AS place, v_count AS count, v_names AS names, v_watched AS watched, v_nodes AS nodes;
END//

-- Deletes an ephemeral node: the release of one lock, if the session lives and the node is there.
-- Otherwise it does nothing and fails (SQLSTATE 45000), and `requests` finds out why. It selects nothing, as
-- an answer with rows is written to the network in two parts.
CREATE PROCEDURE IF NOT EXISTS @prefix@leave(
  p_id BIGINT, p_secret VARBINARY(64), p_connection BIGINT, p_dir VARBINARY(1500), p_name VARBINARY(1500))
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  /*!80400 DECLARE v_locked INT; */
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  -- First the session, whose row is locked then, too. A node that somebody fences is not waited for.
  /*!80400 SELECT 1 INTO v_locked FROM @prefix@sessions s STRAIGHT_JOIN @prefix@nodes n
    WHERE s.id = p_id AND s.secret = p_secret AND s.connection = p_connection
    AND n.dir = p_dir AND n.name = p_name AND n.o <> 0 FOR UPDATE NOWAIT; */
  /*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
    DELETE n FROM @prefix@sessions s STRAIGHT_JOIN @prefix@nodes n
      WHERE s.id = p_id AND s.secret = p_secret AND s.connection = p_connection
      AND n.dir = p_dir AND n.name = p_name AND n.o <> 0;
  IF ROW_COUNT() = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not a simple release'; END IF;
  COMMIT;
END//
