-- What the user's own transactions call. The tables, and an overview, are in schema.sql.

DELIMITER //

-- Keeps nodes until the transaction ends in which it is called, if they are the nodes that guards have. So
-- the transaction commits only while the locks are held. Whoever releases or breaks a lock meanwhile, or ends
-- the session, has to wait for it.
--
-- `p_paths` has one path on each line, `p_tokens` as many numbers with commas between them: for one lock,
-- its path and its token.
--
-- If a node has gone, it undoes the transaction, and fails. To leave that to the caller would be worse: where
-- a node is missing, a transaction of REPEATABLE READ has locked the gap, and nobody enters there before it
-- ends.
--
-- It is refused in an XA transaction. From PREPARE on, InnoDB keeps only locks on what was changed, and a lock on
-- a node that is only read would be gone before the transaction commits.
--
-- A node of a session that has ended may stand because another transaction has fenced it. If more could
-- begin, the lock would never be free. At SERIALIZABLE that is not looked at: it would lock a gap, too, and
-- stop those who end sessions.
CREATE PROCEDURE IF NOT EXISTS @prefix@fence(p_paths LONGBLOB, p_tokens LONGBLOB)
  READS SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_path, v_dir, v_name VARBINARY(1500);
  DECLARE v_token, v_c, v_o, v_ended BIGINT;
  BEGIN
    -- No XA transaction has such a name, so this does nothing but to fail: 1399 if there is none.
    DECLARE EXIT HANDLER FOR 1399 BEGIN END;
    DECLARE EXIT HANDLER FOR 1397
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lock recipes: an XA transaction cannot have a fence';
    XA END '';
  END;
  BEGIN
    -- A savepoint lasts only in a transaction.
    DECLARE EXIT HANDLER FOR 1305
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lock recipes: a fence is part of a transaction; begin one';
    SAVEPOINT lock_recipes_fence;
    RELEASE SAVEPOINT lock_recipes_fence;
  END;
  WHILE p_paths <> '' DO
    SET v_path = SUBSTRING_INDEX(p_paths, '\n', 1), v_token = SUBSTRING_INDEX(p_tokens, ',', 1),
      p_paths = SUBSTR(p_paths, LENGTH(v_path) + 2),
      p_tokens = SUBSTR(p_tokens, LENGTH(SUBSTRING_INDEX(p_tokens, ',', 1)) + 2);
    SET v_name = SUBSTRING_INDEX(v_path, '/', -1), v_c = NULL;
    SET v_dir = LEFT(v_path, LENGTH(v_path) - LENGTH(v_name) - 1);
    SELECT c, o INTO v_c, v_o FROM @prefix@nodes WHERE dir = IF(v_dir = '', '/', v_dir) AND name = v_name
      LOCK IN SHARE MODE;
    IF /*M! @@tx_isolation */ /*!80400 @@transaction_isolation */ <> 'SERIALIZABLE' THEN
      -- Not as a condition, where it would lock.
      SET v_ended = NULL;
      SELECT id INTO v_ended FROM @prefix@ended WHERE id = v_o;
    END IF;
    IF v_c IS NULL OR v_c <> v_token OR v_ended IS NOT NULL THEN
      ROLLBACK;
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lock recipes: a lock is lost; the transaction was undone';
    END IF;
  END WHILE;
END//
