-- What the user's own transactions call. The tables, and an overview, are in schema.sql.

DELIMITER //

-- Keeps a lock's node until the transaction ends in which it is called, if it is the node that a guard has:
-- `p_path` and `p_token`. So the transaction commits only while the lock is held. Whoever releases or breaks
-- the lock meanwhile, or ends the session, has to wait for it.
--
-- If the node has gone, it undoes the transaction, and fails. To leave that to the caller would be worse: where
-- the node is missing, a transaction of REPEATABLE READ has locked the gap, and nobody enters there before
-- it ends.
CREATE PROCEDURE @prefix@fence(p_path VARBINARY(1500), p_token BIGINT)
  READS SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_name VARBINARY(1500) DEFAULT SUBSTRING_INDEX(p_path, '/', -1);
  DECLARE v_dir VARBINARY(1500) DEFAULT LEFT(p_path, LENGTH(p_path) - LENGTH(v_name) - 1);
  DECLARE v_c BIGINT;
  IF @@autocommit AND NOT @@in_transaction THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lock recipes: a fence is part of a transaction; begin one';
  END IF;
  SELECT c INTO v_c FROM @prefix@nodes WHERE dir = IF(v_dir = '', '/', v_dir) AND name = v_name
    LOCK IN SHARE MODE;
  IF v_c IS NULL OR v_c <> p_token THEN
    ROLLBACK;
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lock recipes: the lock is lost; the transaction was undone';
  END IF;
END//
